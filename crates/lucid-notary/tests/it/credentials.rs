//! Client credentials and their recipients.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use lucid_notary::client::{Answer, BuildError, HttpVerifier};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::{TempDir, tempdir};

use crate::common::{Scrape, digest, honest, request, until};
use crate::server::{Reply, Server};

fn folder_with(token: &str) -> (TempDir, std::path::PathBuf) {
    let folder = tempdir().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, token).unwrap();
    (folder, path)
}

#[tokio::test]
async fn a_changed_token_file_is_reloaded() {
    let server = Server::start(honest).await;
    let (_folder, path) = folder_with("first.token-1~+/==\n");
    let scrape = Scrape::new();
    let builder = HttpVerifier::builder(&server.url()).with_bearer_token_file(&path);
    let verifier = builder.with_metrics(scrape.metrics.clone()).build().unwrap();
    request(&verifier, digest('a')).await.unwrap();
    let last = || server.authorizations.lock().unwrap().last().unwrap().clone().unwrap();
    assert_eq!(last(), "Bearer first.token-1~+/==");

    // Swaps a symbolic link, as the kubelet does for a mounted Secret.
    let next = path.with_file_name("next");
    fs::write(&next, "second").unwrap();
    fs::rename(&next, &path).unwrap();
    until(async || {
        request(&verifier, digest('a')).await.unwrap();
        last() == "Bearer second"
    })
    .await;
    assert_eq!(scrape.value("verifier_file_reloads_total{file=\"token\",result=\"ok\"}"), 1.0);

    // Neither an invalid nor a missing file replaces the token.
    let failed = || scrape.value("verifier_file_reloads_total{file=\"token\",result=\"error\"}");
    for (count, change) in [(1.0, Some("two words")), (2.0, None)] {
        match change {
            Some(text) => fs::write(&path, text).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        until(async || {
            request(&verifier, digest('a')).await.unwrap();
            failed() == count
        })
        .await;
        assert_eq!(last(), "Bearer second");
    }
    assert!(!format!("{verifier:?}").contains("second"), "{verifier:?}");
}

#[tokio::test]
async fn the_token_is_not_sent_to_the_target_of_a_redirect() {
    let elsewhere = Server::start(honest).await;
    let target = elsewhere.url();
    let server = Server::start(move |requested| Reply::Response {
        status: 307,
        header: Some(("location", format!("{target}{requested}"))),
        body: String::new(),
    })
    .await;
    let (_folder, path) = folder_with("secret");
    let verifier = HttpVerifier::builder(&server.url()).with_bearer_token_file(&path).build().unwrap();
    let error = request(&verifier, digest('a')).await.unwrap_err().to_string();
    assert!(error.contains("307"), "{error}");
    assert_eq!(elsewhere.connections(), 0);
}

#[test]
fn tokens_over_plain_http_are_refused() {
    let (_folder, path) = folder_with("secret");
    let build = |url: &str| HttpVerifier::builder(url).with_bearer_token_file(&path).build();
    for url in [
        "http://localhost:8080",
        "http://127.0.0.1",
        "http://127.8.9.10/base",
        "http://[::1]:80",
        "http://[::ffff:127.0.0.1]:80",
        "https://verifier.example",
    ] {
        assert!(build(url).is_ok(), "{url}");
    }
    for url in [
        "http://verifier.example",
        "http://localhost.example",
        "http://127.0.0.1.example",
        "http://10.0.0.1",
        "http://[2001:db8::1]",
        "http://0.0.0.0",
    ] {
        let error = build(url).unwrap_err();
        assert!(matches!(error, BuildError::PlaintextToken { .. }), "{url}: {error}");
        assert!(HttpVerifier::builder(url).build().is_ok(), "without a token: {url}");
    }
}

#[test]
fn an_invalid_token_is_rejected_without_quoting_it() {
    for (token, reason) in [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        ("hunter2 hunter2", "byte 7"),
        ("hunter2\r\nX-Other: 1", "byte 7"),
        ("hunter2é", "byte 7"),
    ] {
        let (_folder, path) = folder_with(token);
        let builder = HttpVerifier::builder("https://verifier.example").with_bearer_token_file(&path);
        let message = builder.build().unwrap_err().to_string();
        assert!(message.contains(reason) && message.contains(path.to_str().unwrap()), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
    let message =
        HttpVerifier::builder("https://verifier.example").with_bearer_token_file("/nonexistent/token");
    let message = message.build().unwrap_err().to_string();
    assert!(message.contains("failed to read /nonexistent/token: No such file"), "{message}");
}

static CLIENT_CA: LazyLock<CertifiedIssuer<'static, KeyPair>> = LazyLock::new(|| {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
});

/// Returns a certificate in DER and PEM, and its key in PEM.
fn client_certificate() -> (Vec<u8>, String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["client".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &*CLIENT_CA).unwrap();
    (certificate.der().to_vec(), certificate.pem(), key.serialize_pem())
}

fn write_pair(folder: &Path, certificate: &str, key: &str) {
    fs::write(folder.join("tls.crt"), certificate).unwrap();
    fs::write(folder.join("tls.key"), key).unwrap();
}

#[tokio::test]
async fn changed_client_certificate_files_are_reloaded() {
    let server = Server::start_mtls(honest, CLIENT_CA.der()).await;
    let folder = tempdir().unwrap();
    let (first, pem, key) = client_certificate();
    write_pair(folder.path(), &pem, &key);
    let builder = HttpVerifier::builder(&server.tls_url()).with_root_certificates_file(server.root.path());
    let error = request(&builder.clone().build().unwrap(), digest('a')).await.unwrap_err().to_string();
    assert!(error.contains("CertificateRequired") || error.contains("certificate required"), "{error}");

    let (crt, pkey) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let scrape = Scrape::new();
    let builder = builder.with_metrics(scrape.metrics.clone());
    let verifier = builder.with_client_certificate_files(&crt, &pkey).build().unwrap();
    assert_eq!(request(&verifier, digest('a')).await.unwrap(), Answer::Notarized);
    let last = || server.peers.lock().unwrap().last().unwrap().clone();
    assert_eq!(last(), first);

    // The certificate changes before its key: until then, the previous pair stays in use.
    let (second, pem, key) = client_certificate();
    fs::write(&crt, pem).unwrap();
    let failed = "verifier_file_reloads_total{file=\"tls\",result=\"error\"}";
    until(async || {
        request(&verifier, digest('a')).await.unwrap();
        scrape.value(failed) == 1.0
    })
    .await;
    assert_eq!(last(), first);
    fs::write(&pkey, key).unwrap();
    until(async || {
        request(&verifier, digest('a')).await.unwrap();
        last() == second
    })
    .await;
}

#[tokio::test]
async fn a_changed_root_certificate_file_is_reloaded() {
    let (before, after) = (Server::start_tls(honest).await, Server::start_tls(honest).await);
    let folder = tempdir().unwrap();
    let path = folder.path().join("ca.crt");
    fs::copy(&before.root, &path).unwrap();
    let verifier = |server: &Server| {
        HttpVerifier::builder(&server.tls_url()).with_root_certificates_file(&path).build().unwrap()
    };
    let (of_before, of_after) = (verifier(&before), verifier(&after));
    request(&of_before, digest('a')).await.unwrap();
    request(&of_after, digest('a')).await.unwrap_err();
    fs::copy(&after.root, &path).unwrap();
    until(async || request(&of_after, digest('a')).await.is_ok()).await;
    until(async || request(&of_before, digest('a')).await.is_err()).await;
}

#[test]
fn invalid_tls_files_are_rejected_by_name() {
    let folder = tempdir().unwrap();
    let (_, pem, key) = client_certificate();
    let (_, _, other_key) = client_certificate();
    let (crt, pkey) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let build = || {
        let builder = HttpVerifier::builder("https://verifier.example").with_root_certificates_file(&crt);
        builder.with_client_certificate_files(&crt, &pkey).build()
    };
    for (certificate, key) in [(&pem, &other_key), (&pem, &pem), (&key, &key), (&String::new(), &key)] {
        write_pair(folder.path(), certificate, key);
        let message = build().unwrap_err().to_string();
        assert!(message.contains("tls.crt") && message.contains("tls.key"), "{message}");
        assert!(!message.contains("PRIVATE KEY"), "{message}");
    }
    write_pair(folder.path(), &pem, &key);
    build().unwrap();
}

#[test]
fn tls_options_require_https() {
    let builder = HttpVerifier::builder("http://localhost");
    for (builder, what) in [
        (builder.clone().with_root_certificates_file("x"), "root certificates"),
        (builder.with_client_certificate_files("x", "y"), "a client certificate"),
    ] {
        let message = builder.build().unwrap_err().to_string();
        assert!(
            message.contains(&format!("plain http, which cannot use {what}; expected https")),
            "{message}"
        );
    }
}
