//! Namespace and object selectors of the webhooks.

use crate::cli::run_with;
use crate::common::{
    TOXICITY, chain, cluster, create, delete_all_pods, deployment, expected, has_chain, label_namespace,
    mutating_webhooks, operator, pod, secured, until, validating_webhooks,
};
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use lucid_e2e::{ClusterExt as _, ask};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

/// namespaceSelector and objectSelector of both webhooks, which are the same.
async fn selectors(cluster: &Cluster) -> (Value, Value) {
    let mutating = mutating_webhooks(cluster, "lucid-operator").await.remove(0);
    let validating = validating_webhooks(cluster, "lucid-operator").await.remove(0);
    let of = |namespaces: Option<LabelSelector>, objects: Option<LabelSelector>| {
        (serde_json::to_value(namespaces).unwrap(), serde_json::to_value(objects).unwrap())
    };
    let found = of(mutating.namespace_selector, mutating.object_selector);
    assert_eq!(of(validating.namespace_selector, validating.object_selector), found);
    found
}

#[tokio::test]
async fn selectors_never_include_system_namespaces() {
    let cluster = cluster().await;
    cluster.create_namespace("a", &[("team", "a")]).await.unwrap();
    cluster.create_namespace("c", &[("team", "c")]).await.unwrap();
    cluster.create_namespace("old", &[("team", "a"), ("legacy", "")]).await.unwrap();
    let system = ["kube-system", "kube-public", "kube-node-lease", "lucid-system"];
    for name in system {
        label_namespace(&cluster, name, json!({"team": "a"})).await;
    }
    let first = operator(&cluster, |operator| {
        let operator = operator.env("LUCID_CHAIN", "toxicity");
        let operator = operator.env("LUCID_NAMESPACE_SELECTOR", "team in (a, b), !legacy");
        operator.env("LUCID_OBJECT_SELECTOR", "audience!=internal")
    })
    .await;
    let excluded = json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": system});
    let (selected, objects) = selectors(&cluster).await;
    let of_teams = json!([
        excluded,
        {"key": "team", "operator": "In", "values": ["a", "b"]},
        {"key": "legacy", "operator": "DoesNotExist"},
    ]);
    let expressions = |selector: &Value| {
        let mut found = selector["matchExpressions"].as_array().unwrap().clone();
        found[0]["values"]
            .as_array_mut()
            .unwrap()
            .sort_by_key(|name| system.iter().position(|known| name == known));
        Value::Array(found)
    };
    assert_eq!(expressions(&selected), of_teams);
    assert_eq!(
        objects,
        json!({"matchExpressions": [{"key": "audience", "operator": "NotIn", "values": ["internal"]}]})
    );

    for (namespace, auditors) in [("a", TOXICITY), ("c", &[]), ("old", &[]), ("shop", &[])]
        .into_iter()
        .chain(system.map(|name| (name, &[][..])))
    {
        let stored = create(&cluster, namespace, &secured("web")).await.stored().unwrap();
        assert_eq!(chain(&stored), expected(auditors), "{namespace}");
    }
    let internal = pod("internal", json!({"lucid.io/secured": "true", "audience": "internal"}), json!({}));
    let stored = create(&cluster, "a", &internal).await.stored().unwrap();
    assert_eq!(chain(&stored), expected(&[]));

    // The selectors of a later registration replace the previous ones.
    drop(first);
    let _second = operator(&cluster, |operator| {
        let operator = operator.named("lucid-operator-2").env("LUCID_CHAIN", "toxicity");
        operator.env("LUCID_NAMESPACE_SELECTOR", "kubernetes.io/metadata.name in (c, kube-system)")
    })
    .await;
    until(&cluster, "c", secured, |response| has_chain(response, TOXICITY)).await;
    let (selected, objects) = selectors(&cluster).await;
    let by_name = json!([
        excluded,
        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["c", "kube-system"]},
    ]);
    assert_eq!((expressions(&selected), objects), (by_name, json!({})));
    for namespace in ["a", "kube-system"] {
        let again = |name: &str| secured(&format!("again-{name}"));
        let stored = until(&cluster, namespace, again, |it| it.status == 201).await.stored().unwrap();
        assert_eq!(chain(&stored), expected(&[]), "{namespace}");
    }
}

/// The API server matches the labels of the reviewed object, which differ from those of a workload's pods.
#[tokio::test]
async fn selectors_match_the_template_of_a_workload() {
    let cluster = cluster().await;
    let _operator = operator(&cluster, |operator| {
        let operator = operator.env("LUCID_OBJECT_SELECTOR", "audience!=internal");
        operator.env("LUCID_ADMISSION_MODE", "enforce")
    })
    .await;
    let internal = json!({"app": "web", "audience": "internal"});
    let public = json!({"app": "web", "audience": "public"});
    let path = "/apis/apps/v1/namespaces/shop/deployments?dryRun=All";
    for (own, of_pods, is_looked_at) in [
        (&internal, &internal, false),
        (&public, &internal, false),
        (&internal, &public, true),
        (&public, &public, true),
    ] {
        let pod = pod("web", of_pods.clone(), json!({}));
        let mut deployment = deployment("web", 1, &pod);
        deployment["metadata"]["labels"] = own.clone();
        let reply = ask(&cluster.client(), None, Method::POST, path, "application/json", &deployment).await;
        let reply = reply.unwrap();
        assert_eq!(reply.status, 201, "{reply:?}");
        let warned =
            reply.warnings.iter().any(|warning| warning.contains("label lucid.computing/tier is missing"));
        assert_eq!(warned, is_looked_at, "{own} {of_pods}: {reply:?}");
        // The result for the template equals the result for its pods.
        let response = create(&cluster, "shop", &pod).await;
        assert_eq!(response.status == 403, is_looked_at, "{own} {of_pods}: {response:?}");
        delete_all_pods(&cluster, "shop").await;
    }
}

#[tokio::test]
async fn invalid_selectors_fail_with_the_name_of_their_variable() {
    for program in ["lucid-operator", "lucid-validator"] {
        for variable in ["LUCID_NAMESPACE_SELECTOR", "LUCID_OBJECT_SELECTOR"] {
            for text in ["", " ", "a in ()", "a=ä", "team=a,,b=c", "tier>1"] {
                let ran = run_with(program, &["run"], &[(variable, text)]);
                assert_eq!(ran.status, Some(2), "{variable}={text:?}: {ran:?}");
                let is_named = ran.stderr.contains(variable) && ran.stderr.contains("expected");
                assert!(is_named, "{variable}={text:?}: {ran:?}");
            }
        }
    }
}
