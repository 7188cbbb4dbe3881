//! Permissions and workloads of the programs.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use kube::Api;
use kube::api::{Patch, PatchParams};
use lucid_e2e::eventually;
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use super::{check, run};
use crate::cli::{apply_manifest, grant, kubeconfig_for};
use crate::uninstall::validator::make_stateful;

const OPERATOR: &str = "ServiceAccount lucid-system/lucid-operator";
const VALIDATOR: &str = "ServiceAccount lucid-system/lucid-validator";

async fn installed() -> Cluster {
    let cluster = Cluster::builder().start().await.unwrap();
    for manifest in ["auditor-crd.yaml", "lucid.yaml", "validator.yaml"] {
        apply_manifest(&cluster, manifest);
    }
    cluster
}

async fn permissions_of(cluster: &Cluster, object: &str) -> Vec<Value> {
    let checked = check(cluster).await;
    let checks = checked.report["checks"].as_array().unwrap().clone();
    checks.into_iter().filter(|it| it["check"] == "permissions" && it["object"] == object).collect()
}

#[tokio::test]
async fn missing_permissions_are_named_with_their_effect() {
    let cluster = installed().await;
    let checked = eventually("the permissions are granted", async || {
        let checked = check(&cluster).await;
        let is_ok = |account| checked.of("permissions", account).0 == "ok";
        if is_ok(OPERATOR) && is_ok(VALIDATOR) { Ok(checked) } else { Err(checked.report) }
    })
    .await;
    for account in [OPERATOR, VALIDATOR] {
        checked.assert("permissions", account, "ok", &["all permissions that its settings need are granted"]);
    }

    // Without a required rule of the ClusterRole, an optional one, and one of the Role.
    let cluster_roles: Api<ClusterRole> = Api::all(cluster.client());
    let roles: Api<Role> = Api::namespaced(cluster.client(), "lucid-system");
    let mut rules = cluster_roles.get("lucid-operator").await.unwrap().rules.unwrap();
    rules.retain(|rule| {
        let resources = rule.resources.as_ref().unwrap();
        !resources.iter().any(|it| it == "events" || it == "mutatingwebhookconfigurations")
    });
    let without = Patch::Merge(json!({"rules": rules}));
    cluster_roles.patch("lucid-operator", &PatchParams::default(), &without).await.unwrap();
    let mut rules = roles.get("lucid-validator").await.unwrap().rules.unwrap();
    for rule in &mut rules {
        if rule.resource_names.as_ref().is_some_and(|it| it == &["lucid-validator-ca"]) {
            rule.verbs.retain(|verb| verb != "update");
        }
    }
    let without = Patch::Merge(json!({"rules": rules}));
    roles.patch("lucid-validator", &PatchParams::default(), &without).await.unwrap();
    let checked = eventually("the permissions are revoked", async || {
        let checked = check(&cluster).await;
        let is_ok = |account| checked.of("permissions", account).0 == "ok";
        if is_ok(OPERATOR) || is_ok(VALIDATOR) { Err(checked.report) } else { Ok(checked) }
    })
    .await;
    assert_eq!(checked.status, Some(1));
    let update = [
        "missing permission to update secrets lucid-validator-ca in namespace lucid-system: no certificate is served",
        "grant the permission to update secrets lucid-validator-ca",
    ];
    checked.assert("permissions", VALIDATOR, "failed", &update);
    let failed = permissions_of(&cluster, OPERATOR).await;
    let found: Vec<_> = failed
        .iter()
        .map(|it| (it["status"].as_str().unwrap(), it["missingPermission"].as_str().unwrap()))
        .collect();
    let keep = "get, list, watch, create, patch and update";
    assert_eq!(
        found,
        [
            ("failed", &*format!("{keep} mutatingwebhookconfigurations lucid-operator")),
            ("failed", &*format!("{keep} validatingwebhookconfigurations lucid-operator")),
            ("warning", "create and patch events.events.k8s.io"),
        ]
    );

    // Settings determine the required permissions.
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "lucid-system");
    let tell = json!({"spec": {"template": {"spec": {"containers": [{"name": "lucid-validator", "env": [
        {"name": "LUCID_CERTIFICATES", "value": "cert-manager"}, {"name": "LUCID_TLS_SECRET", "value": "other"}]}]}}}});
    deployments.patch("lucid-validator", &PatchParams::default(), &Patch::Strategic(tell)).await.unwrap();
    let needs = ["missing permission to list and watch secrets other in namespace lucid-system"];
    check(&cluster).await.assert("permissions", VALIDATOR, "failed", &needs);

    // Reports a missing permission for access reviews.
    let path = kubeconfig_for(&cluster, "auditor");
    let read =
        json!([{"apiGroups": ["apps"], "resources": ["deployments", "statefulsets"], "verbs": ["get"]}]);
    grant(&cluster, "auditor", &read);
    eventually("the missing permission is named", async || {
        let ran = run(&path, &["-o", "json"]).await;
        let is_named = ran.stdout.contains("\"missingPermission\": \"create subjectaccessreviews\"");
        if is_named { Ok(()) } else { Err(ran) }
    })
    .await;
}

#[tokio::test]
async fn validators_of_stateful_sets_are_checked() {
    let cluster = installed().await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "lucid-system");
    let before = deployments.get("lucid-validator").await.unwrap();
    make_stateful(&cluster, "Retain").await;
    check(&cluster).await.assert(
        "validator",
        "",
        "failed",
        &["StatefulSet lucid-system/lucid-validator has 0 of 2 replicas ready"],
    );
    let sets: Api<StatefulSet> = Api::namespaced(cluster.client(), "lucid-system");
    let ready = Patch::Merge(json!({"status": {"replicas": 2, "readyReplicas": 2}}));
    sets.patch_status("lucid-validator", &PatchParams::default(), &ready).await.unwrap();
    let checked = check(&cluster).await;
    checked.assert(
        "validator",
        "",
        "ok",
        &["StatefulSet lucid-system/lucid-validator has 2 of 2 replicas ready"],
    );
    checked.assert("permissions", VALIDATOR, "ok", &[]);

    // Two workloads that write one registration conflict, unless one has no pods.
    let mut beside = json!({"metadata": {"name": "lucid-validator", "labels": before.metadata.labels}, "spec": before.spec});
    deployments.create(&Default::default(), &serde_json::from_value(beside.take()).unwrap()).await.unwrap();
    deployments.patch_status("lucid-validator", &PatchParams::default(), &ready).await.unwrap();
    check(&cluster).await.assert("validator", "", "warning", &["a StatefulSet of that name exists as well"]);
    let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
    deployments.patch("lucid-validator", &PatchParams::default(), &none).await.unwrap();
    check(&cluster).await.assert("validator", "", "ok", &["StatefulSet lucid-system/lucid-validator has 2"]);
}
