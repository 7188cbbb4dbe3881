//! TLS and bearer token.

use std::fs;
use std::path::Path;
use std::process::Command;

use lucid_e2e::eventually;
use reqwest::{Certificate, Client, Response, StatusCode};

use crate::server::{PATIENCE, Verifier, command, folder_with, sha256};

/// Writes a certificate for this machine and its key. Returns the certificate.
fn certify(folder: &Path) -> String {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
    fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    made.cert.pem()
}

/// A client that trusts only this certificate and resumes no sessions.
fn client_of(pem: &str) -> Client {
    let trusted = Certificate::from_pem(pem.as_bytes()).unwrap();
    let client = Client::builder().tls_certs_only([trusted]).no_proxy().pool_max_idle_per_host(0);
    client.timeout(PATIENCE).build().unwrap()
}

fn serve(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command();
    command.current_dir(folder).args(["serve", "--listen", "127.0.0.1:0", "--registry", "registry.yaml"]);
    command.args(arguments);
    command
}

fn start(folder: &Path, arguments: &[&str]) -> Verifier {
    Verifier::start_command(serve(folder, arguments))
}

#[tokio::test]
async fn a_changed_certificate_is_reloaded() {
    let folder = folder_with(&['a']);
    let first_pem = certify(folder.path());
    let first = client_of(&first_pem);
    let verifier = start(folder.path(), &["--tls-cert", "tls.crt", "--tls-key", "tls.key"]);
    assert!(verifier.url.starts_with("https://"), "{}", verifier.url);
    let url = format!("{}/registry/check?digest={}", verifier.url, sha256('a'));
    assert!(first.get(&url).send().await.unwrap().text().await.unwrap().contains("\"notarized\":true"));
    assert!(reqwest::get(url.replace("https:", "http:")).await.is_err(), "it speaks plain HTTP as well");

    let key = fs::read(folder.path().join("tls.key")).unwrap();
    fs::write(folder.path().join("tls.key"), "no key").unwrap();
    verifier.logs_soon("the last good certificate stays in force").await;
    assert_eq!(first.get(&url).send().await.unwrap().status(), StatusCode::OK);
    fs::write(folder.path().join("tls.key"), key).unwrap();

    let second = client_of(&certify(folder.path()));
    eventually("the new certificate is served", async || second.get(&url).send().await).await;
    assert!(client_of(&first_pem).get(&url).send().await.is_err());
}

#[tokio::test]
async fn the_token_is_required_except_for_health() {
    let folder = folder_with(&['a']);
    let file = folder.path().join("token");
    fs::write(&file, "first\n").unwrap();
    let verifier = start(folder.path(), &["--token-file", "token"]);
    verifier.logs_soon("the token is sent unencrypted").await;
    let ask = async |token: Option<&str>| -> Response {
        let url = format!("{}/registry/check?digest={}", verifier.url, sha256('a'));
        let request = Client::builder().no_proxy().build().unwrap().get(url);
        let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
        request.send().await.unwrap()
    };
    for wrong in [None, Some("second"), Some("")] {
        let response = ask(wrong).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        let text = response.text().await.unwrap();
        assert!(!text.contains("notarized") && !text.contains("first"), "{text}");
    }
    assert_eq!(ask(Some("first")).await.status(), StatusCode::OK);
    assert_eq!(reqwest::get(format!("{}/healthz", verifier.url)).await.unwrap().status(), StatusCode::OK);

    fs::write(&file, "second").unwrap();
    assert_eq!(ask(Some("first")).await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(ask(Some("second")).await.status(), StatusCode::OK);
    fs::remove_file(&file).unwrap();
    assert_eq!(ask(Some("second")).await.status(), StatusCode::UNAUTHORIZED);
    assert!(!verifier.log().contains("second"), "the token is logged");
}

#[test]
fn conflicting_settings_are_rejected() {
    let folder = folder_with(&['a']);
    certify(folder.path());
    fs::write(folder.path().join("empty"), "\n").unwrap();
    for (arguments, code, says) in [
        (&["--tls-cert", "tls.crt"][..], 2, "--tls-key"),
        (&["--tls-key", "tls.key"], 2, "--tls-cert"),
        (&["--tls-cert", "tls.crt", "--tls-key", "none"], 1, "failed to read none"),
        (&["--tls-cert", "tls.key", "--tls-key", "tls.key"], 1, "tls.key"),
        (&["--token-file", "none"], 1, "failed to read the token file none"),
        (&["--token-file", "empty"], 1, "visible ASCII"),
    ] {
        let output = serve(folder.path(), arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
}
