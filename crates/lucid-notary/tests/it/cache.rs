//! Cached verdicts are returned without a request.

use std::time::Duration;

use lucid_notary::client::{Answer, TimeToLive};
use lucid_notary::{Digest, Provenance};

use crate::common::{PATIENCE, Scrape, Script, digest, in_time, many, outage, time_to_live, told, until};

const LONG: Duration = PATIENCE;

fn long() -> TimeToLive {
    time_to_live(LONG, LONG, LONG)
}

#[tokio::test]
async fn responses_are_cached_and_marked() {
    for (outcome, verdict, result) in [
        (Some(Answer::Notarized), "notarized", "notarized"),
        (Some(Answer::NotNotarized), "not notarized", "not_notarized"),
    ] {
        let script = Script::new(move |_| outcome.clone().ok_or_else(outage));
        let scrape = Scrape::new();
        let verifier = script.client().with_time_to_live(long()).with_metrics(scrape.metrics.clone()).build();
        let first = verifier.check(digest('a')).await;
        assert_eq!(told(&first), (verdict.to_owned(), "verifier"));
        let second = verifier.check(digest('a')).await;
        assert_eq!(told(&second), (verdict.to_owned(), "cached"));
        assert_eq!(script.calls(), 1);
        assert_eq!(scrape.value("verifier_cache_lookups_total{result=\"miss\"}"), 1.0);
        assert_eq!(scrape.value(&format!("verifier_cache_lookups_total{{result=\"{result}\"}}")), 1.0);
    }
}

#[tokio::test]
async fn failures_are_cached_with_their_reason() {
    let script = Script::new(|_| Err(outage()));
    let scrape = Scrape::new();
    let verifier = script.client().with_time_to_live(long()).with_metrics(scrape.metrics.clone()).build();
    for _ in 0..3 {
        let checked = verifier.check(digest('a')).await;
        assert_eq!(checked.to_string(), format!("unknown: {}", outage()));
    }
    assert_eq!(script.calls(), 1);
    assert_eq!(scrape.value("verifier_cache_lookups_total{result=\"unknown\"}"), 2.0);
    let checked = verifier.check(digest('a')).await;
    let Provenance::Cached { age } = checked.provenance else { panic!("{checked:?}") };
    assert!(age < LONG);
    let unknown = &verifier.check_all([digest('a')], in_time()).await[&digest('a')];
    assert_eq!(unknown.to_string(), format!("unknown: {}", outage()));
}

#[tokio::test]
async fn each_verdict_has_a_time_to_live_of_its_own() {
    let short = Duration::from_millis(20);
    let none = Duration::ZERO;
    for (expires, outcome) in [
        (time_to_live(short, LONG, LONG), Some(Answer::Notarized)),
        (time_to_live(LONG, short, LONG), Some(Answer::NotNotarized)),
        (time_to_live(LONG, LONG, short), None),
    ] {
        let script = Script::new(move |_| outcome.clone().ok_or_else(outage));
        let verifier = script.client().with_time_to_live(expires).build();
        until(async || {
            verifier.check(digest('a')).await;
            script.calls() == 3
        })
        .await;
    }
    for (kept, outcome) in [
        (time_to_live(none, LONG, LONG), Some(Answer::Notarized)),
        (time_to_live(LONG, none, LONG), Some(Answer::NotNotarized)),
        (time_to_live(LONG, LONG, none), None),
    ] {
        let script = Script::new(move |_| outcome.clone().ok_or_else(outage));
        let verifier = script.client().with_time_to_live(kept).build();
        for _ in 0..3 {
            verifier.check(digest('a')).await;
        }
        assert_eq!(script.calls(), 3, "zero disables caching");
    }
}

#[tokio::test]
async fn failures_do_not_replace_responses() {
    let script = Script::new(|call| if call == 0 { Ok(Answer::Notarized) } else { Err(outage()) });
    let verifier = script.client().with_time_to_live(long()).build();
    assert!(verifier.check(digest('a')).await.verdict.is_notarized());
    let rechecked = verifier.recheck_all([digest('a')], in_time()).await;
    assert_eq!(rechecked[&digest('a')].to_string(), format!("unknown: {}", outage()));
    assert_eq!(told(&verifier.check(digest('a')).await), ("notarized".to_owned(), "cached"));
}

#[tokio::test]
async fn responses_replace_earlier_ones() {
    let script = Script::new(|call| Ok(if call == 0 { Answer::Notarized } else { Answer::NotNotarized }));
    let verifier = script.client().with_time_to_live(long()).build();
    assert!(verifier.check(digest('a')).await.verdict.is_notarized());
    verifier.recheck_all([digest('a')], in_time()).await;
    assert_eq!(told(&verifier.check(digest('a')).await), ("not notarized".to_owned(), "cached"));
    assert_eq!(script.calls(), 2);
}

#[tokio::test]
async fn verdicts_of_one_digest_do_not_apply_to_another() {
    let script = Script::new(|_| Ok(Answer::Notarized));
    let verifier = script.client().with_time_to_live(long()).build();
    let sha512: Digest = format!("sha512:{}", "a".repeat(128)).parse().unwrap();
    for digest in [digest('a'), digest('b'), sha512] {
        assert_eq!(told(&verifier.check(digest).await).1, "verifier");
    }
}

#[tokio::test]
async fn rejections_of_the_breaker_are_not_cached() {
    let script = Script::new(|call| if call == 0 { Err(outage()) } else { Ok(Answer::Notarized) });
    let builder = script.client().with_time_to_live(long()).with_breaker(1, Duration::from_secs(1));
    let verifier = builder.build();
    for digit in ['a', 'b'] {
        assert!(!verifier.check(digest(digit)).await.verdict.is_notarized());
    }
    // Rejections end with the breaker's pause.
    until(async || verifier.check(digest('b')).await.verdict.is_notarized()).await;
    let failed = verifier.check(digest('a')).await;
    assert_eq!(told(&failed), (format!("unknown: {}", outage()), "cached"));
    assert_eq!(script.calls(), 2);
}

#[tokio::test]
async fn the_number_of_digests_is_bounded_and_those_in_use_stay() {
    let script = Script::new(|_| Ok(Answer::Notarized));
    let verifier = script.client().with_time_to_live(long()).with_cache_size(100).build();
    verifier.check(digest('a')).await;
    // Requests for many distinct digests, interleaved with requests for one digest.
    for (index, other) in many(4_000).into_iter().enumerate() {
        verifier.check(other).await;
        if index % 20 == 0 {
            let checked = verifier.check(digest('a')).await;
            assert_eq!(told(&checked).1, "cached", "after {index} others");
        }
    }
    let before = script.calls();
    for other in many(4_000) {
        verifier.check(other).await;
    }
    assert!(script.calls() - before >= 3_800, "{} of 4,000 were evicted", script.calls() - before);
}
