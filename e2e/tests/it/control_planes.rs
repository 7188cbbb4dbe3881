//! Control planes with settings other than the defaults.

use std::fs;
use std::net::Ipv6Addr;

use lucid_e2e::{Answer, ClusterExt as _, can_use_namespaces, eventually, skip};
use lucid_testbed::{Builder, Cluster};
use serde_json::json;

use crate::backstop::{checked, printed};
use crate::certificates::Authority;
use crate::cli::{apply, apply_manifest, kubeconfig_of, lucid};
use crate::common::{
    GUARDRAILS, ca_bundle, create, dry_run, get, has_chain, metric, operator, prepare, secured, secured_with,
    served, until, until_injected,
};
use crate::installation::is_never_forbidden;
use crate::traffic::Traffic;

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

/// The API server shows webhooks a client certificate, enforces Pod Security outside of one namespace, and rejects events: by
/// a policy, because the admission plugin EventRateLimit ignores those of events.k8s.io.
#[tokio::test]
async fn rejected_events_stop_neither_injection_nor_rotation() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let authority = Authority::new("webhook-clients");
    let client = authority.issue("kube-apiserver", Vec::new());
    for (name, content) in client.files(Some(&authority.certificate)) {
        fs::write(path(&name), content).unwrap();
    }
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": {
        "client-certificate": path("tls.crt"), "client-key": path("tls.key"),
    }}]});
    fs::write(path("webhooks.kubeconfig"), kubeconfig.to_string()).unwrap();
    let webhooks = |plugin: &str| {
        json!({"name": plugin, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": path("webhooks.kubeconfig"),
        }})
    };
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [
            webhooks("MutatingAdmissionWebhook"), webhooks("ValidatingAdmissionWebhook"),
            {"name": "PodSecurity", "configuration": {
                "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
                "defaults": {"enforce": "restricted"}, "exemptions": {"namespaces": ["shop"]},
            }},
        ],
    });
    fs::write(path("admission.yaml"), configuration.to_string()).unwrap();
    let argument = format!("--admission-control-config-file={}", path("admission.yaml").display());
    let builder = Cluster::builder().api_server_args([argument]);
    let cluster = prepare(builder.start().await.unwrap()).await;
    let ca = path("ca.crt").display().to_string();
    let operator = operator(&cluster, |operator| {
        operator
            .env("LUCID_CLIENT_CA", ca)
            .flag("--client-names", "kube-apiserver")
            .flag("--trust-settle", "2s")
            .flag("--webhook-timeout-seconds", "30")
    })
    .await;
    let other = dry_run(&cluster, "other", &secured("web")).await;
    assert!(other.refusal().contains("violates PodSecurity \"restricted"), "{other:?}");

    let rule = json!({
        "apiGroups": ["events.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["events"],
    });
    let api = "admissionregistration.k8s.io/v1";
    apply(
        &cluster,
        &[
            json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-events"}, "spec": {
                "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}],
            }}),
            json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "no-events"},
                "spec": {"policyName": "no-events", "validationActions": ["Deny"]},
            }),
        ],
    );
    // Each pod has an event of its own.
    let loud = |name: &str| secured_with(name, json!({"lucid.computing/audit-mode": "loud"}));
    let mut number = 0;
    eventually("events are rejected", async || {
        number += 1;
        let response = create(&cluster, "shop", &loud(&format!("loud-{number}"))).await;
        assert!(has_chain(&response, GUARDRAILS), "{response:?}");
        metric(&operator, "lucid_injection_events_total{outcome=\"failed\"}").await > 0
    })
    .await;

    let leaf = served(&operator, &ca_bundle(&cluster).await).await;
    let traffic = Traffic::start(&cluster, loud, |_| Ok(()));
    lucid(&cluster, &["certs", "rotate"]).await.printed();
    eventually("the leaf is replaced", async || {
        let new = served(&operator, &ca_bundle(&cluster).await).await;
        new.is_some() && new != leaf
    })
    .await;
    traffic.end().await;
    assert_eq!(get(&operator, "/readyz").await.0, 200);
}

#[tokio::test]
async fn pods_are_injected_and_denied_with_ipv6_only() {
    if let Err(error) = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        skip(format_args!("this machine has no IPv6: {error}"));
        return;
    }
    let cluster =
        start(Cluster::builder(), &["--bind-address=::1", "--service-cluster-ip-range=fd00:10:96::/112"])
            .await;
    assert!(cluster.host_address().is_ipv6() && cluster.server().starts_with("https://[::1]:"));
    assert_eq!(families(&cluster), r#"["IPv6"]"#);
    pods_are_injected_and_denied(&cluster, false).await;
}

#[tokio::test]
async fn pods_are_injected_and_denied_with_dual_stack() {
    if !can_use_namespaces() {
        return;
    }
    let range = "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112";
    let cluster = start(Cluster::builder().webhooks_by_service(), &[range]).await;
    let patch = r#"{"spec": {"ipFamilyPolicy": "RequireDualStack"}}"#;
    let service = ["patch", "service", "lucid-operator-webhook", "-n", "lucid-system", "-p", patch];
    crate::cli::kubectl(&cluster, &service, "");
    assert_eq!(families(&cluster), r#"["IPv4","IPv6"]"#);
    pods_are_injected_and_denied(&cluster, true).await;
}

/// Starts the cluster with these arguments, and applies the manifests.
async fn start(builder: Builder, args: &[&str]) -> Cluster {
    let cluster = builder.api_server_args(args.iter().copied()).start().await.unwrap();
    apply_manifest(&cluster, "lucid.yaml");
    prepare(cluster).await
}

/// IP families of the Service of the webhooks.
fn families(cluster: &Cluster) -> String {
    let service = ["get", "service", "lucid-operator-webhook", "-n", "lucid-system"];
    crate::cli::kubectl(cluster, &[&service[..], &["-o", "jsonpath={.spec.ipFamilies}"]].concat(), "")
}

async fn pods_are_injected_and_denied(cluster: &Cluster, by_service: bool) {
    let kubeconfig = kubeconfig_of(cluster, "lucid-operator");
    let settings = |operator: lucid_e2e::OperatorBuilder| operator.kubeconfig(kubeconfig.clone());
    let settings = |operator| if by_service { settings(operator).by_service() } else { settings(operator) };
    let serve = async |operator: &lucid_e2e::Operator| {
        if by_service {
            let ports = [operator.port()];
            cluster.expose_service("lucid-system", "lucid-operator-webhook", &ports).await.unwrap();
        }
    };
    let injecting = operator(cluster, settings).await;
    serve(&injecting).await;
    until_injected(cluster, "shop", "web", GUARDRAILS).await;
    is_never_forbidden(&injecting);
    drop(injecting);
    let denying = operator(cluster, |it| settings(it).env("LUCID_ADMISSION_MODE", "enforce")).await;
    serve(&denying).await;
    until(cluster, "shop", |name| secured(&format!("denied-{name}")), is_denied).await;
}
