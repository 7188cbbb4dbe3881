//! `/validate` in a separate process.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use lucid_e2e::{Answer, Operator, Verifier, eventually};
use serde_json::json;

use crate::common::{
    GUARDRAILS, cluster, create, get, has_chain, operator, pod, secured, until, validating_webhooks,
};

#[tokio::test]
async fn operator_and_validator_admit_and_deny_pods() {
    let cluster = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let verifier = Verifier::start(folder.path(), &[]).await.unwrap();
    // An operator with both webhooks leaves its registration behind.
    let mut before = operator(&cluster, |operator| operator.named("lucid-operator-before")).await;
    assert!(before.terminate().expect("it does not end").success());
    let registrations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    assert!(registrations.get_opt("lucid-operator").await.unwrap().is_some());

    let validator = Operator::validator(&cluster)
        .env("LUCID_VERIFIER_URL", verifier.url())
        .env("LUCID_ADMISSION_MODE", "enforce")
        .env("LUCID_TIER_LABEL", "")
        .env("LUCID_STRICT_NOTARIZATION", "true");
    let mut validator = validator.start().await.unwrap();
    let _operator = operator(&cluster, |operator| operator.env("LUCID_VALIDATE", "false")).await;
    eventually("the operator's registration is removed", async || {
        registrations.get_opt("lucid-operator").await.unwrap().is_none()
    })
    .await;
    let found = validating_webhooks(&cluster, "lucid-validator").await;
    assert_eq!(found[0].failure_policy.as_deref(), Some("Fail"));

    // Denies the auditors that the operator injects, and admits a pod without any.
    let refused =
        |response: &Answer| response.refusal().contains("validate.lucid.computing") && response.status == 403;
    until(&cluster, "shop", |name| secured(&format!("refused-{name}")), refused).await;
    let plain = pod("plain", json!({}), json!({"lucid.computing/skip-audit": "true"}));
    create(&cluster, "shop", &plain).await.stored().unwrap();

    // SIGTERM: it reports not ready, and ends.
    assert_eq!(get(&validator, "/healthz").await.0, 200);
    let (_, metrics) = get(&validator, "/metrics").await;
    assert!(
        metrics.contains(r#"webhook="validate.lucid.computing",operation="CREATE",outcome="denied"}"#),
        "{metrics}"
    );
    assert_eq!(get(&validator, "/readyz").await.0, 200);
    assert!(validator.terminate().expect("it does not end").success());

    // Pods are not admitted without validation while it is down, and a lenient one admits them with a warning.
    let response = create(&cluster, "shop", &secured("away")).await;
    assert!(
        response.refusal().contains("failed calling webhook \"validate.lucid.computing\""),
        "{response:?}"
    );
    let _lenient = Operator::validator(&cluster).named("lucid-validator-2").start().await.unwrap();
    let warned = |response: &Answer| !response.warnings.is_empty() && has_chain(response, GUARDRAILS);
    until(&cluster, "shop", |name| secured(&format!("warned-{name}")), warned).await;
}

#[tokio::test]
async fn validators_take_certificates_from_cert_manager() {
    let cluster = cluster().await;
    let validator = Operator::validator(&cluster).env("LUCID_CERTIFICATES", "cert-manager").spawn().unwrap();
    let registrations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    // The registration is created before it is filled.
    let found = eventually("a registration", async || {
        let found = registrations.get_opt("lucid-validator").await.unwrap();
        found.filter(|found| found.webhooks.is_some()).ok_or("nothing is registered")
    })
    .await;
    assert_eq!(found.metadata.labels.unwrap()["admissions.enforcer/disabled"], "true");
    let annotations = found.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations["cert-manager.io/inject-ca-from"], "lucid-system/lucid-validator-cert");
    assert_eq!(get(&validator, "/readyz").await.1, "not ready: certificates\n");
}
