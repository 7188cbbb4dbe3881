//! The manifests of deploy/, with registration by Service as in production.

use crate::auditor;
use crate::cli::{apply, apply_manifest, kubeconfig_of, kubectl_until, run, run_with};
use crate::common::{
    GUARDRAILS, chain, create, create_object, expected, has_chain, log, operator, prepare, secured, stored,
    until,
};
use crate::notices::events_about;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::Patch;
use kube::{Api, Resource};
use lucid_e2e::{API_SERVER, ClusterExt as _, Operator, can_use_namespaces, eventually};
use lucid_testbed::Cluster;
use serde_json::json;

#[tokio::test]
async fn permissions_of_the_manifests_are_sufficient() {
    let cluster = Cluster::builder().webhook_client(API_SERVER).start().await.unwrap();
    apply_manifest(&cluster, "lucid.yaml");
    apply_manifest(&cluster, "verifier.yaml");
    let cluster = prepare(cluster).await;
    let kubeconfig = kubeconfig_of(&cluster, "lucid-operator");
    let mut operator = operator(&cluster, |operator| operator.kubeconfig(kubeconfig).authenticated()).await;
    create(&cluster, "shop", &secured("web")).await.stored().unwrap();
    assert_eq!(chain(&stored(&cluster, "shop", "web").await), expected(GUARDRAILS));
    auditor::define(&cluster).await;
    apply(&cluster, &[auditor::auditor("topics", "r.test/topics:1")]);
    kubectl_until(&cluster, &["get", "auditors"], |text| text.contains("False")).await;
    // Permission to report an event on the Deployment of a ReplicaSet's pod.
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": secured("web")["spec"]});
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template});
    let deployment = json!({"metadata": {"name": "web"}, "spec": spec});
    let deployment: Deployment = create_object(&cluster, deployment).await;
    let owners = json!([deployment.controller_owner_ref(&())]);
    let replica_set = json!({"metadata": {"name": "web-1", "ownerReferences": owners}, "spec": spec});
    let replica_set: ReplicaSet = create_object(&cluster, replica_set).await;
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
    until(&cluster, "shop", secured, |response| response.status == 201).await;
    let events: Api<Event> = Api::namespaced(cluster.client(), "lucid-system");
    eventually("the replaced authority is reported", async || {
        !events.list(&Default::default()).await.unwrap().items.is_empty()
    })
    .await;
    let registered = registrations.get("lucid-operator").await.unwrap();
    assert_eq!(registered.metadata.labels.unwrap()["admissions.enforcer/disabled"], "true");
    assert_eq!(registered.webhooks.unwrap()[0].match_conditions, None, "it was put back");
    // Events about the registration, which has no namespace, are in "default".
    let events: Api<Event> = Api::namespaced(cluster.client(), "default");
    let wiped =
        json!({"webhooks": [{"name": "mutate.lucid.computing", "clientConfig": {"caBundle": "Cg=="}}]});
    let wiped = Patch::Strategic(wiped);
    eventually("changes of the registration are reported", async || {
        registrations.patch("lucid-operator", &Default::default(), &wiped).await.unwrap();
        !events.list(&Default::default()).await.unwrap().items.is_empty()
    })
    .await;
    is_never_forbidden(&operator);
}

pub(crate) fn is_never_forbidden(operator: &Operator) {
    let log = log(operator);
    assert!(!log.contains("forbidden") && !log.contains("ERROR"), "{log}");
}

#[tokio::test]
async fn the_registered_service_reaches_the_operator() {
    if !can_use_namespaces() {
        return;
    }
    let cluster = prepare(Cluster::builder().webhooks_by_service().start().await.unwrap()).await;
    let operator = operator(&cluster, |operator| operator.by_service()).await;
    cluster.expose_service("lucid-system", "lucid-operator-webhook", &[operator.port()]).await.unwrap();
    until(&cluster, "shop", secured, |response| has_chain(response, GUARDRAILS)).await;
}

#[test]
fn contradictory_durations_are_named_with_their_values() {
    for name in ["lucid-operator", "lucid-validator"] {
        let ran = run(name, &["run", "--trust-settle", "80h"]);
        assert_eq!(ran.status, Some(1), "{name}: {ran:?}");
        let message = "LUCID_CERTIFICATE_LIFETIME / 3 (56h) must be longer than --trust-settle + 1m (80h1m)";
        assert!(ran.stderr.contains(message), "{name}: {message:?} is not in {ran:?}");
    }
}

