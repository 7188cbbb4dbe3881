//! The number of concurrent requests is limited.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::join_all;
use lucid_notary::client::Answer;
use tokio::sync::Semaphore;

use crate::common::{PATIENCE, Scrape, Script, many, until};

#[tokio::test]
async fn further_requests_wait_and_all_complete() {
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
    let builder = script.client().with_concurrency(3).with_deadline(PATIENCE);
    // Clones share the limit.
    let verifier = builder.with_metrics(scrape.metrics.clone()).build();
    let checks: Vec<_> = many(10)
        .into_iter()
        .map(|digest| {
            let verifier = verifier.clone();
            tokio::spawn(async move { verifier.check(digest).await })
        })
        .collect();
    let shown = |series: &str| scrape.value(series);
    until(async || shown("verifier_requests_waiting") == 7.0 && shown("verifier_requests_in_flight") == 3.0)
        .await;
    assert_eq!(script.calls(), 3);
    answers.add_permits(1);
    until(async || script.calls() == 4).await;
    answers.add_permits(100);
    for checked in join_all(checks).await {
        assert!(checked.unwrap().verdict.is_notarized());
    }
    let shown = (shown("verifier_requests_waiting"), shown("verifier_requests_in_flight"));
    assert_eq!(shown, (0.0, 0.0));
}
