//! The circuit breaker pauses requests to an unavailable Verifier.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use lucid_notary::client::breaker::{BreakerLayer, BreakerOpen};
use lucid_notary::client::{Answer, is_outage};
use tokio::sync::Notify;
use tower::{BoxError, Layer};

use crate::common::{Fail, PATIENCE, Scrape, Script, ask, digest, malformed, outage, status, timeout, until};

const LONG: Duration = PATIENCE;

fn is_open(error: &BoxError) -> bool {
    error.is::<BreakerOpen>()
}

#[tokio::test]
async fn after_so_many_failures_in_a_row_nothing_is_asked() {
    let script = Script::new(|call| if call == 1 { Ok(Answer::Notarized) } else { Err(outage()) });
    let scrape = Scrape::new();
    let service = BreakerLayer::new(3, LONG).metrics(scrape.metrics.clone()).layer(script.service.clone());
    // One failure, one success, three failures.
    for _ in 0..5 {
        let outcome = ask(&service, digest('a')).await;
        assert!(!outcome.is_err_and(|error| is_open(&error)));
    }
    let begun = Instant::now();
    let error = ask(&service, digest('b')).await.unwrap_err();
    assert!(is_open(&error) && is_outage(&*error), "{error}");
    assert!(error.downcast_ref::<BreakerOpen>().unwrap().retry_after <= LONG);
    assert!(begun.elapsed() < LONG, "nobody waits");
    assert_eq!(script.calls(), 5);
    assert_eq!(scrape.value("verifier_breaker_state{state=\"open\"}"), 1.0);
    assert_eq!(scrape.value("verifier_breaker_state{state=\"closed\"}"), 0.0);
    assert_eq!(scrape.value("verifier_breaker_refused_total"), 1.0);
}

#[tokio::test]
async fn a_pause_beyond_the_end_of_the_clock_is_one_that_never_ends() {
    let script = Script::new(|_| Err(outage()));
    let service = BreakerLayer::new(1, Duration::MAX).layer(script.service.clone());
    ask(&service, digest('a')).await.unwrap_err();
    assert!(is_open(&ask(&service, digest('a')).await.unwrap_err()));
}

#[tokio::test]
async fn a_probe_that_succeeds_closes_it() {
    let script = Script::new(|call| if call == 0 { Err(outage()) } else { Ok(Answer::Notarized) });
    let scrape = Scrape::new();
    let layer = BreakerLayer::new(1, Duration::from_millis(30)).metrics(scrape.metrics.clone());
    let service = layer.layer(script.service.clone());
    ask(&service, digest('a')).await.unwrap_err();
    until(async || ask(&service, digest('a')).await.is_ok()).await;
    assert_eq!(script.calls(), 2);
    ask(&service, digest('a')).await.unwrap();
    assert_eq!(scrape.value("verifier_breaker_state{state=\"closed\"}"), 1.0);
}

#[tokio::test]
async fn a_probe_that_fails_opens_it_again() {
    let script = Script::new(|_| Err(outage()));
    let service = BreakerLayer::new(2, Duration::from_millis(30)).layer(script.service.clone());
    for _ in 0..2 {
        ask(&service, digest('a')).await.unwrap_err();
    }
    until(async || !is_open(&ask(&service, digest('a')).await.unwrap_err())).await;
    assert_eq!(script.calls(), 3);
    assert!(is_open(&ask(&service, digest('a')).await.unwrap_err()), "one failure of a probe is enough");
}

#[tokio::test]
async fn while_one_probes_the_others_are_told_at_once() {
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
    let service = BreakerLayer::new(1, Duration::ZERO).layer(script.service.clone());
    ask(&service, digest('a')).await.unwrap_err();
    let probe = tokio::spawn({
        let service = service.clone();
        async move { ask(&service, digest('a')).await }
    });
    until(async || script.calls() == 2).await;
    let error = ask(&service, digest('b')).await.unwrap_err();
    assert_eq!(error.downcast_ref::<BreakerOpen>().unwrap().retry_after, Duration::ZERO);
    answer.notify_one();
    assert_eq!(probe.await.unwrap().unwrap(), Answer::Notarized);
    answer.notify_one();
    ask(&service, digest('b')).await.unwrap();
}

#[tokio::test]
async fn a_probe_that_is_dropped_leaves_its_place_to_the_next() {
    let script = Script::waiting(|call| match call {
        0 => async { Err(outage()) }.boxed(),
        1 => pending().boxed(),
        _ => async { Ok(Answer::Notarized) }.boxed(),
    });
    let service = BreakerLayer::new(1, Duration::ZERO).layer(script.service.clone());
    ask(&service, digest('a')).await.unwrap_err();
    let dropped = tokio::time::timeout(Duration::from_millis(20), ask(&service, digest('a'))).await;
    assert!(dropped.is_err() && script.calls() == 2);
    ask(&service, digest('a')).await.unwrap();
}

#[tokio::test]
async fn an_ask_that_began_before_it_opened_does_not_close_it() {
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
    let service = BreakerLayer::new(1, LONG).layer(script.service.clone());
    let early = tokio::spawn({
        let service = service.clone();
        async move { ask(&service, digest('a')).await }
    });
    until(async || script.calls() == 1).await;
    ask(&service, digest('a')).await.unwrap_err();
    answer.notify_one();
    early.await.unwrap().unwrap();
    assert!(is_open(&ask(&service, digest('a')).await.unwrap_err()));
}

/// The author of a pod controls the requested digests and must not be able to open the breaker.
#[tokio::test]
async fn only_an_outage_is_a_failure() {
    let cases: [(&str, Fail, bool); 9] = [
        ("timeout", timeout, true),
        ("429", || status(429), true),
        ("500", || status(500), true),
        ("malformed", malformed, true),
        ("302", || status(302), false),
        ("400", || status(400), false),
        ("401", || status(401), false),
        ("404", || status(404), false),
        ("of nobody we know", || "other".into(), false),
    ];
    for (name, error, is_failure) in cases {
        assert_eq!(is_outage(&*error()), is_failure, "{name}");
        let script = Script::new(move |_| Err(error()));
        let service = BreakerLayer::new(1, LONG).layer(script.service.clone());
        ask(&service, digest('a')).await.unwrap_err();
        let error = ask(&service, digest('a')).await.unwrap_err();
        assert_eq!(is_open(&error), is_failure, "{name}");
    }
}
