//! Signatures on the images of auditors, instead of or in addition to the Verifier.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer, SigningKey};
use lucid_e2e::{Verifier, eventually};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use super::{NOTARIZED, PODS, assert_passed, assert_refused, post};
use crate::cli::lucid_with;
use crate::common::{cluster, config_map, operator, secured};

/// The image of auditor `good`, which the Verifier does not know.
pub(crate) const SIGNED: &str = "4444444444444444444444444444444444444444444444444444444444444444";

#[tokio::test]
async fn an_auditor_that_is_only_signed_is_admitted_if_any_source_suffices() {
    let cluster = cluster().await;
    let entry =
        |name: &str, digest: &str| format!("  - {{name: {name}, image: \"example.com/{name}@{digest}\"}}\n");
    let catalogue = entry("good", &format!("sha256:{SIGNED}")) + &entry("lucid-egress", NOTARIZED);
    config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", &format!("chain:\n{catalogue}"))
        .await;
    let verifier = Verifier::start(cluster.folder(), &[NOTARIZED]).await.unwrap();
    let folder = cluster.folder().join("signatures");
    fs::create_dir(&folder).unwrap();
    let bundle = format!("sha256-{SIGNED}.json");
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write("signatures.yaml", &policy("any"));
    write(&bundle, &signed(1));
    let directory = folder.display().to_string();
    let _operator = operator(&cluster, |operator| {
        operator
            .env("LUCID_ADMISSION_MODE", "enforce")
            .env("LUCID_TIER_LABEL", "")
            .env("LUCID_CHAIN", "good")
            .env("LUCID_STRICT_NOTARIZATION", "true")
            .env("LUCID_VERIFIER_URL", verifier.url())
            .env("LUCID_SIGNATURES_DIRECTORY", directory)
    })
    .await;

    let good = format!("auditor container good, image example.com/good@sha256:{SIGNED}: ");
    assert_passed("any", &post(&cluster, PODS, &secured("any")).await);
    write("signatures.yaml", &policy("all"));
    until_refused(&cluster, "all", &[&good, "not notarized"]).await;
    write("signatures.yaml", &policy("signatures"));
    until_passed(&cluster, "signatures").await;

    write("signatures.yaml", &policy("any"));
    write(&bundle, &signed(2));
    let other = format!("{bundle}: expected a signature by a key of the policy");
    until_refused(&cluster, "other", &[&good, "not notarized: ", &other, "; the Verifier does not know"])
        .await;
    check(&cluster, "warning", &other).await;
    fs::remove_file(folder.join(&bundle)).unwrap();
    let missing = format!("no signature on sha256:{SIGNED}: expected a bundle {bundle}");
    until_refused(&cluster, "missing", &[&good, "not notarized: ", &missing]).await;
    check(&cluster, "warning", &missing).await;
}

/// A policy for `good` that accepts the first key.
pub(crate) fn policy(require: &str) -> String {
    // SubjectPublicKeyInfo of Ed25519, without the key.
    let mut key = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00".to_vec();
    key.extend(SigningKey::from_bytes(&[1; 32]).verifying_key().as_bytes());
    let key = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(key));
    json!({"policies": [{"images": ["example.com/good"], "require": require, "keys": [key]}]}).to_string()
}

/// A bundle about the image as `cosign sign --key` writes it.
pub(crate) fn signed(seed: u8) -> String {
    let (kind, predicate) = ("application/vnd.in-toto+json", "https://sigstore.dev/cosign/sign/v1");
    let statement = json!({"_type": "https://in-toto.io/Statement/v1", "predicateType": predicate,
        "subject": [{"digest": {"sha256": SIGNED}}]});
    let statement = statement.to_string();
    let envelope = format!("DSSEv1 {} {kind} {} {statement}", kind.len(), statement.len());
    let signature = SigningKey::from_bytes(&[seed; 32]).sign(envelope.as_bytes());
    let signatures = json!([{"sig": STANDARD.encode(signature.to_bytes())}]);
    json!({"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"publicKey": {"hint": "release"}},
        "dsseEnvelope": {"payloadType": kind, "payload": STANDARD.encode(statement), "signatures": signatures}})
    .to_string()
}

/// Posts pods until one is refused with these parts: the operator reads changed files within a second.
async fn until_refused(cluster: &Cluster, name: &str, parts: &[&str]) {
    let mut attempts = 0..;
    let reply = eventually("a pod is refused", async || {
        let name = format!("{name}-{}", attempts.next().unwrap_or(0));
        let reply = post(cluster, PODS, &secured(&name)).await;
        let message = reply.body["message"].as_str().unwrap_or_default();
        let is_expected = reply.status == 403 && parts.iter().all(|part| message.contains(part));
        if is_expected { Ok(reply) } else { Err(format!("{reply:?}")) }
    })
    .await;
    assert_refused(name, &reply, parts);
}

async fn until_passed(cluster: &Cluster, name: &str) {
    eventually("a pod is admitted", async || {
        let reply = post(cluster, PODS, &secured(name)).await;
        if reply.status == 201 { Ok(()) } else { Err(format!("{reply:?}")) }
    })
    .await;
}

/// Runs `lucid check`, which says what happens to an ordinary pod.
async fn check(cluster: &Cluster, status: &str, found: &str) {
    let kubeconfig = cluster.kubeconfig_path();
    let environment = [("KUBECONFIG", kubeconfig.to_str().unwrap())];
    let ran = lucid_with(&["check", "--skip-pods", "-o", "json"], &environment).await;
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let mut checks = report["checks"].as_array().unwrap().iter();
    let check = checks.find(|check| check["check"] == "reachable").unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!(check["status"], status, "{check}");
    assert!(check["found"].as_str().unwrap().contains(found), "{check}");
}
