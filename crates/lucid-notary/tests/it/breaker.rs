//! The circuit breaker pauses requests to an unavailable Verifier.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use lucid_notary::CheckedVerdict;
use lucid_notary::client::{Answer, VerifierError};
use tokio::sync::Notify;

use crate::common::{Fail, PATIENCE, Scrape, Script, digest, malformed, outage, status, timeout, until};

const LONG: Duration = PATIENCE;

fn is_open(checked: &CheckedVerdict) -> bool {
    checked.to_string().contains("circuit breaker open")
}

fn failed(checked: &CheckedVerdict) -> bool {
    checked.to_string() == format!("unknown: {}", outage())
}

#[tokio::test]
async fn consecutive_failures_open_the_breaker() {
    let script = Script::new(|call| if call == 1 { Ok(Answer::Notarized) } else { Err(outage()) });
    let scrape = Scrape::new();
    let builder = script.uncached().with_breaker(3, LONG);
    let verifier = builder.with_metrics(scrape.metrics.clone()).build();
    // One failure, one success, three failures.
    for _ in 0..5 {
        assert!(!is_open(&verifier.check(digest('a')).await));
    }
    let begun = Instant::now();
    assert!(is_open(&verifier.check(digest('b')).await));
    assert!(begun.elapsed() < LONG, "a rejection is immediate");
    assert_eq!(script.calls(), 5);
    assert_eq!(scrape.value("verifier_breaker_state{state=\"open\"}"), 1.0);
    assert_eq!(scrape.value("verifier_breaker_state{state=\"closed\"}"), 0.0);
    assert_eq!(scrape.value("verifier_breaker_rejected_total"), 1.0);
}

#[tokio::test]
async fn a_pause_beyond_the_end_of_the_clock_never_ends() {
    let script = Script::new(|_| Err(outage()));
    let verifier = script.uncached().with_breaker(1, Duration::MAX).build();
    assert!(failed(&verifier.check(digest('a')).await));
    assert!(is_open(&verifier.check(digest('a')).await));
}

#[tokio::test]
async fn a_successful_probe_closes_the_breaker() {
    let script = Script::new(|call| if call == 0 { Err(outage()) } else { Ok(Answer::Notarized) });
    let scrape = Scrape::new();
    let builder = script.uncached().with_breaker(1, Duration::from_millis(30));
    let verifier = builder.with_metrics(scrape.metrics.clone()).build();
    assert!(failed(&verifier.check(digest('a')).await));
    until(async || verifier.check(digest('a')).await.verdict.is_notarized()).await;
    assert_eq!(script.calls(), 2);
    assert!(verifier.check(digest('a')).await.verdict.is_notarized());
    assert_eq!(scrape.value("verifier_breaker_state{state=\"closed\"}"), 1.0);
}

#[tokio::test]
async fn a_failed_probe_opens_the_breaker_again() {
    let script = Script::new(|_| Err(outage()));
    let verifier = script.uncached().with_breaker(2, Duration::from_secs(1)).build();
    for _ in 0..2 {
        assert!(failed(&verifier.check(digest('a')).await));
    }
    until(async || !is_open(&verifier.check(digest('a')).await)).await;
    assert_eq!(script.calls(), 3);
    assert!(is_open(&verifier.check(digest('a')).await), "one failure of a probe is enough");
}

#[tokio::test]
async fn other_requests_are_rejected_during_a_probe() {
    let answer = Arc::new(Notify::new());
    let notified = Arc::clone(&answer);
    let script = Script::waiting(move |call| {
        let notified = Arc::clone(&notified);
        async move {
            if call == 0 {
                return Err(outage());
            }
            notified.notified().await;
            Ok(Answer::Notarized)
        }
        .boxed()
    });
    let scrape = Scrape::new();
    let builder = script.uncached().with_breaker(1, Duration::ZERO);
    let verifier = builder.with_metrics(scrape.metrics.clone()).build();
    let is_in = |state: &str| scrape.value(&format!("verifier_breaker_state{{state=\"{state}\"}}")) == 1.0;
    assert!(is_in("closed") && !is_in("open"));
    assert!(failed(&verifier.check(digest('a')).await));
    assert!(is_in("open"));
    let probe = tokio::spawn({
        let verifier = verifier.clone();
        async move { verifier.check(digest('a')).await }
    });
    until(async || script.calls() == 2).await;
    assert!(is_open(&verifier.check(digest('b')).await));
    assert!(is_in("half_open") && !is_in("open"));
    answer.notify_one();
    assert!(probe.await.unwrap().verdict.is_notarized());
    answer.notify_one();
    assert!(verifier.check(digest('b')).await.verdict.is_notarized());
}

#[tokio::test]
async fn the_next_request_replaces_a_cancelled_probe() {
    let script = Script::waiting(|call| match call {
        0 => async { Err(outage()) }.boxed(),
        1 => pending().boxed(),
        _ => async { Ok(Answer::Notarized) }.boxed(),
    });
    let verifier =
        script.uncached().with_breaker(1, Duration::ZERO).with_deadline(Duration::from_millis(500)).build();
    assert!(failed(&verifier.check(digest('a')).await));
    // Callers do not cancel requests, but the deadline does.
    let cancelled = verifier.check(digest('a')).await;
    assert!(cancelled.to_string().contains("within 500ms") && script.calls() == 2, "{cancelled}");
    assert!(verifier.check(digest('a')).await.verdict.is_notarized());
}

#[tokio::test]
async fn a_request_from_before_the_outage_does_not_close_the_breaker() {
    let answer = Arc::new(Notify::new());
    let notified = Arc::clone(&answer);
    let script = Script::waiting(move |call| {
        let notified = Arc::clone(&notified);
        async move {
            if call > 0 {
                return Err(outage());
            }
            notified.notified().await;
            Ok(Answer::Notarized)
        }
        .boxed()
    });
    let verifier = script.uncached().with_breaker(1, LONG).build();
    let early = tokio::spawn({
        let verifier = verifier.clone();
        async move { verifier.check(digest('a')).await }
    });
    until(async || script.calls() == 1).await;
    assert!(failed(&verifier.check(digest('b')).await));
    answer.notify_one();
    assert!(early.await.unwrap().verdict.is_notarized());
    assert!(is_open(&verifier.check(digest('a')).await));
}

/// The author of a pod controls the requested digests and must not be able to open the breaker.
#[tokio::test]
async fn only_outages_open_the_breaker() {
    let cases: [(&str, Fail, bool); 9] = [
        ("timeout", timeout, true),
        ("429", || status(429), true),
        ("500", || status(500), true),
        ("malformed", malformed, true),
        ("302", || status(302), false),
        ("400", || status(400), false),
        ("401", || status(401), false),
        ("404", || status(404), false),
        ("of another service", || "other".into(), false),
    ];
    for (name, error, is_failure) in cases {
        let is_outage = error().downcast_ref().is_some_and(VerifierError::is_outage);
        assert_eq!(is_outage, is_failure, "{name}");
        let script = Script::new(move |_| Err(error()));
        let verifier = script.uncached().with_breaker(1, LONG).build();
        assert!(!is_open(&verifier.check(digest('a')).await), "{name}");
        assert_eq!(is_open(&verifier.check(digest('a')).await), is_failure, "{name}");
    }
}
