//! Control planes with settings other than the defaults.

use lucid_e2e::Answer;
use lucid_testbed::Cluster;

use crate::backstop::{checked, printed};
use crate::cli::{apply, apply_manifest, kubeconfig_of};
use crate::common::{GUARDRAILS, dry_run, operator, prepare, secured, until, until_injected};
use crate::installation::is_never_forbidden;

/// Denied by the validating webhook, because `LUCID_ADMISSION_MODE=enforce` requires a tier by default.
fn is_denied(response: &Answer) -> bool {
    response.status == 403 && response.refusal().contains("webhook \"validate.lucid.computing\" denied")
}

#[tokio::test]
async fn webhooks_inject_and_deny_without_validating_admission_policies() {
    let builder = Cluster::builder();
    let args = ["--disable-admission-plugins=ValidatingAdmissionPolicy"];
    let cluster = prepare(builder.api_server_args(args).start().await.unwrap()).await;
    apply_manifest(&cluster, "lucid.yaml");
    apply(&cluster, &printed(&[]));
    let kubeconfig = kubeconfig_of(&cluster, "lucid-operator");
    let mut operator =
        operator(&cluster, |operator| operator.kubeconfig(kubeconfig).env("LUCID_FAILURE_POLICY", "Ignore"))
            .await;
    until_injected(&cluster, "shop", "web", GUARDRAILS).await;
    is_never_forbidden(&operator);
    // The API server does not tell which admission plugins it runs.
    checked(&cluster, "ok", "if the API server runs the admission plugin").await;

    operator.kill();
    let response = dry_run(&cluster, "shop", &secured("down")).await;
    assert!(
        response.refusal().contains("failed calling webhook \"validate.lucid.computing\""),
        "{response:?}"
    );
    drop(operator);
    let _operator = crate::common::operator(&cluster, |it| it.env("LUCID_ADMISSION_MODE", "enforce")).await;
    until(&cluster, "shop", |name| secured(&format!("denied-{name}")), is_denied).await;
}
