//! The complete client against a server with scripted faults.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use lucid_notary::client::{Allowlist, HttpVerifier, Verifier, VerifierBuilder};
use lucid_notary::{CheckedVerdict, Digest, NotaryVerdict, Provenance};
use tempfile::tempdir;

use crate::common::{
    PATIENCE, Scrape, Script, digest, honest, in_time, malformed, many, outage, told, until,
};
use crate::server::{Reply, Server};

fn builder(server: &Server) -> VerifierBuilder<HttpVerifier> {
    Verifier::builder(HttpVerifier::builder(&server.url()).with_timeout(PATIENCE).build().unwrap())
}

async fn one(verifier: &Verifier, digest: Digest) -> CheckedVerdict {
    verifier.check_all([digest.clone()], in_time()).await.remove(&digest).unwrap()
}

#[tokio::test]
async fn verdicts_are_cached() {
    let server = Server::start(honest).await;
    let verifier = builder(&server).build();
    let digests = ['a', 'b', 'c'].map(digest);
    for provenance in ["verifier", "cached"] {
        let all = verifier.check_all(digests.clone(), in_time()).await;
        let all: Vec<_> = all.values().map(told).collect();
        let expected =
            ["notarized", "not notarized", "notarized"].map(|verdict| (verdict.to_owned(), provenance));
        assert_eq!(all, expected);
    }
    assert_eq!(server.requests().len(), 3);
    assert_eq!(told(&verifier.check(digest('a')).await).1, "cached");
    assert_eq!(told(&verifier.check(digest('a')).await).1, "cached");
}

#[tokio::test]
async fn a_recheck_bypasses_and_updates_the_cache() {
    let is_notarized = Arc::new(AtomicBool::new(false));
    let script = Arc::clone(&is_notarized);
    let server = Server::start(move |target| {
        let digest = target.split_once("digest=").map_or("", |(_, digest)| digest);
        Reply::notarized(digest, script.load(Ordering::SeqCst))
    })
    .await;
    let verifier = builder(&server).build();
    assert_eq!(told(&one(&verifier, digest('a')).await).0, "not notarized");
    is_notarized.store(true, Ordering::SeqCst);
    let rechecked = verifier.recheck_all([digest('a')], in_time()).await;
    assert_eq!(told(&rechecked[&digest('a')]), ("notarized".to_owned(), "verifier"));
    assert_eq!(told(&one(&verifier, digest('a')).await), ("notarized".to_owned(), "cached"));
}

#[tokio::test]
async fn a_thousand_identical_requests_make_one_call() {
    let server = Server::start(honest).await;
    let verifier = builder(&server).build();
    let checks = (0..1_000).map(|_| {
        let verifier = verifier.clone();
        tokio::spawn(async move { verifier.check(digest('a')).await })
    });
    for checked in join_all(checks).await {
        assert!(checked.unwrap().verdict.is_notarized());
    }
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_late_response_is_cached() {
    let hold = Arc::new(tokio::sync::Semaphore::new(0));
    let held = Arc::clone(&hold);
    let script = Script::waiting(move |_| {
        let held = Arc::clone(&held);
        Box::pin(async move {
            held.acquire().await?.forget();
            Ok(lucid_notary::client::Answer::Notarized)
        })
    });
    let verifier = Verifier::builder(script.service.clone()).with_deadline(PATIENCE).build();
    let soon = Instant::now() + Duration::from_millis(30);
    let late = &verifier.check_all([digest('a')], soon).await[&digest('a')];
    assert_eq!(told(late).0, "unknown: the check did not end before the deadline");
    hold.add_permits(1);
    until(async || told(&one(&verifier, digest('a')).await) == ("notarized".to_owned(), "cached")).await;
    assert_eq!(script.calls(), 1);
}

#[tokio::test]
async fn the_allowlist_takes_precedence_over_the_cache() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("list");
    fs::write(&path, "").unwrap();
    let server = Server::start(honest).await;
    let list = Allowlist::open(&path, Default::default()).unwrap();
    let verifier = builder(&server).with_allowlist(list).build();
    assert_eq!(told(&one(&verifier, digest('b')).await), ("not notarized".to_owned(), "verifier"));
    fs::write(&path, digest('b').as_str()).unwrap();
    until(async || one(&verifier, digest('b')).await.provenance == Provenance::Allowlist).await;
    let rechecked = verifier.recheck_all([digest('b')], in_time()).await;
    assert_eq!(told(&rechecked[&digest('b')]), ("notarized".to_owned(), "allowlist"));
}

