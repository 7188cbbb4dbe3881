//! Control planes with settings other than the defaults.

use std::net::Ipv6Addr;

use lucid_e2e::{Answer, ClusterExt as _, can_use_namespaces, skip};
use lucid_testbed::{Builder, Cluster};

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
