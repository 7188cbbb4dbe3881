//! Requests end at their deadline.

use std::future::pending;
use std::time::{Duration, Instant};

use futures::FutureExt;
use lucid_notary::client::Answer;

use crate::common::{PATIENCE, Scrape, Script, digest, told};

#[tokio::test]
async fn a_hanging_request_ends_at_its_deadline() {
    let (script, scrape) = (Script::waiting(|_| pending().boxed()), Scrape::new());
    let limit = Duration::from_millis(30);
    let verifier = script.client().with_deadline(limit).with_metrics(scrape.metrics.clone()).build();
    let begun = Instant::now();
    let checked = verifier.check(digest('a')).await;
    assert!((limit..PATIENCE).contains(&begun.elapsed()));
    assert_eq!(checked.to_string(), "unknown: the check did not end within 30ms");
    assert_eq!(scrape.value("verifier_deadlines_exceeded_total"), 1.0);
}

#[tokio::test]
async fn the_wait_for_a_permit_counts_towards_the_deadline() {
    let script = Script::waiting(|_| pending().boxed());
    let verifier = script.client().with_concurrency(1).with_deadline(Duration::from_millis(100)).build();
    let (first, second) = tokio::join!(verifier.check(digest('a')), verifier.check(digest('b')));
    for checked in [first, second] {
        assert!(checked.to_string().contains("within 100ms"), "{checked}");
    }
}

#[tokio::test]
async fn responses_and_errors_in_time_are_passed_on() {
    let script = Script::new(|call| if call == 0 { Ok(Answer::NotNotarized) } else { Err("broken".into()) });
    let verifier = script.uncached().with_deadline(PATIENCE).build();
    assert_eq!(told(&verifier.check(digest('a')).await).0, "not notarized");
    assert_eq!(told(&verifier.check(digest('a')).await).0, "unknown: broken");
}
