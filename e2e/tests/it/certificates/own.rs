//! The operator's own authority: `certs status`, `certs rotate`, and one certificate for all replicas.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use lucid_e2e::{Operator, eventually};
use lucid_testbed::Cluster;
use serde_json::Value;

use super::SETTLE;
use crate::cli::{Ran, lucid};
use crate::common::{assert_contains, ca_bundle, cluster, get, operator, served};
use crate::traffic::Traffic;

async fn ca_secret(cluster: &Cluster) -> Secret {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    secrets.get("lucid-operator-ca").await.unwrap()
}

async fn trusted(cluster: &Cluster) -> Vec<u8> {
    ca_secret(cluster).await.data.unwrap()["ca.crt"].0.clone()
}

async fn certs(cluster: &Cluster, arguments: &[&str]) -> Ran {
    lucid(cluster, &[&["certs"], arguments].concat()).await
}

async fn status(cluster: &Cluster) -> Value {
    certs(cluster, &["status", "-o", "json"]).await.json()
}

#[tokio::test]
async fn rotation_of_the_authority_does_not_deny_pods() {
    let cluster = cluster().await;
    let operator = operator(&cluster, |operator| {
        operator.flag("--trust-settle", SETTLE).flag("--webhook-timeout-seconds", "30")
    })
    .await;
    let before = status(&cluster).await;
    let old = before["signer"]["sha256"].as_str().unwrap().to_owned();
    let text = certs(&cluster, &["status"]).await.printed();
    assert!(text.starts_with(&format!("signer   {old}  valid from ")), "{text}");

    let leaf = served(&operator, &trusted(&cluster).await).await;
    assert!(leaf.is_some());
    let traffic = Traffic::of_secured_pods(&cluster);
    let text = certs(&cluster, &["rotate"]).await.printed();
    let after = status(&cluster).await;
    let new = after["signer"]["sha256"].as_str().unwrap().to_owned();
    assert_ne!(new, old);
    assert_eq!(after["previous"][0]["sha256"], Value::from(old.clone()));
    let until = after["previous"][0]["retireAt"].as_str().unwrap();
    assert_contains(
        &text,
        &["no call fails", &format!("{new} signs now"), &format!("{old} is trusted until {until}")],
    );
    let text = certs(&cluster, &["status"]).await.printed();
    assert!(
        text.contains(&format!("previous {old}")) && text.contains(&format!("trusted until {until}")),
        "{text}"
    );
    eventually("the leaf is replaced", async || {
        let new = served(&operator, &trusted(&cluster).await).await;
        new.is_some() && new != leaf
    })
    .await;
    traffic.end().await;
    assert_eq!(get(&operator, "/readyz").await.0, 200);
}

#[tokio::test]
async fn revocation_denies_no_pods_and_prints_the_end_of_trust() {
    let cluster = cluster().await;
    let _operator = operator(&cluster, |operator| {
        operator.flag("--trust-settle", SETTLE).flag("--webhook-timeout-seconds", "30")
    })
    .await;
    let traffic = Traffic::of_secured_pods(&cluster);
    let (_, until) = revoke(&cluster).await;
    // Twice the settle time and a check interval of a minute: little more than two minutes with a settle time of 2 s.
    let patience = seconds(&until) - jiff::Timestamp::now().as_second();
    assert!((60..=125).contains(&patience), "trust ends in {patience} s");
    traffic.end().await;
}

#[tokio::test]
#[ignore = "takes two minutes"]
async fn slow_trust_in_a_revoked_authority_ends_in_time() {
    let cluster = cluster().await;
    let operator = operator(&cluster, |operator| {
        operator.flag("--trust-settle", SETTLE).flag("--webhook-timeout-seconds", "30")
    })
    .await;
    let before = String::from_utf8(trusted(&cluster).await).unwrap();
    let traffic = Traffic::of_secured_pods(&cluster);
    let (old, until) = revoke(&cluster).await;
    while jiff::Timestamp::now().as_second() < seconds(&until) {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    eventually("it is no longer trusted", async || {
        let status = status(&cluster).await;
        status["previous"] == Value::Array(Vec::new()) && status["retired"][0] == old.as_str()
    })
    .await;
    eventually("the bundle no longer has it", async || {
        let bundle = String::from_utf8(ca_bundle(&cluster).await).unwrap();
        !bundle.contains(before.trim())
    })
    .await;
    traffic.end().await;
    assert_eq!(get(&operator, "/readyz").await.0, 200);
}

/// Runs `certs rotate --now`. Returns the revoked authority, and the end of trust in it.
async fn revoke(cluster: &Cluster) -> (String, String) {
    let old = status(cluster).await["signer"]["sha256"].as_str().unwrap().to_owned();
    let text = certs(cluster, &["rotate", "--now"]).await.printed();
    let after = status(cluster).await;
    let new = after["signer"]["sha256"].as_str().unwrap();
    let until = after["previous"][0]["retireAt"].as_str().unwrap();
    assert_contains(
        &text,
        &[
            "fail until it reconnects",
            &format!("{new} signs now"),
            &format!("{old} is trusted until {until}"),
        ],
    );
    (old, until.to_owned())
}

fn seconds(rfc3339: &str) -> i64 {
    rfc3339.parse::<jiff::Timestamp>().unwrap().as_second()
}

async fn rotation_needs_an_operator(cluster: &Cluster) {
    let none = certs(cluster, &["rotate"]).await;
    assert_ne!(none.status, Some(0));
    assert!(none.stderr.contains("failed to find Secret lucid-system/lucid-operator-ca"), "{none:?}");
}

#[tokio::test]
async fn replicas_share_one_certificate_by_default() {
    let cluster = cluster().await;
    rotation_needs_an_operator(&cluster).await;
    let one: Operator = operator(&cluster, |operator| operator).await;
    let address = one.url();
    // Both are registered under one host, so that they can share a certificate.
    let two = operator(&cluster, |operator| operator.named("lucid-operator-2")).await;
    assert_ne!(address, two.url());
    let trust = trusted(&cluster).await;
    let leaf = served(&one, &trust).await.expect("it does not verify");
    assert_eq!(served(&two, &trust).await, Some(leaf.clone()));
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    let secret = secrets.get("lucid-operator-tls").await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    let stored = String::from_utf8(secret.data.unwrap()["tls.crt"].0.clone()).unwrap();
    assert!(stored.lines().collect::<String>().contains(&STANDARD.encode(&leaf)), "{stored}");

    let in_memory = |operator: lucid_e2e::OperatorBuilder| {
        operator.named("lucid-operator-3").flag("--certificate-per-replica", "true")
    };
    let three = operator(&cluster, in_memory).await;
    assert_ne!(served(&three, &trust).await.expect("it does not verify"), leaf);
}
