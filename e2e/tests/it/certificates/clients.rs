//! Who is let in.

use lucid_e2e::Operator;

use super::{Authority, Pair, eventually, is_admitted, logged};
use crate::common::{cluster, operator};

/// What a client gets to hear with this certificate: the status of the answer, or nothing without a handshake.
async fn call(operator: &Operator, client: Option<&Pair>) -> Option<u16> {
    let mut builder = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy();
    if let Some(pair) = client {
        let pem = format!("{}{}", pair.certificate, pair.key);
        builder = builder.identity(reqwest::Identity::from_pem(pem.as_bytes()).unwrap());
    }
    let answer = builder.build().unwrap().get(format!("{}/mutate", operator.url())).send().await.ok()?;
    Some(answer.status().as_u16())
}

#[tokio::test]
async fn only_clients_with_a_certificate_of_the_authorities_in_the_file_are_let_in() {
    let cluster = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clients.crt");
    let [first, second] = ["first", "second"].map(Authority::new);
    std::fs::write(&file, &first.certificate).unwrap();
    let path = file.to_str().unwrap().to_owned();
    let settings = |operator: lucid_e2e::OperatorBuilder| {
        operator.env("LUCID_CLIENT_CA", path).env("LUCID_CLIENT_NAMES", "kube-apiserver,other")
    };
    let operator = operator(&cluster, settings).await;
    let good = first.issue("kube-apiserver", Vec::new());
    let is_in = |status| status == Some(405);
    assert!(is_in(call(&operator, Some(&good)).await));
    for (what, client) in [
        ("no certificate", None),
        ("another name", Some(first.issue("somebody", Vec::new()))),
        ("another authority", Some(second.issue("kube-apiserver", Vec::new()))),
    ] {
        assert_eq!(call(&operator, client.as_ref()).await, None, "{what} is let in");
    }

    // An authority in place of the other counts at once, and what cannot be read changes nothing.
    let new = second.issue("kube-apiserver", Vec::new());
    std::fs::write(&file, &second.certificate).unwrap();
    eventually("the new authority does not count", async || is_in(call(&operator, Some(&new)).await)).await;
    assert_eq!(call(&operator, Some(&good)).await, None, "the authority before still counts");
    std::fs::write(&file, "no certificate").unwrap();
    logged(&operator, "clients.crt").await;
    assert!(is_in(call(&operator, Some(&new)).await));
}

#[tokio::test]
async fn versions_of_tls_that_are_too_old_are_not_spoken() {
    let cluster = cluster().await;
    for (minimum, is_spoken) in [("1.2", true), ("1.3", false)] {
        let operator = operator(&cluster, |operator| operator.env("LUCID_TLS_MIN_VERSION", minimum)).await;
        let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy();
        let client = client.tls_version_max(reqwest::tls::Version::TLS_1_2).build().unwrap();
        let answer = client.get(format!("{}/mutate", operator.url())).send().await;
        assert_eq!(answer.is_ok(), is_spoken, "with {minimum} at least: {answer:?}");
        is_admitted(&cluster, &format!("web-{}", minimum.replace('.', "-"))).await;
    }
}
