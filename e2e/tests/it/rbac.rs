//! Missing permissions at the start of a program.

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{Patch, PatchParams};
use lucid_e2e::{ClusterExt as _, Operator, Process, eventually};
use lucid_testbed::Cluster;
use serde_json::json;

use crate::cli::{apply_manifest, kubeconfig_of};
use crate::common::{create, get, log, logged_in, metric, prepare, secured, until_called};

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
    assert_eq!(metric(&whole, "lucid_missing_permissions ").await, 0);
    drop(whole);

    let is_kept = |resource: &str| !["events", "replicasets", "subjectaccessreviews"].contains(&resource);
    let before = change_rules(&cluster, "lucid-operator", is_kept).await;
    let start = Operator::builder(&cluster).kubeconfig(user).env("LUCID_BREAK_GLASS_ACCESS_REVIEW", "true");
    let running = start.start().await.unwrap();
    for (permission, loss) in [
        ("create events.events.k8s.io", "events about pods and certificates are not recorded"),
        ("patch events.events.k8s.io", "events about pods and certificates are not recorded"),
        ("get replicasets", "events about pods are recorded on ReplicaSets and Jobs"),
        ("create subjectaccessreviews", "break-glass tickets are not accepted"),
    ] {
        let line = says(&running, &format!("missing permission to {permission}: {loss}")).await;
        assert!(line.contains("WARN"), "{line}");
    }
    let log = log(&running);
    assert_eq!(log.matches("missing permission to ").count(), 4, "{log}");
    assert_eq!(metric(&running, "lucid_missing_permissions ").await, 4);
    until_called(&cluster).await;
    create(&cluster, "shop", &secured("web")).await.stored().unwrap();

    let roles: Api<ClusterRole> = Api::all(cluster.client());
    let granted = Patch::Merge(json!({"rules": before}));
    roles.patch("lucid-operator", &PatchParams::default(), &granted).await.unwrap();
    says(&running, "the permission to get replicasets is granted now").await;
    eventually("all are granted", async || metric(&running, "lucid_missing_permissions ").await == 0).await;
}

#[tokio::test]
async fn the_injector_logs_missing_permissions() {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.create_namespace("lucid-system", &[]).await.unwrap();
    apply_manifest(&cluster, "cainjector.yaml");
    let user = kubeconfig_of(&cluster, "lucid-cainjector");
    let before = change_rules(&cluster, "lucid-cainjector", |resource| resource != "apiservices").await;
    let mut command = lucid_e2e::command(lucid_e2e::program("lucid-operator").unwrap());
    command.arg("cainjector").env("KUBECONFIG", user).env("LUCID_ADMIN_LISTEN", "127.0.0.1:0");
    let log = cluster.folder().join("logs/lacking.log");
    let _injector = Process::start("cainjector", command, log.clone()).unwrap();
    for verb in ["get", "list", "watch", "patch"] {
        let line = logged_in(&log, &format!("missing permission to {verb} apiservices: no CAs are")).await;
        assert!(line.contains("ERROR"), "{line}");
    }
    let roles: Api<ClusterRole> = Api::all(cluster.client());
    let granted = Patch::Merge(json!({"rules": before}));
    roles.patch("lucid-cainjector", &PatchParams::default(), &granted).await.unwrap();
    logged_in(&log, "the permission to get apiservices is granted now").await;
    // The manifest grants all others.
    assert_eq!(std::fs::read_to_string(&log).unwrap().matches("missing permission to ").count(), 4);
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
    for permission in
        ["watch configmaps lucid-auditor-chain", "patch validatingwebhookconfigurations lucid-validator"]
    {
        let line = says(&validator, &format!("missing permission to {permission}: ")).await;
        assert!(line.contains("ERROR"), "{line}");
    }
    assert_eq!(get(&validator, "/healthz").await.0, 200);
    assert_eq!(get(&validator, "/readyz").await.0, 503);
    let roles: Api<ClusterRole> = Api::all(cluster.client());
    let granted = Patch::Merge(json!({"rules": before}));
    roles.patch("lucid-validator", &PatchParams::default(), &granted).await.unwrap();
    validator.ready().await.unwrap();
}
