//! The number of concurrent requests is limited.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::join_all;
use lucid_notary::client::Answer;
use lucid_notary::client::concurrency::ConcurrencyLayer;
use tokio::sync::Semaphore;
use tower::Layer;

use crate::common::{Scrape, Script, ask, many, until};

#[tokio::test]
async fn the_others_wait_for_their_turn_and_all_are_answered() {
    let answers = Arc::new(Semaphore::new(0));
    let released = Arc::clone(&answers);
    let script = Script::waiting(move |_| {
        let released = Arc::clone(&released);
        async move {
            released.acquire().await?.forget();
            Ok(Answer::Notarized)
        }
        .boxed()
    });
    let scrape = Scrape::new();
    let layer = ConcurrencyLayer::new(3).metrics(scrape.metrics.clone());
    // Services of one layer share its limit.
    let services = [layer.layer(script.service.clone()), layer.layer(script.service.clone())];
    let asks: Vec<_> = many(10)
        .into_iter()
        .enumerate()
        .map(|(index, digest)| {
            let service = services[index % 2].clone();
            tokio::spawn(async move { ask(&service, digest).await })
        })
        .collect();
    let shown = |series: &str| scrape.value(series);
    until(async || shown("verifier_asks_waiting") == 7.0 && shown("verifier_asks_in_flight") == 3.0).await;
    assert_eq!(script.calls(), 3);
    answers.add_permits(1);
    until(async || script.calls() == 4).await;
    answers.add_permits(100);
    for answer in join_all(asks).await {
        assert_eq!(answer.unwrap().unwrap(), Answer::Notarized);
    }
    assert_eq!((shown("verifier_asks_waiting"), shown("verifier_asks_in_flight")), (0.0, 0.0));
}
