//! The HTTP client against a server with scripted faults.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use futures::future::join_all;
use lucid_notary::client::{Answer, HttpVerifier, Verifier, VerifierError};
use lucid_notary::{Digest, NotaryVerdict};
use tempfile::NamedTempFile;
use tokio::net::TcpListener;
use tower::Service;

use crate::common::{PATIENCE, digest, honest, in_time, many};
use crate::server::{Reply, Server};

const MAX_IN_FLIGHT: usize = 8;

/// Sends one request. This service is always ready.
async fn request(verifier: &HttpVerifier, digest: &Digest) -> Result<Answer, VerifierError> {
    let mut verifier = verifier.clone();
    verifier.call(digest.clone()).await
}

async fn check_all(
    verifier: HttpVerifier,
    digests: impl IntoIterator<Item = Digest>,
    deadline: Instant,
) -> BTreeMap<Digest, NotaryVerdict> {
    let verifier = Verifier::builder(verifier).with_deadline(PATIENCE).build();
    let checked = verifier.check_all(digests, deadline).await;
    checked.into_iter().map(|(digest, checked)| (digest, checked.verdict)).collect()
}

#[tokio::test]
async fn the_response_of_the_verifier_is_returned() {
    let server = Server::start(honest).await;
    let verifier = HttpVerifier::builder(&server.url()).build().unwrap();
    assert_eq!(request(&verifier, &digest('a')).await.unwrap(), Answer::Notarized);
    assert_eq!(request(&verifier, &digest('b')).await.unwrap(), Answer::NotNotarized);
    let expected = ['a', 'b'].map(|c| format!("/registry/check?digest={}", digest(c)));
    assert_eq!(server.requests(), expected);
}

#[tokio::test]
async fn the_path_of_the_base_url_is_kept() {
    let server = Server::start(honest).await;
    for (base, path) in [("", ""), ("/", ""), ("/notary", "/notary"), ("/a%2Fb/c/", "/a%2Fb/c")] {
        let verifier = HttpVerifier::builder(&format!("{}{base}", server.url())).build().unwrap();
        request(&verifier, &digest('a')).await.unwrap();
        assert_eq!(
            *server.requests().last().unwrap(),
            format!("{path}/registry/check?digest={}", digest('a'))
        );
    }
}

#[tokio::test]
async fn misleading_base_urls_are_rejected() {
    for (url, reason) in [
        ("", "expected http[s]://host[:port][/path]"),
        ("verifier.example", "expected http[s]://host[:port][/path]"),
        ("http://", "expected http[s]://host[:port][/path]"),
        ("ftp://verifier.example", "the scheme \"ftp\"; expected http or https"),
        ("localhost:8080", "the scheme \"localhost\""),
        ("https://user:hunter2@verifier.example", "a user or password"),
        ("https://user@verifier.example", "a user or password"),
        ("https://verifier.example/?a=b", "a query"),
        ("https://verifier.example/#part", "a fragment"),
    ] {
        let builder = HttpVerifier::builder(url);
        assert!(!format!("{builder:?}").contains("hunter2"));
        let message = builder.build().unwrap_err().to_string();
        assert!(message.contains(reason) && !message.contains("hunter2"), "{url}: {message}");
    }
}

#[tokio::test]
async fn invalid_root_certificates_are_rejected() {
    let file = NamedTempFile::new().unwrap();
    let with_roots = |pem: &str| {
        fs::write(&file, pem).unwrap();
        HttpVerifier::builder("https://verifier.example").with_root_certificates_file(file.path()).build()
    };
    for pem in ["", "not PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let message = with_roots(pem).expect_err(pem).to_string();
        assert!(message.contains(file.path().to_str().unwrap()), "{message}");
    }
    assert!(with_roots("").unwrap_err().to_string().contains("failed to find a certificate"));

    let [first, second] = [(); 2].map(|()| {
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertificateParams::default().self_signed(&key).unwrap().pem()
    });
    with_roots(&(first.clone() + &second)).unwrap();
    for (pem, problem) in [
        (first.trim_end().to_owned() + &second, "a line for each BEGIN and END"),
        (first.clone() + &second.replace('\n', "\r"), "CR alone"),
        (first.clone() + &second.replace('\n', "\\n"), "escaped"),
        (format!("\u{feff}{first}"), "byte order mark"),
        (first.clone() + &second.replace("CERTIFICATE", "TRUSTED CERTIFICATE"), "holds certificates"),
    ] {
        let message = with_roots(&pem).expect_err(problem).to_string();
        assert!(message.contains(problem) && message.contains(file.path().to_str().unwrap()), "{message}");
    }
}

