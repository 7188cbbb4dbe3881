//! Pods while the webhook is reachable and cannot respond.

use crate::cli::{apply_manifest, kubeconfig_of};
use crate::common::{
    TOXICITY, assert_contains, ca_bundle, chain, client_of, cluster, config_map, create, decisions, expected,
    logged_in, metric, operator, pod, prepare, secured, until, until_injected,
};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::Patch;
use lucid_e2e::{Answer, Operator};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

/// Revokes the permission to read the chains of the namespaces, and returns the original role.
async fn hide_the_chains(cluster: &Cluster) -> ClusterRole {
    let api: Api<ClusterRole> = Api::all(cluster.client());
    let role = api.get("lucid-operator").await.unwrap();
    let mut rules = role.rules.clone().unwrap();
    rules
        .retain(|rule| rule.resources.as_ref().is_none_or(|found| !found.contains(&"configmaps".to_owned())));
    let fewer = Patch::Merge(json!({"rules": rules}));
    api.patch("lucid-operator", &Default::default(), &fewer).await.unwrap();
    role
}

#[tokio::test]
async fn the_failure_policy_applies_until_the_configuration_is_read() {
    let cluster = Cluster::builder().start().await.unwrap();
    apply_manifest(&cluster, "lucid.yaml");
    let cluster = prepare(cluster).await;
    let role = hide_the_chains(&cluster).await;
    let user = kubeconfig_of(&cluster, "lucid-operator");
    config_map(&cluster, "shop", "lucid-auditor-chain", "chain", "toxicity").await;

    let closed = Operator::builder(&cluster).kubeconfig(user.clone()).spawn().unwrap();
    let says_why = |answer: &Answer| answer.refusal().contains("the configuration is not known yet");
    let answer = until(&cluster, "shop", |name| secured(&format!("closed-{name}")), says_why).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_contains(
        answer.refusal(),
        &["mutate.lucid.computing", "lucid-auditor-chain", "try again in a moment"],
    );
    logged_in(&closed.log(), r#"allowed=false patched=false tier="missing""#).await;
    // Not even a pod without auditors: its chain is still unknown.
    let plain = create(&cluster, "shop", &pod("plain", json!({}), json!({}))).await;
    assert_eq!(plain.status, 503, "{plain:?}");
    create(&cluster, "other", &secured("web")).await.stored().unwrap();
    assert!(metric(&closed, r#"lucid_injections_total{outcome="failed",reason="NotSynced"}"#).await >= 2);
    drop(closed);

    // The validating webhook never fails open; another program provides it here.
    let open = Operator::builder(&cluster).kubeconfig(user).named("lucid-operator-open");
    let open = open.env("LUCID_FAILURE_POLICY", "Ignore").env("LUCID_VALIDATE", "false").spawn().unwrap();
    let warns = |answer: &Answer| answer.warnings.join("\n").contains("the configuration is not known yet");
    let answer = until(&cluster, "shop", |name| secured(&format!("open-{name}")), warns).await;
    assert!(answer.warnings.join("\n").contains("no auditors"), "{:?}", answer.warnings);
    assert_eq!(chain(&answer.stored().unwrap()), expected(&[]));

    // After the permission returns, the actual chain is used, not a guessed one.
    let rules = Patch::Merge(json!({"rules": role.rules}));
    let api: Api<ClusterRole> = Api::all(cluster.client());
    api.patch("lucid-operator", &Default::default(), &rules).await.unwrap();
    until_injected(&cluster, "shop", "ready", TOXICITY).await;
    drop(open);
}

#[tokio::test]
async fn unreadable_requests_follow_the_failure_policy() {
    let cluster = cluster().await;
    let of = |policy: &'static str| {
        let log = cluster.folder().join("decisions").join(policy);
        operator(&cluster, move |operator| {
            let operator = operator.named(policy).env("LUCID_FAILURE_POLICY", policy);
            let operator = operator.env("LUCID_VALIDATION_FAILURE_POLICY", policy);
            operator.env("LUCID_DECISION_LOG", log.to_str().unwrap())
        })
    };
    for policy in ["Fail", "Ignore"] {
        let operator = of(policy).await;
        let deployment = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
        let review = crate::bad_input::request("CREATE", deployment, secured("web"));
        let client = client_of(&ca_bundle(&cluster).await);
        for (path, reason) in [("mutate", "expected a core/v1 Pod"), ("validate", "expected a core/v1 Pod")] {
            let request =
                client.post(format!("{}/{path}", operator.url())).header("content-type", "application/json");
            let response = request.body(review.clone()).send().await.unwrap();
            assert_eq!(response.status(), 200, "{policy}");
            let answer: Value = response.json().await.unwrap();
            let answer = &answer["response"];
            assert_eq!((&answer["uid"], &answer["allowed"]), (&json!("u-1"), &json!(policy == "Ignore")));
            let said = if policy == "Fail" { &answer["status"]["message"] } else { &answer["warnings"][0] };
            assert!(said.as_str().unwrap().contains(reason), "{policy}: {answer}");
        }
        let decisions = decisions(&cluster.folder().join("decisions").join(policy)).into_iter();
        let decisions = decisions.filter(|decision| decision["uid"] == "u-1");
        let decisions: Vec<_> =
            decisions.map(|decision| (decision["webhook"].clone(), decision["allowed"].clone())).collect();
        let allowed = json!(policy == "Ignore");
        assert_eq!(decisions, [(json!("mutate"), allowed.clone()), (json!("validate"), allowed)], "{policy}");
        let series = r#"lucid_injections_total{outcome="failed",reason="BadRequest"}"#;
        assert_eq!(metric(&operator, series).await, 1);
    }
}
