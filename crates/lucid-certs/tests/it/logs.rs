//! Secrets do not appear in logs.

use std::net::SocketAddr;

use kube::{Client, Config};
use lucid_certs::{
    Certificates,
    source::{CertificateSource, ObservedTrust},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};

use crate::common::{TIMEOUT, log::Log, names, now};

const KEY: &str = "VEhFLUtFWQ==";
const MALFORMED: &str = r#"{"kind":"Secret","metadata":{"name":7},"data":{"tls.key":"VEhFLUtFWQ=="}}"#;
/// A string instead of a map, which the deserialization error would quote.
const MISPLACED: &str = r#"{"kind":"Secret","metadata":{},"data":"VEhFLUtFWQ=="}"#;
const MISSING: &str = r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404}"#;

/// Starts an API server with fixed responses by method.
async fn answering(get: &'static str, created: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 65536];
                let length = connection.read(&mut request).await.unwrap();
                let body = if request[..length].starts_with(b"GET") { get } else { created };
                let status = if body == MISSING { "404 Not Found" } else { "200 OK" };
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                connection.write_all(answer.as_bytes()).await.unwrap();
            });
        }
    });
    address
}

#[tokio::test]
async fn malformed_responses_do_not_leak_keys() {
    let log = Log::begin();
    for (get, created) in [(MALFORMED, ""), (MISPLACED, ""), (MISSING, MALFORMED), (MISSING, MISPLACED)] {
        let url = format!("http://{}", answering(get, created).await);
        let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
        let mut source = Certificates::new(names()).self_managed(client, "default", "bad").unwrap();
        let offer = timeout(TIMEOUT, source.offer(&ObservedTrust::default(), now())).await.unwrap();
        let error = offer.unwrap_err().to_string();
        assert_eq!(log.lines(KEY), 0, "{}", log.text());
        assert!(error.contains("the response is not a Secret"), "{error}");
        assert!(!error.contains(KEY), "{error}");
    }
}
