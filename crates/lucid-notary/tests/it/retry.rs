//! Transient failures are retried.

use std::time::{Duration, Instant};

use lucid_notary::client::Answer;
use lucid_notary::client::breaker::BreakerLayer;
use lucid_notary::client::deadline::DeadlineLayer;
use lucid_notary::client::retry::RetryLayer;
use tower::{Layer, ServiceBuilder};

use crate::common::{Fail, PATIENCE, Scrape, Script, ask, digest, malformed, outage, status, timeout};

#[tokio::test]
async fn an_ask_is_made_again_until_it_is_answered() {
    let script = Script::new(|call| match call {
        0 => Err(outage()),
        1 => Err(timeout()),
        _ => Ok(Answer::Notarized),
    });
    let scrape = Scrape::new();
    let service = RetryLayer::new(2).metrics(scrape.metrics.clone()).layer(script.service.clone());
    assert_eq!(ask(&service, digest('a')).await.unwrap(), Answer::Notarized);
    assert_eq!(script.calls(), 3);
    assert_eq!(scrape.value("verifier_retries_total"), 2.0);
}

#[tokio::test]
async fn after_the_last_retry_the_last_error_is_the_outcome() {
    let script = Script::new(|call| Err(status(500 + u16::try_from(call).unwrap())));
    let service = RetryLayer::new(2).layer(script.service.clone());
    let error = ask(&service, digest('a')).await.unwrap_err().to_string();
    assert!(error.contains("502 Bad Gateway"), "{error}");
    assert_eq!(script.calls(), 3);
}

#[tokio::test]
async fn only_what_may_fare_better_is_asked_again() {
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
        ("of nobody we know", || "other".into(), 1),
    ];
    for (name, error, calls) in cases {
        let script = Script::new(move |_| Err(error()));
        let service = RetryLayer::new(1).layer(script.service.clone());
        ask(&service, digest('a')).await.unwrap_err();
        assert_eq!(script.calls(), calls, "{name}");
    }
}

#[tokio::test]
async fn retries_end_at_the_deadline_around_them() {
    let script = Script::new(|_| Err(outage()));
    let service = ServiceBuilder::new()
        .layer(DeadlineLayer::new(Duration::from_millis(200)))
        .layer(RetryLayer::new(1_000))
        .service(script.service.clone());
    let begun = Instant::now();
    ask(&service, digest('a')).await.unwrap_err();
    assert!(begun.elapsed() < PATIENCE);
    // The backoff is at least 50 ms, then 100 ms: a third retry exceeds the deadline.
    assert!((1..=3).contains(&script.calls()), "{}", script.calls());
}

#[tokio::test]
async fn an_open_breaker_is_not_asked_again() {
    let script = Script::new(|_| Err(outage()));
    let service = ServiceBuilder::new()
        .layer(RetryLayer::new(10))
        .layer(BreakerLayer::new(2, PATIENCE))
        .service(script.service.clone());
    let error = ask(&service, digest('a')).await.unwrap_err().to_string();
    assert!(error.contains("circuit breaker open"), "{error}");
    assert_eq!(script.calls(), 2);
}