#[test]
fn invalid_settings_fail_with_their_name_and_expected_values() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    // No server listens there, and none is called.
    let unreachable = r#"{"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [{"name": "u"}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}"#;
    std::fs::write(&kubeconfig, unreachable).unwrap();
    let kubeconfig = kubeconfig.to_str().unwrap();
    for (setting, value, expected) in [
        ("LUCID_FAILURE_POLICY", "Maybe", "Fail, Ignore"),
        ("LUCID_VALIDATION_FAILURE_POLICY", "ignore", "Fail, Ignore"),
        ("LUCID_LISTEN", "8443", "0.0.0.0:8443"),
        ("LUCID_WEBHOOK_URL", "http://127.0.0.1", "expected https://HOST"),
        ("LUCID_LISTEN", "192.0.2.1:8443", "failed to listen on 192.0.2.1:8443"),
        ("LUCID_ADMIN_LISTEN", "192.0.2.1:8080", "failed to listen on 192.0.2.1:8080"),
        ("LUCID_WEBHOOK_URL", "https://host./", "expected https://HOST"),
        ("--webhook-timeout-seconds", "1", "from 2 to 30"),
        ("--webhook-timeout-seconds", "soon", "from 2 to 30"),
        ("--lame-duck-seconds", "-1", "from 0 to 300"),
        ("LUCID_NAMESPACE", "Bad_Name", "expected 1 to 63 of a-z"),
        ("--ca-secret", "A/B", "expected up to 253"),
        ("LUCID_DECISION_LOG", "/proc/nonexistent", "failed to make /proc/nonexistent"),
        ("LUCID_DECISION_LOG", "/proc/version", "/proc/version is not a directory"),
        ("LUCID_DECISION_LOG_ON_FAILURE", "ignore", "deny or serve-and-alarm"),
        ("--decision-log-origin", "a b", "a name without spaces"),
        ("--decision-log-segment-bytes", "1", "from 65536"),
        ("--decision-log-witnesses", "invalid", "NAME+ID+KEY"),
        ("LUCID_CHAIN", "", "auditors' names"),
        ("LUCID_CHAIN", "injection,,toxicity", "auditors' names"),
        ("LUCID_AUDIT_MODE", "loud", "enforce"),
        ("LUCID_TARGET_PORT", "0", "1 to 65535"),
        ("LUCID_ALLOW_SKIP", "yes", "true, false"),
        ("--validate-workloads", "maybe", "true, false"),
        ("LUCID_STRICT_NOTARIZATION", "true", "LUCID_VERIFIER_URL"),
        ("LUCID_VERIFIER_URL", "ftp://example.com", "http"),
        ("LUCID_LOG", "lucid=loud", "expected a level"),
        ("LUCID_LOG", "INF", "expected a level"),
        ("LUCID_LOG_FORMAT", "xml", "text, json"),
    ] {
        let mut environment = vec![("KUBECONFIG", kubeconfig), ("LUCID_ADMIN_LISTEN", "127.0.0.1:0")];
        let flag = format!("{setting}={value}");
        let mut arguments = vec!["run"];
        match setting.starts_with("--") {
            true => arguments.push(&flag),
            false => environment.push((setting, value)),
        }
        let ran = run_with("lucid-operator", &arguments, &environment);
        assert_ne!(ran.status, Some(0), "{flag} is accepted");
        for part in [setting, expected] {
            assert!(ran.stderr.contains(part), "{flag}: {part:?} is not in {ran:?}");
        }
    }
}

#[test]
fn passwords_in_urls_are_redacted() {
    let url = ("LUCID_VERIFIER_URL", "http://bob:s3cret@127.0.0.1:1");
    let message = run_with("lucid-operator", &["run"], &[url]).stderr;
    assert!(message.contains("LUCID_VERIFIER_URL") && !message.contains("s3cret"), "{message}");
}

#[test]
fn help_explains_every_option() {
    for name in ["lucid-operator", "lucid-validator"] {
        let help = run(name, &["run", "--help"]).printed();
        let options = help.lines().filter(|line| line.starts_with("      --")).count();
        assert!(options >= 15, "{help}");
        let variables = help.matches("[env: LUCID_").count();
        assert_eq!(help.matches("[env: ").count(), variables, "a variable has another prefix:\n{help}");
    }
}

#[test]
fn logging_options_go_before_and_after_the_command() {
    for (name, command, good) in [
        ("lucid", &["explain", "-f", "-"][..], true),
        ("lucid", &["image", "parse"], true),
        // These have their own --log.
        ("lucid", &["audit", "tail", "/nonexistent"], false),
        ("lucid", &["audit", "proof", "1", "--log", "/nonexistent"], false),
        ("lucid-verifier", &["list", "--registry", "/nonexistent"], false),
    ] {
        let run_filtered = |filter: &str, is_before: bool| {
            let filter = ["--log-filter", filter, "--log-format", "json"];
            let mut words = [command, &filter[..]];
            if is_before {
                words.reverse();
            }
            run(name, &words.concat())
        };
        for is_before in [true, false] {
            let ran = run_filtered("debug,lucid=trace", is_before);
            assert_eq!(ran.status, Some(i32::from(!good)), "{name} {command:?}: {ran:?}");
            let ran = run_filtered("loud", is_before);
            assert_eq!(ran.status, Some(2), "{name} {command:?}: {ran:?}");
            let said = ran.stderr;
            assert!(said.contains("--log-filter") && said.contains("expected a level"), "{said}");
        }
    }
}
