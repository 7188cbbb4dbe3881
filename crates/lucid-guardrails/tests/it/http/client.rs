//! Options, credentials and TLS.

use std::fs;
use std::sync::Arc;

use axum::response::IntoResponse as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use lucid_auditor::Verdict;
use lucid_guardrails::HttpOptions;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{Remote, ask, error, judge, router};

fn fault(options: Value) -> String {
    judge(options).map(|_| ()).unwrap_err().to_string()
}

#[tokio::test]
async fn credentials_are_read_for_each_request() {
    let files = TempDir::new().unwrap();
    let path = |name: &str| files.path().join(name);
    fs::write(path("token"), "first\n").unwrap();
    fs::write(path("key"), "k1\n").unwrap();
    let remote = Remote::answering(json!({ "allowed": true })).await;
    let judge = remote.judge(json!({
        "tokenFile": path("token"),
        "headerFiles": { "X-Api-Key": path("key") },
        "headers": { "X-Fixed": "f" },
    }));
    ask(&judge, "a text").await.unwrap();
    let sent = |name: &str| remote.requests().pop().unwrap().headers[name].clone();
    assert_eq!(
        (sent("authorization"), sent("x-api-key"), sent("x-fixed")),
        ("Bearer first".parse().unwrap(), "k1".parse().unwrap(), "f".parse().unwrap())
    );
    let printed = format!("{judge:?}");
    assert!(!printed.contains("first") && !printed.contains("k1"), "{printed}");

    fs::write(path("token"), "second").unwrap();
    ask(&judge, "a text").await.unwrap();
    assert_eq!(sent("authorization"), "Bearer second");

    let calls = remote.calls();
    for (contents, fault) in [("", "an empty value"), ("a\nb", "control characters")] {
        fs::write(path("key"), contents).unwrap();
        let error = error(&judge, "a text").await;
        let path = path("key");
        let expected = format!(
            "failed to use {}: expected one line of visible characters, found {fault}",
            path.display()
        );
        assert!(error.ends_with(&expected), "{error}");
    }
    fs::remove_file(path("key")).unwrap();
    let error = error(&judge, "a text").await;
    assert!(error.starts_with(&format!("failed to read {}: ", path("key").display())), "{error}");
    assert_eq!(remote.calls(), calls);
}

#[test]
fn invalid_options_name_the_key_and_the_expected_values() {
    let files = TempDir::new().unwrap();
    let bad = files.path().join("bad");
    fs::write(&bad, "secret\nsecret").unwrap();
    let missing = files.path().join("missing");
    let local = "http://127.0.0.1:1";
    for (options, expected) in [
        (
            json!({ "url": "ftp://host" }),
            r#"url: expected http[s]://host[:port][/path], found the scheme "ftp""#,
        ),
        (
            json!({ "url": "host:80/" }),
            "url: expected http[s]://host[:port][/path], found the scheme \"host\"",
        ),
        (json!({ "url": "" }), "url: relative URL without a base, expected http"),
        (
            json!({ "url": "http://u:secret@host" }),
            "url: expected http[s]://host[:port][/path], found a user or password",
        ),
        (
            json!({ "url": "http://host", "tokenFile": bad }),
            "url: expected https or, without caFile, http to a loopback address, found plain http with caFile",
        ),
        (json!({ "url": local, "caFile": bad }), "url: expected https or, without caFile, http"),
        (json!({ "url": "https://host", "caFile": bad }), "caFile: failed to use /"),
        (json!({ "url": local, "tokenFile": bad }), "tokenFile: failed to use /"),
        (json!({ "url": local, "headerFiles": { "a": missing } }), "headerFiles: failed to read /"),
        (
            json!({ "url": local, "headers": { "a b": "c" } }),
            r#"headers: expected the name of a header, found "a b""#,
        ),
        (
            json!({ "url": local, "headers": { "a": "" } }),
            "headers.a: expected one line of visible characters, found an empty value",
        ),
        (
            json!({ "url": local, "api": "fms" }),
            "headers: expected detector-id with the name of a detector, found none",
        ),
        (
            json!({ "url": local, "api": "nemo" }),
            "parameters: expected model with the name of a model, found none",
        ),
        (
            json!({ "url": local, "api": "presidio", "threshold": 2 }),
            "threshold: expected 0 to 1, for the APIs presidio and fms, found 2",
        ),
        (
            json!({ "url": local, "threshold": 0.5 }),
            "threshold: expected 0 to 1, for the APIs presidio and fms, found 0.5",
        ),
    ] {
        let error = fault(options);
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    let unknown = json!({ "url": local, "api": "grpc" });
    let error = serde_json::from_value::<HttpOptions>(unknown).unwrap_err().to_string();
    assert!(error.contains("expected one of `plain`, `fms`, `presidio`, `nemo`, `litellm`"), "{error}");
}

#[tokio::test]
async fn a_path_of_the_url_is_kept() {
    let remote = Remote::answering(json!({ "status": "success" })).await;
    let url = format!("http://{}/v1/guardrail/checks?trace=1", remote.address);
    let judge = judge(json!({ "url": url, "api": "nemo", "parameters": { "model": "m" } })).unwrap();
    ask(&judge, "a text").await.unwrap();
    assert_eq!(remote.requests()[0].path, "/v1/guardrail/checks");
}

#[tokio::test]
async fn the_ca_file_determines_the_trusted_servers() {
    let ca = || {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let (ca, other) = (ca(), ca());
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    let tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = router(Arc::default(), |_| axum::Json(json!({ "allowed": true })).into_response());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, router) = (acceptor.clone(), router.clone());
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await?;
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                drop(server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await);
                Ok::<_, std::io::Error>(())
            });
        }
    });
    let files = TempDir::new().unwrap();
    let file = files.path().join("ca.pem");
    for (ca, is_trusted) in [(&other, false), (&ca, true)] {
        fs::write(&file, ca.pem()).unwrap();
        let judge =
            judge(json!({ "url": format!("https://localhost:{port}"), "caFile": file, "retries": 0 }))
                .unwrap();
        match is_trusted {
            true => assert_eq!(ask(&judge, "a text").await.unwrap(), Verdict::Allow),
            false => {
                let error = error(&judge, "a text").await;
                assert!(error.contains("certificate"), "{error}");
            }
        }
    }
}
