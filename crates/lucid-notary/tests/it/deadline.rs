//! Requests end at their deadline.

use std::future::pending;
use std::time::{Duration, Instant};

use futures::FutureExt;
use lucid_notary::client::deadline::{DeadlineExceeded, DeadlineLayer};
use lucid_notary::client::{Answer, is_outage};
use tower::Layer;

use crate::common::{PATIENCE, Scrape, Script, ask, digest};

#[tokio::test]
async fn an_ask_that_hangs_is_given_up_at_its_deadline_which_is_an_outage() {
    let (script, scrape) = (Script::waiting(|_| pending().boxed()), Scrape::new());
    let limit = Duration::from_millis(30);
    let service = DeadlineLayer::new(limit).metrics(scrape.metrics.clone()).layer(script.service.clone());
    let begun = Instant::now();
    let error = ask(&service, digest('a')).await.unwrap_err();
    assert_eq!(error.downcast_ref::<DeadlineExceeded>().unwrap().limit, limit);
    assert!((limit..PATIENCE).contains(&begun.elapsed()));
    assert!(is_outage(&*error) && error.to_string().contains("within 30ms"), "{error}");
    assert_eq!(scrape.value("verifier_deadlines_exceeded_total"), 1.0);
}

#[tokio::test]
async fn an_answer_in_time_passes_and_so_does_an_error() {
    let script = Script::new(|call| if call == 0 { Ok(Answer::NotNotarized) } else { Err("broken".into()) });
    let service = DeadlineLayer::new(PATIENCE).layer(script.service.clone());
    assert_eq!(ask(&service, digest('a')).await.unwrap(), Answer::NotNotarized);
    assert_eq!(ask(&service, digest('a')).await.unwrap_err().to_string(), "broken");
}
