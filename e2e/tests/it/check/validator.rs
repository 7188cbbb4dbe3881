//! Validation by operator or validator, and its registration.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use lucid_e2e::Operator;
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use super::{Checked, check};
use crate::backstop::printed;
use crate::cli::{apply, apply_manifest};
use crate::common::{operator, prepare};

const PODS: &str = "validate.lucid.computing";
const WORKLOADS: &str = "workloads.lucid.computing";

/// Changes the second webhook of the configuration, the one for workloads.
async fn change(cluster: &Cluster, configuration: &str, operation: &str, field: &str, value: Value) {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    let found = api.get(configuration).await.unwrap();
    assert_eq!(found.webhooks.unwrap()[1].name, WORKLOADS);
    let patch = json!([{"op": operation, "path": format!("/webhooks/1{field}"), "value": value}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
    api.patch(configuration, &PatchParams::default(), &patch).await.unwrap();
}

fn has(checked: &Checked, check: &str) -> bool {
    checked.report["checks"].as_array().unwrap().iter().any(|it| it["check"] == check)
}

pub(super) async fn the_webhook_for_workloads(cluster: &Cluster, running: &mut Operator) {
    let checked = check(cluster).await;
    // Its failurePolicy Ignore is correct: no pod bypasses validation by it.
    checked.assert("registration", WORKLOADS, "ok", &["lucid-operator is as configured"]);
    checked.assert("certificate", WORKLOADS, "ok", &["1 of 1 servers"]);
    assert!(!has(&checked, "backstop") && !has(&checked, "validator"), "{:#}", checked.report);

    // Nothing restores the registration.
    running.kill();
    change(cluster, "lucid-operator", "replace", "/failurePolicy", json!("Fail")).await;
    let checked = check(cluster).await;
    let difference = "failurePolicy is \\\"Fail\\\", should be \\\"Ignore\\\"";
    checked.assert(
        "registration",
        WORKLOADS,
        "failed",
        &[difference, "start lucid-operator, which restores it"],
    );
    checked.assert("registration", PODS, "ok", &[]);
    change(cluster, "lucid-operator", "remove", "", Value::Null).await;
    let checked = check(cluster).await;
    checked.assert("registration", WORKLOADS, "warning", &["not registered", "start lucid-operator"]);
}

#[tokio::test]
async fn a_validators_registration_is_compared_with_its_settings() {
    let cluster = Cluster::builder().start().await.unwrap();
    crate::manifests::install(&cluster, &[]);
    let cluster = prepare(cluster).await;
    apply_manifest(&cluster, "validator.yaml");
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    definitions.delete("auditors.lucid.computing", &DeleteParams::default()).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "lucid-system");
    let tell = async |name: &str, variables: &[(&str, &str)]| {
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let container = json!({"name": name, "env": variables});
        let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        deployments.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    };
    let status = json!({"status": {"replicas": 2, "readyReplicas": 2}});
    for name in ["lucid-operator", "lucid-validator"] {
        let status = Patch::Merge(&status);
        deployments.patch_status(name, &PatchParams::default(), &status).await.unwrap();
    }
    let running = operator(&cluster, |it| it.env("LUCID_VALIDATE", "false")).await;
    let validator = Operator::validator(&cluster).env("LUCID_VALIDATION_FAILURE_POLICY", "Ignore");
    let mut validator = validator.start().await.unwrap();
    let url = running.url();
    tell(
        "lucid-operator",
        &[("LUCID_WEBHOOK_URL", &url), ("LUCID_VALIDATE", "false"), ("LUCID_ALLOW_SKIP", "true")],
    )
    .await;
    let url = validator.url();
    tell("lucid-validator", &[("LUCID_WEBHOOK_URL", &url), ("LUCID_VALIDATION_FAILURE_POLICY", "Ignore")])
        .await;

    let (pods, workloads) = (format!("{PODS} of lucid-validator"), format!("{WORKLOADS} of lucid-validator"));
    let checked = check(&cluster).await;
    assert_eq!(checked.status, Some(0), "{:#}", checked.report);
    checked.assert("validator", "", "ok", &["Deployment lucid-system/lucid-validator has 2 of 2 replicas"]);
    let ignores = "failurePolicy of lucid-validator is Ignore";
    checked.assert("registration", &pods, "warning", &[ignores, "LUCID_VALIDATION_FAILURE_POLICY=Fail"]);
    checked.assert("registration", &workloads, "ok", &["lucid-validator is as configured"]);
    for webhook in [&pods, &workloads] {
        checked.assert("certificate", webhook, "ok", &["1 of 1 servers"]);
    }
    checked.assert("backstop", "", "warning", &["there is no ValidatingAdmissionPolicy lucid-backstop"]);

    // The backstop depends on the validating program.
    apply(&cluster, &printed(&["--strict-notarization", "--allow-skip"]));
    check(&cluster).await.assert("backstop", "", "warning", &["another configuration: strict;"]);
    let strict = ("LUCID_STRICT_NOTARIZATION", "true");
    tell("lucid-validator", &[strict, ("LUCID_VALIDATION_FAILURE_POLICY", "Fail")]).await;
    let checked = check(&cluster).await;
    checked.assert("backstop", "", "ok", &[]);
    // The settings have changed since.
    let difference = "failurePolicy is \\\"Ignore\\\", should be \\\"Fail\\\"";
    checked.assert(
        "registration",
        &pods,
        "failed",
        &[difference, "start lucid-validator, which restores it"],
    );
    checked.assert("registration", &workloads, "ok", &[]);

    // Without the registration, the advice is to start the validator.
    validator.kill();
    let api: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    api.delete("lucid-validator", &DeleteParams::default()).await.unwrap();
    let checked = check(&cluster).await;
    checked.assert("registration", PODS, "failed", &["no pod is validated", "start lucid-validator"]);
    checked.assert("registration", WORKLOADS, "warning", &["start lucid-validator"]);
    // Or the operator, if it is configured to validate.
    tell("lucid-operator", &[("LUCID_VALIDATE", "true")]).await;
    let checked = check(&cluster).await;
    checked.assert("registration", PODS, "failed", &["no pod is validated", "start lucid-operator"]);
    // The webhook for workloads is not missing if it is disabled.
    let container = json!({"name": "lucid-operator", "args": ["run", "--validate-workloads=false"]});
    let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    deployments.patch("lucid-operator", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    let checked = check(&cluster).await;
    checked.assert("registration", PODS, "failed", &[]);
    let checks = checked.report["checks"].as_array().unwrap();
    assert!(!checks.iter().any(|it| it["object"] == WORKLOADS), "{:#}", checked.report);
    drop(running);
}
