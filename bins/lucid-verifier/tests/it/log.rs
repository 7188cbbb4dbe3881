//! The log of notarizations and revocations.

use std::fs;
use std::path::Path;

use lucid_audit::note::VerifierKey;
use lucid_e2e::eventually;
use lucid_notary::client::{Answer, HttpVerifier, VerifierError};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

use crate::server::{Verifier, command, folder_with, registry_of, sha256};

fn start(folder: &TempDir) -> Verifier {
    let mut command = command();
    command.args(["serve", "--listen", "127.0.0.1:0", "--registry"]).arg(folder.path().join("registry.yaml"));
    command.arg("--log").arg(folder.path().join("log"));
    Verifier::start_command(command)
}

fn client(verifier: &Verifier, folder: &TempDir) -> HttpVerifier {
    let key: VerifierKey =
        fs::read_to_string(folder.path().join("log/vkey")).unwrap().trim().parse().unwrap();
    HttpVerifier::builder(&verifier.url).with_log_keys([key]).build().unwrap()
}

async fn ask(client: &HttpVerifier, digit: char) -> Result<Answer, VerifierError> {
    client.clone().oneshot(sha256(digit).parse().unwrap()).await
}

/// Events and the last digit of their digests.
fn logged(folder: &TempDir) -> Vec<String> {
    let mut segments: Vec<_> =
        fs::read_dir(folder.path().join("log/segments")).unwrap().map(|it| it.unwrap().path()).collect();
    segments.sort();
    let text: String = segments.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let event = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let digest = line["digest"].as_str().unwrap_or_default();
        format!("{} {}", line["event"].as_str().unwrap(), &digest[digest.len().saturating_sub(1)..])
    };
    text.lines().map(event).collect()
}

fn write(folder: &TempDir, digests: &[char]) {
    let path = folder.path().join("registry.yaml");
    fs::write(path.with_extension("new"), registry_of(digests)).unwrap();
    fs::rename(path.with_extension("new"), path).unwrap();
}

fn verify(folder: &Path) {
    let report = lucid_audit::verify::verify(folder, &lucid_audit::verify::Expectations::default()).unwrap();
    assert!(report.is_intact(), "{report}");
}

#[tokio::test]
async fn what_is_notarized_is_in_the_log() {
    let folder = folder_with(&['a', 'b']);
    let mut verifier = start(&folder);
    let client = client(&verifier, &folder);
    assert_eq!(ask(&client, 'a').await.unwrap(), Answer::Notarized);
    assert_eq!(ask(&client, 'c').await.unwrap(), Answer::NotNotarized);
    let (status, answer) = verifier.get(&format!("/registry/check?digest={}", sha256('a'))).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({"digest": sha256('a'), "notarized": true})));
    let (_, answer) = verifier.get(&format!("/registry/check?digest={}&proof=true", sha256('c'))).await;
    assert_eq!(answer, json!({"digest": sha256('c'), "notarized": false}));

    write(&folder, &['b', 'c']);
    // The registry never says what its log does not prove.
    eventually("c is notarized", async || {
        let is_notarized = verifier.is_notarized(&sha256('c')).await;
        if is_notarized {
            assert_eq!(ask(&client, 'c').await.unwrap(), Answer::Notarized);
        }
        is_notarized.then_some(()).ok_or(())
    })
    .await;
    let (_, answer) = verifier.get(&format!("/registry/check?digest={}&proof=true", sha256('a'))).await;
    assert!(answer["proof"].as_str().unwrap().starts_with("c2sp.org/tlog-proof@v1\n"), "{answer}");
    assert_eq!(ask(&client, 'a').await.unwrap(), Answer::NotNotarized);
    assert_eq!(logged(&folder), ["notarize a", "notarize b", "notarize c", "revoke a"]);

    // Changes made while no process served are logged at the start, and nothing twice.
    verifier.child.kill().unwrap();
    verifier.child.wait().unwrap();
    write(&folder, &['a', 'c']);
    let verifier = start(&folder);
    let again = self::client(&verifier, &folder);
    for (digit, answer) in [('a', Answer::Notarized), ('b', Answer::NotNotarized), ('c', Answer::Notarized)] {
        assert_eq!(ask(&again, digit).await.unwrap(), answer, "{digit}");
    }
    assert_eq!(logged(&folder)[4..], ["notarize a", "revoke b"]);
    verify(&folder.path().join("log"));
}

#[tokio::test]
async fn revocations_take_effect_without_a_log_and_notarizations_are_unproven() {
    let folder = folder_with(&['a']);
    let verifier = start(&folder);
    let client = client(&verifier, &folder);
    assert_eq!(ask(&client, 'a').await.unwrap(), Answer::Notarized);
    // The log notices that its directory is gone, and keeps nothing.
    fs::remove_dir_all(folder.path().join("log")).unwrap();
    write(&folder, &['b']);
    verifier.notarizes_soon(&sha256('b')).await;
    assert!(!verifier.is_notarized(&sha256('a')).await);
    let (status, answer) = verifier.get(&format!("/registry/check?digest={}&proof=true", sha256('b'))).await;
    let expected = json!({"error": "the digest is notarized, but not in the log yet"});
    assert_eq!((status, answer), (StatusCode::CONFLICT, expected));
    let error = ask(&client, 'b').await.unwrap_err();
    assert!(error.to_string().contains("409 Conflict") && !error.is_outage(), "{error}");
    verifier.logs_soon("failed to log the changes of the registry").await;
}

#[tokio::test]
async fn a_registry_without_a_log_proves_nothing() {
    let (_folder, verifier) = crate::server::serving(&['a']);
    let (status, answer) = verifier.get(&format!("/registry/check?digest={}&proof=true", sha256('a'))).await;
    assert_eq!(
        (status, answer),
        (StatusCode::BAD_REQUEST, json!({"error": "parameter proof: this registry has no log"}))
    );
    let (status, _) = verifier.get(&format!("/registry/check?digest={}&proof=1", sha256('a'))).await;
    assert_eq!(status, StatusCode::OK);
}