#[tokio::test]
async fn every_fault_is_unknown_in_time_with_a_reason() {
    let huge = Reply::ok(" ".repeat(1 << 20));
    let other = Reply::notarized(digest('c').as_str(), true);
    let redirect = Reply::Response {
        status: 302,
        header: Some(("location", "http://127.0.0.1:1/".to_owned())),
        body: String::new(),
    };
    let failing = Reply::Response { status: 500, header: None, body: "no".to_owned() };
    let cases: [(&str, Reply, &str); 9] = [
        ("slow", Reply::Drip, "no response within 200ms"),
        ("hanging", Reply::Hang, "no response within 200ms"),
        ("reset", Reply::Reset, "failed to query the Verifier"),
        ("closed", Reply::Raw(b""), "connection closed before message completed"),
        ("500", failing, "500 Internal Server Error"),
        ("garbage", Reply::ok("<html>"), "expected {\"digest\":\"sha256:…\""),
        ("redirect", redirect, "302 Found"),
        ("wrong digest", other, "rejected the response"),
        ("huge", huge, "the response is longer than"),
    ];
    for (name, reply, reason) in cases {
        let server = Server::start(move |_| reply.clone()).await;
        // A generous timeout for replies that do arrive, for busy machines.
        let timeout = if reason.contains("200ms") { Duration::from_millis(200) } else { PATIENCE };
        let http = HttpVerifier::builder(&server.url()).with_timeout(timeout).build().unwrap();
        let verifier = Verifier::builder(http).with_deadline(PATIENCE).with_retries(1).build();
        let begun = Instant::now();
        let checked = one(&verifier, digest('a')).await;
        assert!(begun.elapsed() < PATIENCE / 2, "{name}: in time");
        let NotaryVerdict::Unknown { reason: said } = &checked.verdict else { panic!("{name}: {checked}") };
        assert!(said.contains(reason), "{name}: {said}");
        // The cached failure has the same reason.
        let cached = one(&verifier, digest('a')).await;
        assert_eq!(told(&cached), (format!("unknown: {said}"), "cached"), "{name}");
    }
}

#[tokio::test]
async fn a_flapping_verifier_is_retried() {
    let calls = AtomicUsize::new(0);
    let server = Server::start(move |target| {
        let is_down = !target.is_empty() && calls.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        if is_down {
            Reply::Response { status: 503, header: None, body: String::new() }
        } else {
            honest(target)
        }
    })
    .await;
    let verifier = builder(&server).with_deadline(PATIENCE).build();
    let all = verifier.check_all(many(20), in_time()).await;
    assert!(all.values().filter(|checked| checked.verdict.is_notarized()).count() >= 10, "{all:?}");
}

#[tokio::test]
async fn an_open_breaker_rejects_requests_at_once() {
    let script = Script::new(|_| Err(outage()));
    let scrape = Scrape::new();
    let verifier = Verifier::builder(script.service.clone())
        .with_breaker(3, PATIENCE)
        .with_retries(2)
        .with_metrics(scrape.metrics.clone())
        .build();
    one(&verifier, digest('a')).await;
    assert_eq!(script.calls(), 3);
    let begun = Instant::now();
    let all = verifier.check_all(many(1_000), in_time()).await;
    assert!(begun.elapsed() < PATIENCE / 2);
    for checked in all.values() {
        let NotaryVerdict::Unknown { reason } = &checked.verdict else { panic!("{checked}") };
        assert!(reason.contains("circuit breaker open"), "{reason}");
    }
    assert_eq!(script.calls(), 3);
    assert_eq!(scrape.value("verifier_breaker_rejected_total"), 1_000.0);
    assert_eq!(scrape.value("verifier_checks_total{verdict=\"unknown\",provenance=\"verifier\"}"), 1_001.0);
    // A recheck bypasses the breaker.
    let rechecked = verifier.recheck_all([digest('a')], in_time()).await;
    assert_eq!(told(&rechecked[&digest('a')]).0, format!("unknown: {}", outage()));
}

#[tokio::test]
async fn an_invalid_response_affects_only_its_digest() {
    let script = Script::new(|call| match call {
        1 => Err(malformed()),
        _ => Ok(lucid_notary::client::Answer::Notarized),
    });
    let verifier = Verifier::builder(script.service.clone()).build();
    let all = verifier.check_all(many(5), in_time()).await;
    let unknown =
        all.values().filter(|checked| matches!(checked.verdict, NotaryVerdict::Unknown { .. })).count();
    assert_eq!(unknown, 1);
}
