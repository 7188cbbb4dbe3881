//! Missing permissions at the start of a program.

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{Patch, PatchParams};
use lucid_e2e::Operator;
use lucid_testbed::{Cluster, Process};
use serde_json::json;

use crate::cli::{apply_manifest, kubeconfig_of};
use crate::common::{create, get, log, logged_in, metric, prepare, secured};

/// Waits until the log of `process` contains this text; returns the line.
async fn says(process: &Operator, text: &str) -> String {
    logged_in(&process.log(), text).await
}

async fn change_rules(
    cluster: &Cluster,
    role: &str,
    change: impl Fn(&str) -> bool,
) -> Vec<serde_json::Value> {
    let roles: Api<ClusterRole> = Api::all(cluster.client());
    let before = roles.get(role).await.unwrap().rules.unwrap();
    let stays = before.iter().filter(|rule| rule.resources.iter().flatten().all(|it| change(it)));
    let patch = Patch::Merge(json!({"rules": stays.collect::<Vec<_>>()}));
    roles.patch(role, &PatchParams::default(), &patch).await.unwrap();
    before.into_iter().map(|rule| serde_json::to_value(rule).unwrap()).collect()
}

#[tokio::test]
async fn optional_permissions_are_logged_and_do_not_block() {
    let cluster = Cluster::builder().start().await.unwrap();
    apply_manifest(&cluster, "lucid.yaml");
    apply_manifest(&cluster, "auditor-crd.yaml");
    let cluster = prepare(cluster).await;
    let user = kubeconfig_of(&cluster, "lucid-operator");
    let whole = Operator::builder(&cluster).kubeconfig(user.clone()).named("whole").start().await.unwrap();
    assert_eq!(metric(&whole, "lucid_missing_rights ").await, 0);
    drop(whole);

    let is_kept = |resource: &str| !["events", "replicasets", "subjectaccessreviews"].contains(&resource);
    let before = change_rules(&cluster, "lucid-operator", is_kept).await;
    let start = Operator::builder(&cluster).kubeconfig(user).env("LUCID_BREAK_GLASS_ACCESS_REVIEW", "true");
    let running = start.start().await.unwrap();
    for (right, loss) in [
        ("create events.events.k8s.io", "nobody sees events about pods and certificates"),
        ("patch events.events.k8s.io", "nobody sees events about pods and certificates"),
        ("get replicasets", "events about pods are on ReplicaSets and Jobs"),
        ("create subjectaccessreviews", "no ticket breaks the glass"),
    ] {
        let line = says(&running, &format!("the right to {right} is missing: {loss}")).await;
        assert!(line.contains("WARN"), "{line}");
    }
    let log = log(&running);
    assert_eq!(log.matches(" is missing: ").count(), 4, "{log}");
    assert_eq!(metric(&running, "lucid_missing_rights ").await, 4);
    create(&cluster, "shop", &secured("web")).await.stored().unwrap();

    let roles: Api<ClusterRole> = Api::all(cluster.client());
    let granted = Patch::Merge(json!({"rules": before}));
    roles.patch("lucid-operator", &PatchParams::default(), &granted).await.unwrap();
    says(&running, "the right to get replicasets is not missing any more").await;
    assert_eq!(metric(&running, "lucid_missing_rights ").await, 0);
}

#[tokio::test]
async fn the_injector_logs_missing_permissions() {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.create_namespace("lucid-system", &[]).await.unwrap();
    apply_manifest(&cluster, "cainjector.yaml");
    let user = kubeconfig_of(&cluster, "lucid-cainjector");
    let before = change_rules(&cluster, "lucid-cainjector", |resource| resource != "apiservices").await;
    let mut command = lucid_testbed::command(lucid_e2e::program("lucid-operator").unwrap());
    command.arg("cainjector").env("KUBECONFIG", user).env("LUCID_ADMIN_LISTEN", "127.0.0.1:0");
    let log = cluster.folder().join("logs/lacking.log");
    let _injector = Process::start("cainjector", command, log.clone()).unwrap();
    for verb in ["get", "list", "watch", "patch"] {
        let line = logged_in(&log, &format!("the right to {verb} apiservices is missing: no CAs are")).await;
        assert!(line.contains("ERROR"), "{line}");
    }
    let roles: Api<ClusterRole> = Api::all(cluster.client());
    let granted = Patch::Merge(json!({"rules": before}));
    roles.patch("lucid-cainjector", &PatchParams::default(), &granted).await.unwrap();
    logged_in(&log, "the right to get apiservices is not missing any more").await;
    // The manifest grants all others.
    assert_eq!(std::fs::read_to_string(&log).unwrap().matches(" is missing: ").count(), 4);
}

#[tokio::test]
async fn required_permissions_are_logged_and_block_readiness() {
    let cluster = Cluster::builder().start().await.unwrap();
    apply_manifest(&cluster, "lucid.yaml");
    apply_manifest(&cluster, "validator.yaml");
    let cluster = prepare(cluster).await;
    let is_kept = |resource: &str| resource != "configmaps" && resource != "validatingwebhookconfigurations";
    let before = change_rules(&cluster, "lucid-validator", is_kept).await;
    let user = kubeconfig_of(&cluster, "lucid-validator");
    let mut validator = Operator::validator(&cluster).kubeconfig(user).spawn().unwrap();
    for right in
        ["watch configmaps lucid-auditor-chain", "patch validatingwebhookconfigurations lucid-validator"]
    {
        let line = says(&validator, &format!("the right to {right} is missing: ")).await;
        assert!(line.contains("ERROR"), "{line}");
    }
    assert_eq!(get(&validator, "/healthz").await.0, 200);
    assert_eq!(get(&validator, "/readyz").await.0, 503);
    let roles: Api<ClusterRole> = Api::all(cluster.client());
    let granted = Patch::Merge(json!({"rules": before}));
    roles.patch("lucid-validator", &PatchParams::default(), &granted).await.unwrap();
    validator.ready().await.unwrap();
}