#[tokio::test]
async fn an_invalid_response_is_an_error_that_names_the_fault() {
    let requested = digest('a');
    let about = |digest: &Digest| Reply::notarized(digest.as_str(), true);
    let status = |status, body: &Reply| match body.clone() {
        Reply::Response { body, .. } => Reply::Response { status, header: None, body },
        _ => unreachable!(),
    };
    let redirect = |status| Reply::Response {
        status,
        header: Some(("location", "/elsewhere".to_owned())),
        body: String::new(),
    };
    let digest_only = format!(r#"{{"digest":"{requested}"}}"#);
    let cases = [
        ("500", status(500, &about(&requested)), "expected status 200 OK, found 500 Internal Server Error"),
        ("404", status(404, &about(&requested)), "found 404 Not Found"),
        ("201", status(201, &about(&requested)), "found 201 Created"),
        ("204", status(204, &Reply::ok("")), "found 204 No Content"),
        ("302", redirect(302), "found 302 Found"),
        ("307", redirect(307), "found 307 Temporary Redirect"),
        ("empty", Reply::ok(""), "failed to parse the response"),
        ("garbage", Reply::ok("<html>"), "expected {\"digest\":\"sha256:…\",\"notarized\":true}"),
        (
            "other type",
            Reply::ok(format!(r#"{{"digest":"{requested}","notarized":"yes"}}"#)),
            "invalid type: string",
        ),
        ("no verdict", Reply::ok(digest_only), "missing field `notarized`"),
        ("no digest", Reply::ok(r#"{"notarized":true}"#), "missing field `digest`"),
        ("list", Reply::ok(format!(r#"["{requested}",true]"#)), "invalid type: sequence, expected an object"),
        (
            "two verdicts",
            Reply::ok(format!(r#"{{"digest":"{requested}","notarized":false,"notarized":true}}"#)),
            "duplicate field `notarized`",
        ),
        (
            "two answers",
            Reply::ok(format!(r#"{{"digest":"{requested}","notarized":true}} {{}}"#)),
            "trailing characters",
        ),
        ("other digest", about(&digest('c')), "found \"sha256:cccc"),
        (
            "upper case",
            Reply::ok(format!(r#"{{"digest":"sha256:{}","notarized":true}}"#, "A".repeat(64))),
            "rejected the response",
        ),
        ("huge", Reply::ok(" ".repeat(10 << 20)), "the response is longer than the limit of 65536 bytes"),
        (
            "long string",
            Reply::ok(format!(r#"{{"digest":"{}","notarized":true}}"#, "x".repeat(60_000))),
            "rejected the response",
        ),
        ("not HTTP", Reply::Raw(b"SSH-2.0-x\r\n"), "invalid HTTP"),
        ("closed", Reply::Raw(b""), "connection closed before message completed"),
        (
            "cut",
            Reply::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"digest\":\"sha256:"),
            "end of file",
        ),
    ];
    for (name, reply, reason) in cases {
        let server = Server::start(move |_| reply.clone()).await;
        let verifier = HttpVerifier::builder(&server.url()).with_timeout(PATIENCE).build().unwrap();
        let message = request(&verifier, &requested).await.expect_err(name).to_string();
        assert!(message.contains(reason), "{name}: {message}");
        assert!(message.contains(&server.url()), "{name}: the message names the origin: {message}");
        assert!(message.len() < 1_000, "{name}: the message is short: {message}");
        assert!(server.requests().len() <= 1, "{name}: nothing is followed: {:?}", server.requests());
    }
}

#[tokio::test]
async fn a_hanging_verifier_times_out() {
    let server = Server::start(|_| Reply::Hang).await;
    let verifier =
        HttpVerifier::builder(&server.url()).with_timeout(Duration::from_millis(100)).build().unwrap();
    let started = Instant::now();
    let error = request(&verifier, &digest('a')).await.unwrap_err();
    assert!(matches!(error, VerifierError::Timeout { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        format!("failed to query the Verifier at {}: no response within 100ms", server.url())
    );
    assert!((Duration::from_millis(100)..Duration::from_mins(1)).contains(&started.elapsed()));
}

#[tokio::test]
async fn a_refused_connection_is_reported() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let verifier = HttpVerifier::builder(&format!("http://{free}")).build().unwrap();
    let message = request(&verifier, &digest('a')).await.unwrap_err().to_string();
    assert!(
        message.starts_with(&format!("failed to query the Verifier at http://{free}: Connection refused")),
        "{message}"
    );
}

#[tokio::test]
async fn root_certificates_are_trusted_only_if_configured() {
    let server = Server::start_tls(honest).await;
    let builder = HttpVerifier::builder(&server.tls_url());
    let verifier = builder.clone().with_root_certificates_file(server.root.path()).build().unwrap();
    assert_eq!(request(&verifier, &digest('a')).await.unwrap(), Answer::Notarized);

    let other = Server::start_tls(honest).await;
    let verifier = builder.with_root_certificates_file(other.root.path()).build().unwrap();
    let message = request(&verifier, &digest('a')).await.unwrap_err().to_string();
    assert!(message.contains("invalid peer certificate"), "{message}");
}

#[tokio::test]
async fn each_distinct_digest_is_requested_once() {
    let server = Server::start(|target| match target {
        broken if broken.ends_with('c') => Reply::ok("broken"),
        target => honest(target),
    })
    .await;
    let verifier = HttpVerifier::builder(&server.url()).build().unwrap();
    let digests = ['a', 'b', 'a', 'c', 'b', 'a'].map(digest);
    let mut verdicts = check_all(verifier, digests, in_time()).await;
    let Some(NotaryVerdict::Unknown { reason }) = verdicts.remove(&digest('c')) else {
        panic!("{verdicts:?}")
    };
    assert!(reason.starts_with("failed to parse the response of the Verifier at"), "{reason}");
    let expected = [(digest('a'), NotaryVerdict::Notarized), (digest('b'), NotaryVerdict::NotNotarized)];
    assert_eq!(verdicts, BTreeMap::from(expected));
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn only_digests_that_miss_the_deadline_are_unknown() {
    let server = Server::start(|target| match target {
        late if !late.ends_with('f') => Reply::Hang,
        target => honest(target),
    })
    .await;
    let verifier =
        HttpVerifier::builder(&server.url()).with_timeout(Duration::from_secs(60)).build().unwrap();
    let started = Instant::now();
    let digests = ['a', 'b', 'c', 'd', 'e', 'f'].map(digest);
    let mut verdicts = check_all(verifier, digests, started + Duration::from_secs(3)).await;
    assert!(started.elapsed() < Duration::from_mins(1));
    assert_eq!(server.requests().len(), 6, "the ones that hang hold up nobody");
    assert_eq!(verdicts.remove(&digest('f')), Some(NotaryVerdict::Notarized));
    for (digest, verdict) in verdicts {
        let late = NotaryVerdict::Unknown { reason: "the check did not end before the deadline".to_owned() };
        assert_eq!(verdict, late, "{digest}");
    }
}

#[tokio::test]
async fn the_number_of_requests_in_flight_is_bounded() {
    let server = Server::start(|_| Reply::Hang).await;
    let verifier =
        HttpVerifier::builder(&server.url()).with_timeout(Duration::from_secs(60)).build().unwrap();
    let verdicts = check_all(verifier, many(4_000), Instant::now() + Duration::from_secs(3)).await;
    assert_eq!(verdicts.len(), 4_000);
    assert!(verdicts.values().all(|verdict| matches!(verdict, NotaryVerdict::Unknown { .. })));
    assert_eq!(server.requests().len(), MAX_IN_FLIGHT);
}

#[tokio::test]
async fn many_digests_share_a_few_connections() {
    let server = Server::start(honest).await;
    let verifier = HttpVerifier::builder(&server.url()).build().unwrap();
    let verdicts = check_all(verifier, many(500), in_time()).await;
    assert!(verdicts.len() == 500 && verdicts.values().all(NotaryVerdict::is_notarized), "{verdicts:?}");
    assert_eq!(server.requests().len(), 500);
    assert!(server.connections() <= MAX_IN_FLIGHT, "{} connections", server.connections());
}

#[tokio::test]
async fn few_idle_connections_are_kept() {
    let server = Server::start(honest).await;
    let verifier = HttpVerifier::builder(&server.url()).with_timeout(PATIENCE).build().unwrap();
    let digests = many(100);
    join_all(digests.iter().map(|digest| request(&verifier, digest))).await;
    let started = Instant::now();
    while server.open_connections() > MAX_IN_FLIGHT {
        assert!(started.elapsed() < Duration::from_mins(1), "{} are open", server.open_connections());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_empty_list_has_no_verdicts_even_after_the_deadline() {
    let verifier = HttpVerifier::builder("http://127.0.0.1:1").build().unwrap();
    assert!(check_all(verifier, [], Instant::now() - Duration::from_secs(1)).await.is_empty());
}

/// Runs in a child process, because a running process cannot change its environment safely.
#[test]
fn the_proxy_of_the_environment_is_not_used() {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "http::the_response_of_the_verifier_is_returned"])
        .envs(["http_proxy", "HTTP_PROXY", "ALL_PROXY"].map(|name| (name, "http://127.0.0.1:1")))
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .status()
        .unwrap();
    assert!(status.success());
}
