//! Earlier verdicts replace those of an unavailable Verifier.

use std::time::Duration;

use lucid_notary::client::cache::CacheLayer;
use lucid_notary::client::last_known_good::LastKnownGoodLayer;
use lucid_notary::client::{Answer, Cache, TimeToLive};
use lucid_notary::{Checked, Digest, Provenance};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder};

use crate::common::{Outcome, PATIENCE, Scrape, Script, ask, digest, outage, status, told, until};

/// Builds a service whose cached verdicts expire at once.
fn service(
    script: &Script,
    oldest: Duration,
    scrape: &Scrape,
) -> BoxCloneSyncService<Digest, Checked, BoxError> {
    let mut time_to_live = TimeToLive::default();
    time_to_live.notarized = Duration::ZERO;
    time_to_live.not_notarized = Duration::ZERO;
    let cache = Cache::new(time_to_live, 10);
    BoxCloneSyncService::new(
        ServiceBuilder::new()
            .layer(LastKnownGoodLayer::new(&cache, oldest).metrics(scrape.metrics.clone()))
            .layer(CacheLayer::new(&cache))
            .service(script.service.clone()),
    )
}

fn script(outcomes: fn(usize) -> Outcome) -> (Script, Scrape) {
    (Script::new(outcomes), Scrape::new())
}

#[tokio::test]
async fn during_an_outage_it_is_the_answer_and_marked_with_its_age() {
    let (script, scrape) = script(|call| if call == 0 { Ok(Answer::Notarized) } else { Err(outage()) });
    let service = service(&script, PATIENCE, &scrape);
    assert_eq!(told(&ask(&service, digest('a')).await.unwrap()).1, "asked");
    // The second request finds the cached failure, which counts as an outage as well.
    for _ in 0..2 {
        let checked = ask(&service, digest('a')).await.unwrap();
        assert!(checked.verdict.is_notarized());
        let Provenance::LastKnownGood { age } = checked.provenance else { panic!("{checked:?}") };
        assert!(age > Duration::ZERO && age < PATIENCE);
        assert_eq!(checked.to_string(), "notarized (last known good, 0 s old)");
    }
    assert_eq!(script.calls(), 2);
    assert_eq!(scrape.value("verifier_last_known_good_total"), 2.0);
    // There is no earlier verdict on another digest.
    assert!(ask(&service, digest('b')).await.is_err());
}

#[tokio::test]
async fn its_age_is_bounded_and_an_outage_does_not_make_it_younger() {
    let (script, scrape) = script(|call| if call == 0 { Ok(Answer::Notarized) } else { Err(outage()) });
    let service = service(&script, Duration::from_millis(100), &scrape);
    ask(&service, digest('a')).await.unwrap();
    until(async || ask(&service, digest('a')).await.is_err()).await;
}

#[tokio::test]
async fn what_was_revoked_or_never_notarized_is_not_good() {
    let (script, scrape) = script(|call| match call {
        0 => Ok(Answer::Notarized),
        1 => Ok(Answer::NotNotarized),
        _ => Err(outage()),
    });
    let service = service(&script, PATIENCE, &scrape);
    ask(&service, digest('a')).await.unwrap();
    assert_eq!(told(&ask(&service, digest('a')).await.unwrap()).0, "not notarized");
    ask(&service, digest('a')).await.unwrap_err();
}

#[tokio::test]
async fn a_verifier_that_is_in_order_and_refuses_is_no_outage() {
    let (script, scrape) = script(|call| if call == 0 { Ok(Answer::Notarized) } else { Err(status(401)) });
    let service = service(&script, PATIENCE, &scrape);
    ask(&service, digest('a')).await.unwrap();
    ask(&service, digest('a')).await.unwrap_err();
}
