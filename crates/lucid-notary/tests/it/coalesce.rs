//! Concurrent requests for one digest share one answer.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::join_all;
use lucid_notary::client::coalesce::CoalesceLayer;
use lucid_notary::client::{Answer, is_outage};
use tokio::sync::Semaphore;
use tower::Layer;

use crate::common::{Outcome, Scrape, Script, ask, digest, outage, until};

/// A service that answers when the test adds a permit.
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

#[tokio::test]
async fn a_thousand_asks_at_once_are_one() {
    let (script, answers) = held(|_| Ok(Answer::Notarized));
    let scrape = Scrape::new();
    let service = CoalesceLayer::new().metrics(scrape.metrics.clone()).layer(script.service.clone());
    let asks: Vec<_> = (0..1_000).map(|_| tokio::spawn(ask_clone(&service, 'a'))).collect();
    until(async || scrape.value("verifier_coalesced_total") == 999.0).await;
    answers.add_permits(1);
    for answer in join_all(asks).await {
        assert_eq!(answer.unwrap().unwrap(), Answer::Notarized);
    }
    assert_eq!(script.calls(), 1);
}

fn ask_clone<S>(service: &S, of: char) -> impl Future<Output = Outcome> + Send + 'static
where
    S: tower::Service<lucid_notary::Digest, Response = Answer, Error = tower::BoxError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let service = service.clone();
    async move { ask(&service, digest(of)).await }
}

#[tokio::test]
async fn a_caller_who_gives_up_fails_nobody_else_and_the_ask_goes_on_without_any() {
    let (script, answers) = held(|_| Ok(Answer::Notarized));
    let service = CoalesceLayer::new().layer(script.service.clone());
    let first = tokio::spawn(ask_clone(&service, 'a'));
    until(async || script.calls() == 1).await;
    let second = tokio::spawn(ask_clone(&service, 'a'));
    // Cancels the caller that started the request.
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    answers.add_permits(1);
    assert_eq!(second.await.unwrap().unwrap(), Answer::Notarized);
    assert_eq!(script.calls(), 1);

    // Cancels all callers: the request still completes.
    let alone = tokio::spawn(ask_clone(&service, 'a'));
    until(async || script.calls() == 2).await;
    alone.abort();
    assert!(alone.await.unwrap_err().is_cancelled());
    answers.add_permits(1);
    until(async || answers.available_permits() == 0).await;
}

#[test]
fn an_ask_while_the_runtime_ends_does_not_keep_it_from_ending() {
    struct OnDrop<F: FnMut()>(F);

    impl<F: FnMut()> Drop for OnDrop<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }

    let script = Script::new(|_| Ok(Answer::Notarized));
    let mut service = CoalesceLayer::new().layer(script.service.clone());
    let (told, outcome) = std::sync::mpsc::channel();
    let (ended, has_ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (begun, has_begun) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let _asks = OnDrop(move || {
                let answer = tower::Service::call(&mut service, digest('a')).now_or_never();
                told.send(answer.map(|answer| answer.is_err())).unwrap();
            });
            begun.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        has_begun.recv().unwrap();
        drop(runtime);
        ended.send(()).unwrap();
    });
    has_ended.recv_timeout(crate::common::PATIENCE).unwrap();
    assert_eq!(outcome.recv().unwrap(), Some(true), "nobody is there to ask");
}

#[tokio::test]
async fn others_are_asked_about_at_the_same_time_and_later_again() {
    let (script, answers) = held(|_| Ok(Answer::Notarized));
    let service = CoalesceLayer::new().layer(script.service.clone());
    let asks = [tokio::spawn(ask_clone(&service, 'a')), tokio::spawn(ask_clone(&service, 'b'))];
    until(async || script.calls() == 2).await;
    answers.add_permits(3);
    join_all(asks).await;
    ask(&service, digest('a')).await.unwrap();
    assert_eq!(script.calls(), 3);
}

#[tokio::test]
async fn all_get_the_error_too_and_know_what_it_is() {
    let (script, answers) = held(|_| Err(outage()));
    let scrape = Scrape::new();
    let service = CoalesceLayer::new().metrics(scrape.metrics.clone()).layer(script.service.clone());
    let asks: Vec<_> = (0..10).map(|_| tokio::spawn(ask_clone(&service, 'a'))).collect();
    until(async || scrape.value("verifier_coalesced_total") == 9.0).await;
    answers.add_permits(1);
    for answer in join_all(asks).await {
        let error = answer.unwrap().unwrap_err();
        assert_eq!(error.to_string(), outage().to_string());
        assert!(is_outage(&*error));
    }
    assert_eq!(script.calls(), 1);
}

#[tokio::test]
async fn an_ask_that_panics_is_an_error_and_the_next_one_is_made() {
    let (script, answers) = held(|call| if call == 0 { panic!("on purpose") } else { Ok(Answer::Notarized) });
    answers.add_permits(2);
    let service = CoalesceLayer::new().layer(script.service.clone());
    let error = ask(&service, digest('a')).await.unwrap_err().to_string();
    assert!(error.contains("ended without an answer"), "{error}");
    assert_eq!(ask(&service, digest('a')).await.unwrap(), Answer::Notarized);
}
