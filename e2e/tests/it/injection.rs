//! Pods get the chain of their spec and of the cluster, as verified on the stored pod.

use std::fs;
use std::path::Path;

use crate::common::{
    Auditors, GUARDRAILS, TOXICITY, annotate_namespace, assert_contains, assert_injected, chain, cluster,
    config_map, create, create_object, decisions, deployment, expected, has_chain, label_namespace, log,
    operator, pod, prepare, secured, secured_with, stored, unplanned, until, until_injected, with_chain,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use lucid_e2e::{ClusterExt as _, eventually, page::root};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

/// Expected annotations, chain and warnings of a secured pod.
type Case = (&'static str, Value, Auditors, &'static [&'static str]);

const INJECTION_TOXICITY: Auditors = &[
    ("lucid-injection-auditor", 8090, "http://localhost:8093"),
    ("lucid-toxicity-auditor", 8093, "http://localhost:5000"),
];

/// In one cluster, with the default settings and a decision log.
#[tokio::test]
async fn pods_are_injected_by_their_annotations_and_the_catalogue() {
    let cluster = cluster().await;
    let log = cluster.folder().join("decisions");
    let _operator = operator(&cluster, |it| it.env("LUCID_DECISION_LOG", log.display().to_string())).await;
    a_dry_run_shows_the_chain(&cluster, &log).await;
    annotations_choose_the_chain(&cluster).await;
    other_pods_stay_unchanged(&cluster).await;
    the_last_valid_catalogue_stays_in_force(&cluster).await;
    the_documented_auditors_are_pinned(&cluster).await;
}

/// With the catalogue of docs/auditors-yaml.md that pins them.
async fn the_documented_auditors_are_pinned(cluster: &Cluster) {
    let page = fs::read_to_string(root().join("docs/auditors-yaml.md")).unwrap();
    let (_, section) = page.split_once("## Built-in auditors").unwrap();
    let catalogue = section.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    config_map(cluster, "lucid-system", "lucid-auditors", "auditors.yaml", catalogue).await;
    let is_pinned = |pod: &Pod| {
        let mut images = pod.spec.iter().flat_map(|spec| &spec.containers).filter_map(|it| it.image.as_ref());
        images.any(|image| image.contains("@sha256:"))
    };
    let response = until(
        cluster,
        "shop",
        |name| with_chain(name, "injection,toxicity"),
        |response| response.result.as_ref().is_ok_and(|pod| is_pinned(pod)),
    );
    assert_eq!(chain(&response.await.stored().unwrap()), expected(INJECTION_TOXICITY));
}

async fn annotations_choose_the_chain(cluster: &Cluster) {
    let cases: Vec<Case> = vec![
        ("default", json!({}), GUARDRAILS, &[]),
        ("auditors", json!({"lucid.computing/auditors": "injection,toxicity"}), INJECTION_TOXICITY, &[]),
        ("skipped", json!({"lucid.computing/skip-audit": "true"}), &[], &["no auditors: annotation"]),
        (
            "nonsense",
            json!({"lucid.computing/audit-mode": "loud", "lucid.computing/target-port": "70000"}),
            GUARDRAILS,
            &[
                "lucid.computing/audit-mode",
                "\"loud\"",
                "enforce",
                "lucid.computing/target-port",
                "70000",
                "65535",
            ],
        ),
    ];
    for (name, annotations, auditors, warnings) in cases {
        let response = create(cluster, "shop", &secured_with(name, annotations)).await;
        let said = response.warnings.join("\n");
        response.stored().unwrap_or_else(|error| panic!("{name}: {error}"));
        let stored = stored(cluster, "shop", name).await;
        assert_eq!(chain(&stored), expected(auditors), "{name}");
        for warning in warnings {
            assert!(said.contains(warning), "{name}: {warning:?} is not in {said:?}");
        }
        assert_eq!(said.contains("annotation"), !warnings.is_empty(), "{name}: {said}");
    }
}

async fn other_pods_stay_unchanged(cluster: &Cluster) {
    cluster.create_namespace("disabled", &[("lucid.computing/enabled", "false")]).await.unwrap();
    // Even with the label on a system namespace.
    for namespace in ["kube-system", "lucid-system"] {
        label_namespace(cluster, namespace, json!({"lucid.computing/enabled": "true"})).await;
    }
    for namespace in ["other", "disabled", "kube-system", "lucid-system"] {
        let response = create(cluster, namespace, &secured("web")).await;
        assert!(response.warnings.is_empty(), "{namespace}: {:?}", response.warnings);
        let pod = response.stored().unwrap();
        assert_eq!(chain(&pod), expected(&[]), "{namespace}");
        assert!(!pod.annotations().contains_key("lucid.computing/status"), "{namespace}");
    }
    let pod = create(cluster, "shop", &pod("plain", json!({}), json!({}))).await.stored().unwrap();
    assert_eq!(chain(&pod), expected(&[]), "a pod that requests nothing");
    assert_eq!(pod.annotations().len(), 0);
}

#[tokio::test]
async fn the_chain_of_the_namespace_follows_its_config_map() {
    let cluster = cluster().await;
    let operator = operator(&cluster, |operator| operator.env("LUCID_CHAIN", "toxicity")).await;
    assert_injected(&cluster, "of-the-operator", TOXICITY).await;

    config_map(&cluster, "shop", "lucid-auditor-chain", "chain", "injection, toxicity").await;
    until_injected(&cluster, "shop", "names", INJECTION_TOXICITY).await;
    let pod = create(&cluster, "shop", &with_chain("annotation-wins", "toxicity")).await.stored().unwrap();
    assert_eq!(chain(&pod), expected(TOXICITY));

    let broken = "chain:\n  - name: lucid-topics-auditor\n    image: example.com/topics:1\n    port: 70000\n";
    config_map(&cluster, "shop", "lucid-auditor-chain", "auditors.yaml", broken).await;
    let warned =
        |response: &lucid_e2e::Answer| response.warnings.iter().any(|warning| warning.contains("70000"));
    let response = until(&cluster, "shop", |name| secured(&format!("broken-{name}")), warned).await;
    let warning = response.warnings.join("\n");
    assert_contains(
        &warning,
        &["shop/lucid-auditor-chain", "auditors.yaml", "line 4", "chain[0].port", "the last valid content"],
    );
    assert_eq!(
        chain(&response.stored().unwrap()),
        expected(INJECTION_TOXICITY),
        "the last good chain is not in force"
    );
    assert!(log(&operator).contains("chain[0].port"), "nothing in the log");

    let own: Auditors = &[("lucid-topics-auditor", 9100, "http://localhost:5000")];
    let good = "chain:\n  - name: lucid-topics-auditor\n    image: example.com/topics:1\n    port: 9100\n";
    config_map(&cluster, "shop", "lucid-auditor-chain", "auditors.yaml", good).await;
    let warned = |response: &lucid_e2e::Answer| {
        let warning = response.warnings.join("\n");
        [
            "shop/lucid-auditor-chain",
            "auditor lucid-topics-auditor: a namespace cannot set image",
            "lucid.computing/auditor-images",
        ]
        .iter()
        .all(|part| warning.contains(part))
    };
    let response = until(&cluster, "shop", |name| secured(&format!("unlisted-{name}")), warned).await;
    assert_eq!(chain(&response.stored().unwrap()), expected(INJECTION_TOXICITY));
    annotate_namespace(&cluster, "shop", json!({"lucid.computing/auditor-images": "example.com/topics"}))
        .await;
    until_injected(&cluster, "shop", "own", own).await;
    annotate_namespace(&cluster, "shop", json!({"lucid.computing/auditor-images": null})).await;
    until_injected(&cluster, "shop", "revoked", TOXICITY).await;

    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(cluster.client(), "shop");
    maps.delete("lucid-auditor-chain", &Default::default()).await.unwrap();
    until_injected(&cluster, "shop", "deleted", TOXICITY).await;
}

async fn the_last_valid_catalogue_stays_in_force(cluster: &Cluster) {
    let good = "chain:\n  - {name: lucid-topics-auditor, image: \"example.com/topics:1\", port: 9100}\n";
    config_map(cluster, "lucid-system", "lucid-auditors", "auditors.yaml", good).await;
    let topics: Auditors = &[("lucid-topics-auditor", 9100, "http://localhost:5000")];
    until(cluster, "shop", |name| with_chain(&format!("good-{name}"), "topics"), |it| has_chain(it, topics))
        .await;
    config_map(cluster, "lucid-system", "lucid-auditors", "auditors.yaml", "chain:\n  - name: [\n").await;
    let warned = |response: &lucid_e2e::Answer| {
        response.warnings.iter().any(|warning| warning.contains("lucid-auditors"))
    };
    let response =
        until(cluster, "shop", |name| with_chain(&format!("broken-{name}"), "topics"), warned).await;
    assert!(response.warnings.join("\n").contains("line "), "{:?}", response.warnings);
    assert_eq!(chain(&response.stored().unwrap()), expected(topics));
}

async fn a_dry_run_shows_the_chain(cluster: &Cluster, log: &Path) {
    let api: Api<Pod> = Api::namespaced(cluster.client(), "shop");
    let dry_run = PostParams { dry_run: true, ..Default::default() };
    // The API server may hear of the registration only after the operator is ready.
    eventually("the pod has its chain", async || {
        let pod = api.create(&dry_run, &serde_json::from_value(secured("web")).unwrap()).await.unwrap();
        if chain(&pod) == expected(GUARDRAILS) { Ok(()) } else { Err(chain(&pod)) }
    })
    .await;
    assert!(api.list(&ListParams::default()).await.unwrap().items.is_empty());
    let decisions = decisions(log);
    assert!(decisions.len() >= 2 && decisions.iter().all(|it| it["dryRun"] == true), "{decisions:?}");
}

/// Volumes mounted at the path of the ServiceAccount's token, by container.
fn tokens(pod: &Pod) -> Vec<(String, Vec<String>)> {
    let spec = pod.spec.as_ref().unwrap();
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let volumes = |container: &Container| {
        let mounts = container.volume_mounts.iter().flatten();
        let at = mounts.filter(|mount| mount.mount_path == "/var/run/secrets/kubernetes.io/serviceaccount");
        at.map(|mount| mount.name.split("-access-").next().unwrap().to_owned()).collect()
    };
    containers.map(|container| (container.name.clone(), volumes(container))).collect()
}

#[tokio::test]
async fn pods_of_a_deployment_are_injected() {
    let cluster = prepare(Cluster::builder().controller_manager().start().await.unwrap()).await;
    let _operator = operator(&cluster, |operator| operator).await;
    create_object::<Deployment>(&cluster, deployment("web", 3, &secured(""))).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "shop");
    let items = eventually("three pods of the Deployment", async || {
        let items = pods.list(&ListParams::default().labels("app=web")).await.unwrap().items;
        if items.len() == 3 { Ok(items) } else { Err(format!("{} pods of the Deployment", items.len())) }
    })
    .await;
    for pod in items {
        assert_eq!(chain(&pod), expected(GUARDRAILS), "{}", pod.name_any());
        // The admission plugin ServiceAccount has run before and after the webhook.
        let mut found = tokens(&pod);
        assert_eq!(found.remove(0), ("model".to_owned(), vec!["kube-api".to_owned()]));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().all(|(_, volumes)| *volumes == ["lucid-no-token"]), "{found:?}");
        assert_eq!(unplanned(&pod), "");
    }
}
