//! Transient failures are retried.

use std::time::{Duration, Instant};

use lucid_notary::client::Answer;

use crate::common::{Fail, PATIENCE, Scrape, Script, digest, malformed, outage, status, timeout};

#[tokio::test]
async fn a_request_is_retried_until_it_succeeds() {
    let script = Script::new(|call| match call {
        0 => Err(outage()),
        1 => Err(timeout()),
        _ => Ok(Answer::Notarized),
    });
    let scrape = Scrape::new();
    let verifier = script.client().with_retries(2).with_metrics(scrape.metrics.clone()).build();
    assert!(verifier.check(digest('a')).await.verdict.is_notarized());
    assert_eq!(script.calls(), 3);
    assert_eq!(scrape.value("verifier_retries_total"), 2.0);
}

#[tokio::test]
async fn the_last_error_is_the_result() {
    let script = Script::new(|call| Err(status(500 + u16::try_from(call).unwrap())));
    let verifier = script.client().with_retries(2).build();
    let error = verifier.check(digest('a')).await.to_string();
    assert!(error.contains("502 Bad Gateway"), "{error}");
    assert_eq!(script.calls(), 3);
}

#[tokio::test]
async fn only_transient_failures_are_retried() {
    let cases: [(&str, Fail, usize); 10] = [
        ("timeout", timeout, 2),
        ("408", || status(408), 2),
        ("429", || status(429), 2),
        ("500", || status(500), 2),
        ("503", || status(503), 2),
        ("307", || status(307), 1),
        ("401", || status(401), 1),
        ("404", || status(404), 1),
        ("malformed", malformed, 1),
        ("of another service", || "other".into(), 1),
    ];
    for (name, error, calls) in cases {
        let script = Script::new(move |_| Err(error()));
        let verifier = script.client().with_retries(1).build();
        assert_eq!(verifier.check(digest('a')).await.to_string(), format!("unknown: {}", error()));
        assert_eq!(script.calls(), calls, "{name}");
    }
}

#[tokio::test]
async fn retries_end_at_the_deadline() {
    let script = Script::new(|_| Err(outage()));
    let verifier = script.client().with_deadline(Duration::from_millis(200)).with_retries(1_000).build();
    let begun = Instant::now();
    assert!(!verifier.check(digest('a')).await.verdict.is_notarized());
    assert!(begun.elapsed() < PATIENCE);
    // The backoff is at least 50 ms, then 100 ms: a third retry exceeds the deadline.
    assert!((1..=3).contains(&script.calls()), "{}", script.calls());
}

#[tokio::test]
async fn an_open_breaker_ends_retries() {
    let script = Script::new(|_| Err(outage()));
    let verifier = script.client().with_retries(10).with_breaker(2, PATIENCE).build();
    let error = verifier.check(digest('a')).await.to_string();
    assert!(error.contains("circuit breaker open"), "{error}");
    assert_eq!(script.calls(), 2);
}
