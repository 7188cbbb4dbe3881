//! Concurrent checks of one digest share one request.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::join_all;
use lucid_notary::client::{Answer, Verifier};
use lucid_notary::{CheckedVerdict, NotaryVerdict};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::common::{Outcome, PATIENCE, Scrape, Script, digest, outage, time_to_live, told, until};

/// A service that responds when the test adds a permit.
fn held(answer: fn(usize) -> Outcome) -> (Script, Arc<Semaphore>) {
    let answers = Arc::new(Semaphore::new(0));
    let released = Arc::clone(&answers);
    let script = Script::waiting(move |call| {
        let released = Arc::clone(&released);
        async move {
            released.acquire().await?.forget();
            answer(call)
        }
        .boxed()
    });
    (script, answers)
}

/// Builds a client that caches all verdicts for the duration of a test.
fn client(script: &Script, scrape: &Scrape) -> Verifier {
    let builder = script.client().with_time_to_live(time_to_live(PATIENCE, PATIENCE, PATIENCE));
    builder.with_deadline(PATIENCE).with_metrics(scrape.metrics.clone()).build()
}

fn spawn(verifier: &Verifier, of: char) -> JoinHandle<CheckedVerdict> {
    let verifier = verifier.clone();
    tokio::spawn(async move { verifier.check(digest(of)).await })
}

const MISSES: &str = "verifier_cache_lookups_total{result=\"miss\"}";
const COALESCED: &str = "verifier_coalesced_total";

#[tokio::test]
async fn a_thousand_concurrent_checks_make_one_request() {
    let (script, answers) = held(|_| Ok(Answer::Notarized));
    let scrape = Scrape::new();
    let verifier = client(&script, &scrape);
    let checks: Vec<_> = (0..1_000).map(|_| spawn(&verifier, 'a')).collect();
    until(async || scrape.value(MISSES) == 1_000.0).await;
    answers.add_permits(1);
    for checked in join_all(checks).await {
        assert_eq!(told(&checked.unwrap()), ("notarized".to_owned(), "verifier"));
    }
    assert_eq!(script.calls(), 1);
    assert_eq!(scrape.value(COALESCED), 999.0);
}

#[tokio::test]
async fn a_cancelled_caller_does_not_cancel_the_request() {
    let (script, answers) = held(|_| Ok(Answer::Notarized));
    let scrape = Scrape::new();
    let verifier = client(&script, &scrape);
    let first = spawn(&verifier, 'a');
    until(async || script.calls() == 1).await;
    let second = spawn(&verifier, 'a');
    until(async || scrape.value(MISSES) == 2.0).await;
    // Cancels the caller that started the request.
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    answers.add_permits(1);
    assert!(second.await.unwrap().verdict.is_notarized());
    assert_eq!(script.calls(), 1);

    // Cancels all callers: the request still completes.
    let alone = spawn(&verifier, 'b');
    until(async || script.calls() == 2).await;
    alone.abort();
    assert!(alone.await.unwrap_err().is_cancelled());
    answers.add_permits(1);
    until(async || answers.available_permits() == 0).await;
    assert!(verifier.check(digest('b')).await.verdict.is_notarized());
    assert_eq!(script.calls(), 2);
}

#[test]
fn a_check_during_shutdown_does_not_block_it() {
    struct OnDrop<F: FnMut()>(F);

    impl<F: FnMut()> Drop for OnDrop<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }

    let script = Script::new(|_| Ok(Answer::Notarized));
    let verifier = script.client().build();
    let (told, outcome) = std::sync::mpsc::channel();
    let (ended, has_ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (begun, has_begun) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let _check = OnDrop(move || {
                let checked = verifier.check(digest('a')).now_or_never();
                told.send(checked.map(|checked| checked.verdict)).unwrap();
            });
            begun.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        has_begun.recv().unwrap();
        drop(runtime);
        ended.send(()).unwrap();
    });
    has_ended.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(outcome.recv().unwrap(), Some(NotaryVerdict::Unknown { .. })), "no task can run");
}

#[tokio::test]
async fn other_digests_and_later_checks_make_requests_of_their_own() {
    let (script, answers) = held(|_| Ok(Answer::Notarized));
    let verifier = script.uncached().with_deadline(PATIENCE).build();
    let checks = [spawn(&verifier, 'a'), spawn(&verifier, 'b')];
    until(async || script.calls() == 2).await;
    answers.add_permits(3);
    join_all(checks).await;
    assert!(verifier.check(digest('a')).await.verdict.is_notarized());
    assert_eq!(script.calls(), 3);
}

#[tokio::test]
async fn coalesced_checks_share_the_error() {
    let (script, answers) = held(|_| Err(outage()));
    let scrape = Scrape::new();
    let verifier = client(&script, &scrape);
    let checks: Vec<_> = (0..10).map(|_| spawn(&verifier, 'a')).collect();
    until(async || scrape.value(MISSES) == 10.0).await;
    answers.add_permits(1);
    for checked in join_all(checks).await {
        assert_eq!(checked.unwrap().to_string(), format!("unknown: {}", outage()));
    }
    assert_eq!(script.calls(), 1);
    assert_eq!(scrape.value(COALESCED), 9.0);
}

#[tokio::test]
async fn a_panic_fails_the_check_and_the_next_one_is_made() {
    let (script, answers) = held(|call| if call == 0 { panic!("on purpose") } else { Ok(Answer::Notarized) });
    answers.add_permits(2);
    let verifier = script.client().build();
    let failed = verifier.check(digest('a')).await.to_string();
    assert!(failed.contains("ended without a response"), "{failed}");
    assert!(verifier.check(digest('a')).await.verdict.is_notarized());
}
