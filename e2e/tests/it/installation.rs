//! The manifests of deploy/, with registration by Service as in production.

use std::process::{Command, Stdio};

use crate::auditor;
use crate::common::{chain, create, expected, operator, prepare, secured, stored};
use crate::notices::{events_about, make};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::Patch;
use kube::{Api, Resource};
use lucid_e2e::{API_SERVER, Operator, OperatorBuilder, program};
use lucid_testbed::{Cluster, can_use_namespaces};
use serde_json::json;

const GUARDRAILS: &[(&str, i32, &str)] = &[
    ("lucid-guardrails-auditor", 8090, "http://localhost:8093"),
    ("lucid-guardrails-auditor-2", 8093, "http://localhost:5000"),
];

/// Applies a file of deploy/, except for the binding of the policy that restricts accounts to their own Services: programs
/// outside the cluster register by URL.
pub(crate) fn apply(cluster: &Cluster, manifest: &str) {
    let text =
        std::fs::read_to_string(format!("{}/../deploy/{manifest}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let documents =
        text.split("\n---\n").filter(|it| !it.contains("\nkind: ValidatingAdmissionPolicyBinding\n"));
    let documents: Vec<_> = documents.collect();
    let output =
        cluster.kubectl(&["apply", "--server-side", "--filename", "-"], &documents.join("\n---\n")).unwrap();
    assert!(output.status.success(), "{manifest}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn the_permissions_in_the_manifests_are_enough() {
    let cluster = Cluster::builder().webhook_client(API_SERVER).start().await.unwrap();
    apply(&cluster, "lucid.yaml");
    apply(&cluster, "verifier.yaml");
    let cluster = prepare(cluster).await;
    let kubeconfig = kubeconfig_of(&cluster, "lucid-operator");
    let mut operator = operator(&cluster, |operator| operator.kubeconfig(kubeconfig).authenticated()).await;
    create(&cluster, "shop", &secured("web")).await.stored().unwrap();
    assert_eq!(chain(&stored(&cluster, "shop", "web").await), expected(GUARDRAILS));
    auditor::define(&cluster).await;
    auditor::apply(&cluster, &auditor::auditor("pii", "r.test/pii:1"));
    auditor::until(&cluster, &["get", "auditors"], |text| text.contains("False")).await;
    // Permission to report an event on the Deployment of a ReplicaSet's pod.
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": secured("web")["spec"]});
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template});
    let deployment = json!({"metadata": {"name": "web"}, "spec": spec});
    let deployment: Deployment = make(&cluster, deployment).await;
    let owners = json!([deployment.controller_owner_ref(&())]);
    let replica_set = json!({"metadata": {"name": "web-1", "ownerReferences": owners}, "spec": spec});
    let replica_set: ReplicaSet = make(&cluster, replica_set).await;
    let mut loud = secured("web-1-1");
    loud["metadata"]["annotations"] = json!({"lucid.computing/audit-mode": "loud"});
    loud["metadata"]["ownerReferences"] = json!([replica_set.controller_owner_ref(&())]);
    create(&cluster, "shop", &loud).await.stored().unwrap();
    events_about(&cluster, "Deployment", "web", |events| events.len() == 1).await;
    // Also exercises permissions used only for repairs: to change the Secret, to report that, and to restore the registration.
    // Damaged before the start, so that the operator does not end between a repair and its report.
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
    // Events about the registration, which has no namespace, are in "default".
    let events: Api<Event> = Api::namespaced(cluster.client(), "default");
    let begin = std::time::Instant::now();
    while events.list(&Default::default()).await.unwrap().items.is_empty() {
        assert!(begin.elapsed().as_secs() < 60, "nobody says who changes the registration");
        let wiped =
            json!({"webhooks": [{"name": "mutate.lucid.computing", "clientConfig": {"caBundle": "Cg=="}}]});
        registrations.patch("lucid-operator", &Default::default(), &Patch::Strategic(wiped)).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    is_never_forbidden(&operator);
}

#[tokio::test]
async fn the_permissions_in_the_manifests_are_enough_for_each_source_and_for_the_validator() {
    let cluster = Cluster::builder().start().await.unwrap();
    apply(&cluster, "lucid.yaml");
    apply(&cluster, "validator.yaml");
    apply(&cluster, "auditor-crd.yaml");
    let cluster = prepare(cluster).await;
    let user = kubeconfig_of(&cluster, "lucid-operator");

    // One certificate of our own in lucid-operator-tls. It is created, and recreated after its deletion.
    let shared =
        |operator: OperatorBuilder| operator.kubeconfig(user.clone()).env("LUCID_SHARE_CERTIFICATE", "true");
    let mut own = operator(&cluster, |it| shared(it.named("shared"))).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    let made = secrets.get("lucid-operator-tls").await.unwrap();
    let broken = json!({"stringData": {"tls.crt": "no certificate"}});
    secrets.patch("lucid-operator-tls", &Default::default(), &Patch::Merge(broken)).await.unwrap();
    own.restart().await.unwrap();
    let mended = secrets.get("lucid-operator-tls").await.unwrap();
    assert_ne!(mended.data.as_ref().unwrap()["tls.crt"].0, b"no certificate");
    assert_ne!(mended.metadata.resource_version, made.metadata.resource_version);
    is_never_forbidden(&own);
    drop(own);

    // The same Secret, managed externally: it is only read. The validator leaves the operator's registration alone.
    let user_of_validator = kubeconfig_of(&cluster, "lucid-validator");
    let validator = Operator::validator(&cluster).kubeconfig(user_of_validator).start().await.unwrap();
    let authority = secrets.get("lucid-operator-ca").await.unwrap().data.unwrap()["tls.crt"].clone();
    let ca = json!({"data": {"ca.crt": authority}});
    secrets.patch("lucid-operator-tls", &Default::default(), &Patch::Merge(ca)).await.unwrap();
    let read = operator(&cluster, |operator| {
        let operator = operator.kubeconfig(user.clone()).named("read").env("LUCID_CERTIFICATES", "secret");
        operator.env("LUCID_VALIDATE", "false")
    });
    let read = read.await;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    let begin = std::time::Instant::now();
    while validating.get_opt("lucid-operator").await.unwrap().is_some() {
        assert!(begin.elapsed().as_secs() < 15, "the registration of before is still there");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    create(&cluster, "shop", &secured("web")).await.stored().unwrap();
    // Also exercises permissions used only for repairs.
    let never = json!([{"name": "never", "expression": "false"}]);
    let damage = json!({"webhooks": [{"name": "validate.lucid.computing", "matchConditions": never}]});
    let patch = Patch::Strategic(damage);
    let damaged = validating.patch("lucid-validator", &Default::default(), &patch).await.unwrap();
    let begin = std::time::Instant::now();
    let conditions =
        |it: ValidatingWebhookConfiguration| it.webhooks.unwrap().remove(0).match_conditions.unwrap();
    let damaged = conditions(damaged);
    while conditions(validating.get("lucid-validator").await.unwrap()).len() == damaged.len() {
        assert!(begin.elapsed().as_secs() < 15, "it is not put back");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    is_never_forbidden(&read);
    is_never_forbidden(&validator);
}

/// Returns a kubeconfig with the permissions of a service account.
pub(crate) fn kubeconfig_of(cluster: &Cluster, account: &str) -> std::path::PathBuf {
    let user = format!("system:serviceaccount:lucid-system:{account}");
    let path = cluster.folder().join(format!("{account}.kubeconfig"));
    std::fs::write(&path, cluster.kubeconfig_for(&user, Some("system:serviceaccounts")).unwrap()).unwrap();
    path
}

pub(crate) fn is_never_forbidden(operator: &Operator) {
    let log = std::fs::read_to_string(operator.log()).unwrap();
    assert!(!log.contains("forbidden") && !log.contains("ERROR"), "{log}");
}

#[tokio::test]
async fn a_registration_by_service_reaches_the_operator_under_its_service_name() {
    if !can_use_namespaces() {
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
fn durations_that_contradict_each_other_are_both_named_with_their_values() {
    for name in ["lucid-operator", "lucid-validator"] {
        for (variable, value, message) in [
            (
                "LUCID_CA_LIFETIME",
                "800h",
                "LUCID_CA_LIFETIME (800h) must be longer than LUCID_CA_RENEW_BEFORE + LUCID_CERTIFICATE_LIFETIME (888h)",
            ),
            (
                "LUCID_CA_RENEW_BEFORE",
                "24h",
                "LUCID_CA_RENEW_BEFORE (24h) must be longer than LUCID_TRUST_SETTLE + 1.5 LUCID_CERTIFICATE_LIFETIME \
                 (252h1m)",
            ),
            (
                "LUCID_TRUST_SETTLE",
                "80h",
                "LUCID_CERTIFICATE_LIFETIME / 3 (56h) must be longer than LUCID_TRUST_SETTLE + 1m (80h1m)",
            ),
        ] {
            let mut command = Command::new(program(name).unwrap());
            let output = command.arg("run").env(variable, value).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{name}: {said}");
            assert!(said.contains(message), "{name}: {message:?} is not in {said}");
        }
    }
}

#[test]
fn a_wrong_setting_names_the_variable_and_what_is_accepted() {
    let program = program("lucid-operator").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    // No server listens there, and none is called.
    let nobody = r#"{"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [{"name": "u"}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}"#;
    std::fs::write(&kubeconfig, nobody).unwrap();
    for (variable, value, accepted) in [
        ("LUCID_FAILURE_POLICY", "Maybe", "Fail, Ignore"),
        ("LUCID_VALIDATION_FAILURE_POLICY", "ignore", "Fail, Ignore"),
        ("LUCID_LISTEN", "8443", "0.0.0.0:8443"),
        ("LUCID_WEBHOOK_URL", "http://127.0.0.1", "accepted is https://HOST"),
        ("LUCID_LISTEN", "192.0.2.1:8443", "failed to listen on 192.0.2.1:8443"),
        ("LUCID_ADMIN_LISTEN", "192.0.2.1:8080", "failed to listen on 192.0.2.1:8080"),
        ("LUCID_WEBHOOK_URL", "https://host./", "accepted is https://HOST"),
        ("LUCID_WEBHOOK_TIMEOUT_SECONDS", "1", "from 2 to 30"),
        ("LUCID_WEBHOOK_TIMEOUT_SECONDS", "soon", "from 2 to 30"),
        ("LUCID_LAME_DUCK_SECONDS", "-1", "from 0 to 300"),
        ("LUCID_NAMESPACE", "Bad_Name", "accepted are 1 to 63 of a-z"),
        ("LUCID_CA_SECRET", "A/B", "accepted are up to 253"),
        ("LUCID_DECISION_LOG", "/proc/nonexistent", "failed to make /proc/nonexistent"),
        ("LUCID_DECISION_LOG", "/proc/version", "/proc/version is no directory"),
        ("LUCID_DECISION_LOG_SYNC", "never", "always, batch, interval"),
        ("LUCID_DECISION_LOG_ON_FAILURE", "ignore", "deny and serve-and-alarm"),
        ("LUCID_DECISION_LOG_ORIGIN", "a b", "a name without spaces"),
        ("LUCID_DECISION_LOG_SEGMENT_BYTES", "1", "from 65536"),
        ("LUCID_DECISION_LOG_WITNESSES", "nobody", "NAME+ID+KEY"),
        ("LUCID_DECISION_RING", "-1", "from 0 to 1000000"),
        ("LUCID_CHAIN", "", "auditors' names"),
        ("LUCID_CHAIN", "injection,,toxicity", "auditors' names"),
        ("LUCID_AUDIT_MODE", "loud", "enforce"),
        ("LUCID_TARGET_PORT", "0", "1 to 65535"),
        ("LUCID_ALLOW_SKIP", "yes", "true, false"),
        ("LUCID_VALIDATE_WORKLOADS", "maybe", "true, false"),
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
    for name in ["lucid-operator", "lucid-validator"] {
        let output = Command::new(program(name).unwrap()).args(["run", "--help"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let options = help.lines().filter(|line| line.starts_with("      --")).count();
        assert!(options >= 15, "{help}");
        assert_eq!(help.matches("[env: LUCID_").count(), options, "an option has no variable:\n{help}");
    }
}

#[test]
fn every_program_takes_the_options_of_logging_before_and_behind_its_command() {
    for (name, command, good) in [
        ("lucid", &["explain", "-f", "-"][..], true),
        ("lucid", &["image", "parse"], true),
        // These have their own --log.
        ("lucid", &["audit", "tail", "/nonexistent"], false),
        ("lucid", &["audit", "proof", "1", "--log", "/nonexistent"], false),
        ("lucid-verifier", &["list", "--registry", "/nonexistent"], false),
    ] {
        let run = |filter: &str, is_before: bool| {
            let filter = ["--log-filter", filter, "--log-format", "json"];
            let mut words = [command, &filter[..]];
            if is_before {
                words.reverse();
            }
            Command::new(program(name).unwrap()).args(words.concat()).stdin(Stdio::null()).output().unwrap()
        };
        for is_before in [true, false] {
            let output = run("debug,lucid=trace", is_before);
            assert_eq!(output.status.code(), Some(i32::from(!good)), "{name} {command:?}: {output:?}");
            let output = run("loud", is_before);
            assert_eq!(output.status.code(), Some(2), "{name} {command:?}: {output:?}");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("--log-filter") && said.contains("accepted are a level"), "{said}");
        }
    }
}
