//! Sources of certificates.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use lucid_e2e::{AtomicWriter, Operator, OperatorBuilder, eventually};
use lucid_testbed::Cluster;
use serde_json::json;

use super::{
    Authority, SETTLE, annotation, counted, logged, serves_under, write_bundles, write_bundles_of,
    write_secret,
};
use crate::cli::kubectl;
use crate::common::{GUARDRAILS, assert_injected, cluster, get, served, until_injected, until_ready_is};
use crate::traffic::Traffic;

fn builder(cluster: &Cluster, source: &str) -> OperatorBuilder {
    let builder = Operator::builder(cluster).env("LUCID_CERTIFICATES", source);
    builder.flag("--trust-settle", SETTLE).flag("--webhook-timeout-seconds", "30")
}

/// Asserts that it runs, is not ready, and reports the missing part.
async fn lacks(operator: &Operator, reason: &str, said: &str) {
    let line = format!(r#"result="refused",reason="{reason}"}} "#);
    let counts = async || {
        let (_, metrics) = get(operator, "/metrics").await;
        metrics.lines().any(|found| found.contains(&line) && !found.ends_with(" 0"))
    };
    eventually("the refusal is counted", counts).await;
    logged(operator, said).await;
    until_ready_is(operator, (503, "not ready: certificates")).await;
    assert_eq!(get(operator, "/healthz").await.0, 200);
}

#[tokio::test]
async fn cert_manager_issues_and_its_cainjector_publishes() {
    let cluster = cluster().await;
    let mut operator = builder(&cluster, "cert-manager").spawn().unwrap();
    lacks(&operator, "missing", "Secret lucid-system/lucid-operator-tls").await;
    let from = annotation(&cluster, "cert-manager.io/inject-ca-from").await;
    assert_eq!(from.as_deref(), Some("lucid-system/lucid-operator-cert"));

    let first = Authority::new("first");
    write_secret(&cluster, first.serving(cluster.host_address()).files(Some(&first.certificate))).await;
    counted(&operator, r#"lucid_certificate_reloads_total{source="secret",result="swapped",reason=""} 1"#)
        .await;
    assert_eq!(get(&operator, "/readyz").await.0, 503, "the API server does not trust it yet");
    write_bundles(&cluster, &[&first]).await;
    operator.ready().await.unwrap();
    assert_injected(&cluster, "web", GUARDRAILS).await;

    // cainjector merges the bundle of the Secret into the existing one eventually.
    let traffic = Traffic::of_secured_pods(&cluster);
    let second = Authority::new("second");
    write_secret(&cluster, second.serving(cluster.host_address()).files(Some(&second.certificate))).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        served(&operator, first.certificate.as_bytes()).await.is_some(),
        "the API server does not trust another yet"
    );
    write_bundles(&cluster, &[&second, &first]).await;
    serves_under(&operator, &second).await;

    let third = Authority::new("third");
    write_bundles(&cluster, &[&third, &second, &first]).await;
    write_secret(&cluster, third.serving(cluster.host_address()).files(Some(&third.certificate))).await;
    serves_under(&operator, &third).await;
    traffic.end().await;
    assert_eq!(get(&operator, "/readyz").await.0, 200);
}

#[tokio::test]
async fn connections_wait_for_the_first_certificate() {
    let cluster = cluster().await;
    let waiting = builder(&cluster, "secret").named("waiting").flag("--lame-duck-seconds", "300");
    let mut waiting = waiting.spawn().unwrap();
    lacks(&waiting, "missing", "Secret lucid-system/lucid-operator-tls").await;
    assert!(waiting.terminate().is_some_and(|status| status.success()), "it did not end");

    let operator = builder(&cluster, "secret").spawn().unwrap();
    lacks(&operator, "missing", "Secret lucid-system/lucid-operator-tls").await;
    let first = Authority::new("first");
    let files = first.serving(cluster.host_address()).files(Some(&first.certificate));
    let (early, ()) =
        tokio::join!(served(&operator, first.certificate.as_bytes()), write_secret(&cluster, files));
    assert!(early.is_some(), "the handshake was refused");
}

#[tokio::test]
async fn openshift_issues_and_publishes() {
    let cluster = cluster().await;
    let mut operator = builder(&cluster, "openshift").spawn().unwrap();
    lacks(&operator, "missing", "Secret lucid-system/lucid-operator-tls").await;
    let requested = annotation(&cluster, "service.beta.openshift.io/inject-cabundle").await;
    assert_eq!(requested.as_deref(), Some("true"));

    let first = Authority::new("first");
    write_secret(&cluster, first.serving(cluster.host_address()).files(None)).await;
    write_bundles(&cluster, &[&first]).await;
    operator.ready().await.unwrap();

    let traffic = Traffic::of_secured_pods(&cluster);
    let second = Authority::new("second");
    write_bundles(&cluster, &[&second, &first]).await;
    write_secret(&cluster, second.serving(cluster.host_address()).files(None)).await;
    serves_under(&operator, &second).await;
    traffic.end().await;
}

#[tokio::test]
async fn olm_provides_files_and_registers_webhooks() {
    let cluster = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("certificates");
    let builder = builder(&cluster, "olm").env("LUCID_TLS_DIRECTORY", directory.to_str().unwrap());
    let mut operator = builder.spawn().unwrap();
    lacks(&operator, "missing", directory.to_str().unwrap()).await;

    let first = Authority::new("first");
    std::fs::create_dir(&directory).unwrap();
    let volume = AtomicWriter::new(&directory);
    volume.write(&first.serving(cluster.host_address()).files(None)).unwrap();
    operator.ready().await.unwrap();
    register_as_olm(&cluster, &operator).await;
    write_bundles_of(OLM_NAME, &cluster, &[&first]).await;
    until_injected(&cluster, "shop", "registered", GUARDRAILS).await;

    let traffic = Traffic::of_secured_pods(&cluster);
    let second = Authority::new("second");
    write_bundles_of(OLM_NAME, &cluster, &[&second, &first]).await;
    // There is no signal that an API server has applied the change.
    tokio::time::sleep(Duration::from_secs(1)).await;
    volume.write(&second.serving(cluster.host_address()).files(None)).unwrap();
    serves_under(&operator, &second).await;
    traffic.end().await;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    assert!(mutating.get_opt("lucid-operator").await.unwrap().is_none(), "it registers beside OLM");
}

pub(crate) const OLM_NAME: &str = "mutate.lucid.computing-x7k2p";

/// Creates the configurations for a ClusterServiceVersion's `webhookdefinitions`.
pub(crate) async fn register_as_olm(cluster: &Cluster, operator: &Operator) {
    let webhook = |name: &str, path: &str| {
        json!({
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "timeoutSeconds": 30, "clientConfig": {"url": format!("{}{path}", operator.url())},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"lucid.computing/enabled": "true"}},
        })
    };
    let configuration = |webhook| json!({"metadata": {"name": OLM_NAME}, "webhooks": [webhook]});
    let mutating = configuration(webhook("mutate.lucid.computing", "/mutate"));
    let validating = configuration(webhook("validate.lucid.computing", "/validate"));
    let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    api.create(&Default::default(), &serde_json::from_value(mutating).unwrap()).await.unwrap();
    let api: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    api.create(&Default::default(), &serde_json::from_value(validating).unwrap()).await.unwrap();
}

