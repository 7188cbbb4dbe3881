//! The manifests of deploy/, and a registration by Service as in a cluster.

use std::process::Command;

use crate::common::{chain, create, expected, operator, prepare, secured, stored};
use lucid_e2e::program;
use lucid_testbed::{Binaries, Cluster, Component, can_use_namespaces};

const GUARDRAILS: &[(&str, i32, &str)] = &[
    ("lucid-guardrails-auditor", 8090, "http://localhost:8093"),
    ("lucid-guardrails-auditor-2", 8093, "http://localhost:5000"),
];

fn apply(cluster: &Cluster, manifest: &str) {
    let binaries = Binaries::from_env().unwrap();
    binaries.ensure(&[Component::Kubectl]).unwrap();
    let output = Command::new(binaries.path(Component::Kubectl))
        .args(["apply", "--server-side", "--filename"])
        .arg(format!("{}/../deploy/{manifest}", env!("CARGO_MANIFEST_DIR")))
        .env("KUBECONFIG", cluster.kubeconfig_path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{manifest}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn the_rights_in_the_manifests_are_enough() {
    let cluster = Cluster::builder().start().await.unwrap();
    apply(&cluster, "lucid.yaml");
    apply(&cluster, "verifier.yaml");
    let cluster = prepare(cluster).await;
    let user = "system:serviceaccount:lucid-system:lucid-operator";
    let kubeconfig = cluster.folder().join("lucid-operator.kubeconfig");
    let text = cluster.kubeconfig_for(user, Some("system:serviceaccounts")).unwrap();
    std::fs::write(&kubeconfig, text).unwrap();
    let mut operator = operator(&cluster, |operator| operator.kubeconfig(kubeconfig)).await;
    create(&cluster, "shop", &secured("web")).await.stored().unwrap();
    assert_eq!(chain(&stored(&cluster, "shop", "web").await), expected(GUARDRAILS));
    operator.restart().await.unwrap();
    let log = std::fs::read_to_string(operator.log()).unwrap();
    assert!(!log.contains("forbidden") && !log.contains("ERROR"), "{log}");
}

#[tokio::test]
async fn a_registration_by_service_reaches_the_operator_under_its_service_name() {
    if !can_use_namespaces() {
        eprintln!("skipped: needs root and network namespaces");
        return;
    }
    let cluster = prepare(Cluster::builder().webhooks_by_service().start().await.unwrap()).await;
    let operator = operator(&cluster, |operator| operator.by_service()).await;
    cluster.expose_service("lucid-system", "lucid-operator-webhook", operator.port()).await.unwrap();
    let injected = |answer: &lucid_e2e::Answer| {
        answer.result.as_ref().is_ok_and(|pod| chain(pod) == expected(GUARDRAILS))
    };
    crate::common::until(&cluster, "shop", secured, injected).await;
}

#[test]
fn a_wrong_setting_names_the_variable_and_what_is_accepted() {
    let program = program("lucid-operator").unwrap();
    for (variable, value, accepted) in [
        ("LUCID_FAILURE_POLICY", "Maybe", "Fail, Ignore"),
        ("LUCID_LISTEN", "8443", "0.0.0.0:8443"),
        ("LUCID_WEBHOOK_URL", "http://127.0.0.1", "accepted is https://HOST"),
        ("LUCID_WEBHOOK_TIMEOUT_SECONDS", "31", "1..=30"),
        ("LUCID_AUDIT_MODE", "loud", "enforce"),
        ("LUCID_TARGET_PORT", "0", "1 to 65535"),
        ("LUCID_ALLOW_SKIP", "yes", "true, false"),
        ("LUCID_STRICT_NOTARIZATION", "true", "LUCID_VERIFIER_URL"),
        ("LUCID_VERIFIER_URL", "ftp://example.com", "http"),
        ("LUCID_LOG", "lucid=loud", "accepted are a level"),
        ("LUCID_LOG_FORMAT", "xml", "text, json"),
    ] {
        let output = Command::new(&program).arg("run").env(variable, value).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{variable}={value} is taken");
        for part in [variable, accepted] {
            assert!(message.contains(part), "{variable}={value}: {part:?} is not in {message}");
        }
    }
}

#[test]
fn help_explains_every_option_with_its_variable() {
    let output = Command::new(program("lucid-operator").unwrap()).args(["run", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let options = help.lines().filter(|line| line.starts_with("      --")).count();
    assert!(options >= 15, "{help}");
    assert_eq!(help.matches("[env: LUCID_").count(), options, "an option has no variable:\n{help}");
}
