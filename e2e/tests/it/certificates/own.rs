//! The operator's own authority: `certs status`, `certs rotate`, and one certificate for all replicas.

use std::process::Output;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use lucid_e2e::{Operator, program};
use lucid_testbed::Cluster;
use serde_json::Value;

use super::{SETTLE, Traffic, get, served};
use crate::common::{cluster, eventually_holds, operator};

async fn ca_secret(cluster: &Cluster) -> Secret {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    secrets.get("lucid-operator-ca").await.unwrap()
}

async fn trusted(cluster: &Cluster) -> String {
    String::from_utf8(ca_secret(cluster).await.data.unwrap()["ca.crt"].0.clone()).unwrap()
}

/// `lucid certs` with these arguments.
async fn certs(cluster: &Cluster, arguments: &'static [&'static str]) -> Output {
    let kubeconfig = cluster.kubeconfig_path();
    let run = move || {
        let mut command = lucid_testbed::command(program("lucid").unwrap());
        command.arg("certs").args(arguments).env("KUBECONFIG", kubeconfig).output().unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

async fn status(cluster: &Cluster) -> Value {
    serde_json::from_str(&said(&certs(cluster, &["status", "-o", "json"]).await)).unwrap()
}

#[tokio::test]
async fn the_authority_is_shown_and_rotated_while_pods_are_created() {
    let cluster = cluster().await;
    let operator = operator(&cluster, |operator| operator.env("LUCID_TRUST_SETTLE", SETTLE)).await;
    let before = status(&cluster).await;
    let old = before["signer"]["sha256"].as_str().unwrap().to_owned();
    let text = said(&certs(&cluster, &["status"]).await);
    assert!(text.starts_with(&format!("signer   {old}  valid from ")), "{text}");

    let leaf = served(&operator, &trusted(&cluster).await).await;
    assert!(leaf.is_some());
    let traffic = Traffic::start(&cluster);
    let text = said(&certs(&cluster, &["rotate"]).await);
    let after = status(&cluster).await;
    let new = after["signer"]["sha256"].as_str().unwrap().to_owned();
    assert_ne!(new, old);
    assert_eq!(after["previous"][0]["sha256"], Value::from(old.clone()));
    let until = after["previous"][0]["retireAt"].as_str().unwrap();
    for part in ["no call fails", &format!("{new} signs now"), &format!("{old} is trusted until {until}")] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let text = said(&certs(&cluster, &["status"]).await);
    assert!(
        text.contains(&format!("previous {old}")) && text.contains(&format!("trusted until {until}")),
        "{text}"
    );
    eventually_holds("the leaf is not replaced", async || {
        let new = served(&operator, &trusted(&cluster).await).await;
        new.is_some() && new != leaf
    })
    .await;
    traffic.end().await;
    assert_eq!(get(&operator, "/readyz").await.0, 200);
}

#[tokio::test]
async fn a_revoked_authority_is_replaced_while_pods_are_created_and_it_is_said_until_when_it_is_trusted() {
    let cluster = cluster().await;
    let _operator = operator(&cluster, |operator| operator.env("LUCID_TRUST_SETTLE", SETTLE)).await;
    let traffic = Traffic::start(&cluster);
    let (_, until) = revoke(&cluster).await;
    // Twice the settle time and a check interval of a minute: little more than two minutes with a settle time of 2 s.
    let patience = seconds(&until) - jiff::Timestamp::now().as_second();
    assert!((60..=125).contains(&patience), "trust ends in {patience} s");
    traffic.end().await;
}

#[tokio::test]
#[ignore = "takes two minutes"]
async fn slow_trust_in_a_revoked_authority_ends_when_it_was_said_and_no_pod_is_refused() {
    let cluster = cluster().await;
    let operator = operator(&cluster, |operator| operator.env("LUCID_TRUST_SETTLE", SETTLE)).await;
    let before = trusted(&cluster).await;
    let traffic = Traffic::start(&cluster);
    let (old, until) = revoke(&cluster).await;
    while jiff::Timestamp::now().as_second() < seconds(&until) {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    eventually_holds("it is still trusted", async || {
        let status = status(&cluster).await;
        status["previous"] == Value::Array(Vec::new()) && status["retired"][0] == old.as_str()
    })
    .await;
    eventually_holds("the bundle still has it", async || {
        let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
        let webhook = api.get("lucid-operator").await.unwrap().webhooks.unwrap().remove(0);
        let bundle = String::from_utf8(webhook.client_config.ca_bundle.unwrap().0).unwrap();
        !bundle.contains(before.trim())
    })
    .await;
    traffic.end().await;
    assert_eq!(get(&operator, "/readyz").await.0, 200);
}

/// Runs `certs rotate --now`. Returns the revoked authority, and the end of trust in it.
async fn revoke(cluster: &Cluster) -> (String, String) {
    let old = status(cluster).await["signer"]["sha256"].as_str().unwrap().to_owned();
    let text = said(&certs(cluster, &["rotate", "--now"]).await);
    let after = status(cluster).await;
    let new = after["signer"]["sha256"].as_str().unwrap();
    let until = after["previous"][0]["retireAt"].as_str().unwrap();
    for part in
        ["fail until it reconnects", &format!("{new} signs now"), &format!("{old} is trusted until {until}")]
    {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    (old, until.to_owned())
}

fn seconds(rfc3339: &str) -> i64 {
    rfc3339.parse::<jiff::Timestamp>().unwrap().as_second()
}

#[tokio::test]
async fn without_an_operator_nothing_is_rotated_and_it_is_said() {
    let cluster = cluster().await;
    let none = certs(&cluster, &["rotate"]).await;
    let message = String::from_utf8_lossy(&none.stderr);
    assert!(!none.status.success());
    assert!(message.contains("failed to find Secret lucid-system/lucid-operator-ca"), "{message}");
}

#[tokio::test]
async fn one_certificate_can_be_shared_by_all_replicas() {
    let cluster = cluster().await;
    let shared = |operator: lucid_e2e::OperatorBuilder| operator.env("LUCID_SHARE_CERTIFICATE", "true");
    let one: Operator = operator(&cluster, shared).await;
    let address = one.url();
    // Both are registered under one host, so that they can share a certificate.
    let two = operator(&cluster, |operator| shared(operator.named("lucid-operator-2"))).await;
    assert_ne!(address, two.url());
    let trust = trusted(&cluster).await;
    let leaf = served(&one, &trust).await.expect("it does not verify");
    assert_eq!(served(&two, &trust).await, Some(leaf.clone()));
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    let secret = secrets.get("lucid-operator-tls").await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    let stored = reqwest::Certificate::from_pem(&secret.data.unwrap()["tls.crt"].0);
    assert!(stored.is_ok());
}