#[tokio::test]
async fn external_secrets_are_followed_and_their_ca_published() {
    let cluster = cluster().await;
    let mut operator = builder(&cluster, "secret").spawn().unwrap();
    lacks(&operator, "missing", "Secret lucid-system/lucid-operator-tls").await;
    let first = Authority::new("first");
    write_secret(&cluster, first.serving(cluster.host_address()).files(Some(&first.certificate))).await;
    operator.ready().await.unwrap();
    assert_injected(&cluster, "web", GUARDRAILS).await;

    let traffic = Traffic::of_secured_pods(&cluster);
    let second = Authority::new("second");
    write_secret(&cluster, second.serving(cluster.host_address()).files(Some(&second.certificate))).await;
    serves_under(&operator, &second).await;
    // Neither invalid content nor its deletion changes anything.
    write_secret(&cluster, first.serving("192.0.2.1".parse().unwrap()).files(Some(&first.certificate))).await;
    logged(&operator, "is not for 127.0.0.1").await;
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    secrets.delete("lucid-operator-tls", &Default::default()).await.unwrap();
    logged(&operator, "it does not exist, or it was deleted; the certificate in service stays").await;
    traffic.end().await;
    assert_eq!(get(&operator, "/readyz").await.0, 200);
}

/// As made by `kubectl create secret tls`.
#[tokio::test]
async fn external_secrets_without_a_ca_are_trusted_by_their_chain() {
    let cluster = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("corporate");
    let files = authority.serving(cluster.host_address()).files(None);
    let chain = [&files["tls.crt"][..], authority.certificate.as_bytes()].concat();
    for (number, certificate) in [&files["tls.crt"], &chain].into_iter().enumerate() {
        std::fs::write(folder.path().join("tls.crt"), certificate).unwrap();
        std::fs::write(folder.path().join("tls.key"), &files["tls.key"]).unwrap();
        let name = format!("webhook-certs-{number}");
        let file = |key: &str| {
            format!(
                "--{}={}",
                key.replace("tls.", "").replace("crt", "cert"),
                folder.path().join(key).display()
            )
        };
        let command =
            ["create", "-n", "lucid-system", "secret", "tls", &name, &file("tls.crt"), &file("tls.key")];
        kubectl(&cluster, &command, "");
        let operator = builder(&cluster, "secret").env("LUCID_TLS_SECRET", &name).start().await.unwrap();
        until_injected(&cluster, "shop", &format!("web-{number}"), GUARDRAILS).await;
        drop(operator);
    }
}

#[tokio::test]
async fn external_files_are_followed_and_their_ca_published() {
    let cluster = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let builder = builder(&cluster, "files").env("LUCID_TLS_DIRECTORY", folder.path().to_str().unwrap());
    let mut operator = builder.spawn().unwrap();
    lacks(&operator, "missing", "tls.crt").await;
    let first = Authority::new("first");
    let volume = AtomicWriter::new(folder.path());
    volume.write(&first.serving(cluster.host_address()).files(Some(&first.certificate))).unwrap();
    operator.ready().await.unwrap();
    assert_injected(&cluster, "web", GUARDRAILS).await;

    let traffic = Traffic::of_secured_pods(&cluster);
    let second = Authority::new("second");
    volume.write(&second.serving(cluster.host_address()).files(Some(&second.certificate))).unwrap();
    serves_under(&operator, &second).await;
    traffic.end().await;
}
