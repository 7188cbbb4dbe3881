//! The manifests of deploy/, and a registration by Service as in a cluster.

use std::process::Command;

use crate::common::{chain, create, expected, operator, prepare, secured, stored};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::Patch;
use lucid_e2e::program;
use lucid_testbed::{Binaries, Cluster, Component, can_use_namespaces};
use serde_json::json;

const GUARDRAILS: &[(&str, i32, &str)] = &[
    ("lucid-guardrails-auditor", 8090, "http://localhost:8093"),
    ("lucid-guardrails-auditor-2", 8093, "http://localhost:5000"),
];

pub(crate) fn apply(cluster: &Cluster, manifest: &str) {
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
    // Also those that only a repair needs: to change the Secret, to report it, to put the registration back.
    // Done at start, so that the operator does not end between a repair and its report.
    operator.kill();
    let broken = json!({"stringData": {"tls.crt": "no certificate"}});
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    secrets.patch("lucid-operator-ca", &Default::default(), &Patch::Merge(broken)).await.unwrap();
    let never = json!([{"name": "never", "expression": "false"}]);
    let selector = json!({"webhooks": [{"name": "mutate.lucid.computing", "matchConditions": never}]});
    let registrations: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    registrations.patch("lucid-operator", &Default::default(), &Patch::Strategic(selector)).await.unwrap();
    operator.restart().await.unwrap();
    crate::common::until(&cluster, "shop", secured, |answer| answer.status == 201).await;
    let events: Api<Event> = Api::namespaced(cluster.client(), "lucid-system");
    let begin = std::time::Instant::now();
    while events.list(&Default::default()).await.unwrap().items.is_empty() {
        assert!(begin.elapsed().as_secs() < 15, "the replaced authority was not reported");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let registered = registrations.get("lucid-operator").await.unwrap();
    assert_eq!(registered.webhooks.unwrap()[0].match_conditions, None, "it was put back");
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
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    // Nobody is there; but it is never asked.
    let nobody = r#"{"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [{"name": "u"}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}"#;
    std::fs::write(&kubeconfig, nobody).unwrap();
    for (variable, value, accepted) in [
        ("LUCID_FAILURE_POLICY", "Maybe", "Fail, Ignore"),
        ("LUCID_LISTEN", "8443", "0.0.0.0:8443"),
        ("LUCID_WEBHOOK_URL", "http://127.0.0.1", "accepted is https://HOST"),
        ("LUCID_LISTEN", "192.0.2.1:8443", "failed to listen on 192.0.2.1:8443"),
        ("LUCID_ADMIN_LISTEN", "192.0.2.1:8080", "failed to listen on 192.0.2.1:8080"),
        ("LUCID_WEBHOOK_URL", "https://host./", "accepted is https://HOST"),
        ("LUCID_WEBHOOK_TIMEOUT_SECONDS", "1", "from 2 to 30"),
        ("LUCID_WEBHOOK_TIMEOUT_SECONDS", "soon", "from 2 to 30"),
        ("LUCID_LAME_DUCK_SECONDS", "-1", "from 0 to 300"),
        ("LUCID_VERIFIER_TIMEOUT_MS", "0", "from 1 to 30000"),
        ("LUCID_NAMESPACE", "Bad_Name", "accepted are 1 to 63 of a-z"),
        ("LUCID_CA_SECRET", "A/B", "accepted are up to 253"),
        ("LUCID_DECISION_LOG", "/nonexistent/decisions", "failed to open /nonexistent/decisions"),
        ("LUCID_CHAIN", "", "auditors' names"),
        ("LUCID_CHAIN", "injection,,toxicity", "auditors' names"),
        ("LUCID_AUDIT_MODE", "loud", "enforce"),
        ("LUCID_TARGET_PORT", "0", "1 to 65535"),
        ("LUCID_ALLOW_SKIP", "yes", "true, false"),
        ("LUCID_STRICT_NOTARIZATION", "true", "LUCID_VERIFIER_URL"),
        ("LUCID_VERIFIER_URL", "ftp://example.com", "http"),
        ("LUCID_LOG", "lucid=loud", "accepted are a level"),
        ("LUCID_LOG", "INF", "accepted are a level"),
        ("LUCID_LOG_FORMAT", "xml", "text, json"),
    ] {
        let mut command = Command::new(&program);
        command
            .arg("run")
            .env("KUBECONFIG", &kubeconfig)
            .env("LUCID_ADMIN_LISTEN", "127.0.0.1:0")
            .env(variable, value);
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{variable}={value} is taken");
        for part in [variable, accepted] {
            assert!(message.contains(part), "{variable}={value}: {part:?} is not in {message}");
        }
    }
}

#[test]
fn a_password_in_a_url_is_not_repeated() {
    let mut command = Command::new(program("lucid-operator").unwrap());
    let output =
        command.arg("run").env("LUCID_VERIFIER_URL", "http://bob:s3cret@127.0.0.1:1").output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("LUCID_VERIFIER_URL") && !message.contains("s3cret"), "{message}");
}

#[test]
fn help_explains_every_option_with_its_variable() {
    let output = Command::new(program("lucid-operator").unwrap()).args(["run", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let options = help.lines().filter(|line| line.starts_with("      --")).count();
    assert!(options >= 15, "{help}");
    assert_eq!(help.matches("[env: LUCID_").count(), options, "an option has no variable:\n{help}");
}
