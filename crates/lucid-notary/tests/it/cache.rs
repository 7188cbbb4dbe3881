//! Cached verdicts answer without a request.

use std::time::Duration;

use lucid_notary::Digest;
use lucid_notary::client::breaker::BreakerLayer;
use lucid_notary::client::cache::CacheLayer;
use lucid_notary::client::{Answer, Cache, CachedFailure, TimeToLive, check_all, is_outage};
use tower::{Layer, ServiceBuilder};

use crate::common::{PATIENCE, Scrape, Script, ask, digest, in_time, many, outage, told, until};

const LONG: Duration = PATIENCE;

fn time_to_live(notarized: Duration, not_notarized: Duration, unknown: Duration) -> TimeToLive {
    let mut time_to_live = TimeToLive::default();
    time_to_live.notarized = notarized;
    time_to_live.not_notarized = not_notarized;
    time_to_live.unknown = unknown;
    time_to_live
}

fn long() -> TimeToLive {
    time_to_live(LONG, LONG, LONG)
}

#[tokio::test]
async fn each_verdict_is_kept_and_marked() {
    for (outcome, verdict, result) in [
        (Some(Answer::Notarized), "notarized", "notarized"),
        (Some(Answer::NotNotarized), "not notarized", "not_notarized"),
    ] {
        let script = Script::new(move |_| outcome.ok_or_else(outage));
        let scrape = Scrape::new();
        let layer = CacheLayer::new(&Cache::new(long(), 10)).metrics(scrape.metrics.clone());
        let service = layer.layer(script.service.clone());
        let first = ask(&service, digest('a')).await.unwrap();
        assert_eq!(told(&first), (verdict.to_owned(), "asked"));
        let second = ask(&service, digest('a')).await.unwrap();
        assert_eq!(told(&second), (verdict.to_owned(), "cached"));
        assert_eq!(script.calls(), 1);
        assert_eq!(scrape.value("verifier_cache_look_ups_total{result=\"miss\"}"), 1.0);
        assert_eq!(scrape.value(&format!("verifier_cache_look_ups_total{{result=\"{result}\"}}")), 1.0);
    }
}

#[tokio::test]
async fn a_failure_is_kept_as_what_it_was() {
    let script = Script::new(|_| Err(outage()));
    let service = CacheLayer::new(&Cache::new(long(), 10)).layer(script.service.clone());
    for _ in 0..3 {
        let error = ask(&service, digest('a')).await.unwrap_err();
        assert_eq!(error.to_string(), outage().to_string());
        assert!(is_outage(&*error));
    }
    assert_eq!(script.calls(), 1);
    let error = ask(&service, digest('a')).await.unwrap_err();
    assert!(error.downcast_ref::<CachedFailure>().unwrap().age() < LONG);
    let unknown = &check_all(service, [digest('a')], in_time()).await[&digest('a')];
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
        let script = Script::new(move |_| outcome.ok_or_else(outage));
        let service = CacheLayer::new(&Cache::new(expires, 10)).layer(script.service.clone());
        until(async || {
            let _ = ask(&service, digest('a')).await;
            script.calls() == 3
        })
        .await;
    }
    for (kept, outcome) in [
        (time_to_live(none, LONG, LONG), Some(Answer::Notarized)),
        (time_to_live(LONG, none, LONG), Some(Answer::NotNotarized)),
        (time_to_live(LONG, LONG, none), None),
    ] {
        let script = Script::new(move |_| outcome.ok_or_else(outage));
        let service = CacheLayer::new(&Cache::new(kept, 10)).layer(script.service.clone());
        for _ in 0..3 {
            let _ = ask(&service, digest('a')).await;
        }
        assert_eq!(script.calls(), 3, "zero is not at all");
    }
}

#[tokio::test]
async fn a_failure_does_not_push_out_the_answer_before_it() {
    let script = Script::new(|call| if call == 0 { Ok(Answer::Notarized) } else { Err(outage()) });
    let cache = Cache::new(long(), 10);
    let service = CacheLayer::new(&cache).layer(script.service.clone());
    ask(&service, digest('a')).await.unwrap();
    ask(&CacheLayer::write_only(&cache).layer(script.service.clone()), digest('a')).await.unwrap_err();
    assert_eq!(told(&ask(&service, digest('a')).await.unwrap()), ("notarized".to_owned(), "cached"));
}

#[tokio::test]
async fn an_answer_replaces_the_one_before_it() {
    let script = Script::new(|call| Ok(if call == 0 { Answer::Notarized } else { Answer::NotNotarized }));
    let cache = Cache::new(long(), 10);
    let service = CacheLayer::new(&cache).layer(script.service.clone());
    ask(&service, digest('a')).await.unwrap();
    ask(&CacheLayer::write_only(&cache).layer(script.service.clone()), digest('a')).await.unwrap();
    assert_eq!(told(&ask(&service, digest('a')).await.unwrap()), ("not notarized".to_owned(), "cached"));
    assert_eq!(script.calls(), 2);
}

#[tokio::test]
async fn a_layer_that_only_reads_keeps_nothing() {
    let script = Script::new(|_| Ok(Answer::Notarized));
    let cache = Cache::new(long(), 10);
    let reads = CacheLayer::read_only(&cache).layer(script.service.clone());
    for _ in 0..2 {
        assert_eq!(told(&ask(&reads, digest('a')).await.unwrap()).1, "asked");
    }
    ask(&CacheLayer::new(&cache).layer(script.service.clone()), digest('a')).await.unwrap();
    assert_eq!(told(&ask(&reads, digest('a')).await.unwrap()).1, "cached");
    assert_eq!(script.calls(), 3);
}

#[tokio::test]
async fn what_is_known_of_one_digest_is_not_said_of_another() {
    let script = Script::new(|_| Ok(Answer::Notarized));
    let service = CacheLayer::new(&Cache::new(long(), 10)).layer(script.service.clone());
    let sha512: Digest = format!("sha512:{}", "a".repeat(128)).parse().unwrap();
    for digest in [digest('a'), digest('b'), sha512] {
        assert_eq!(told(&ask(&service, digest).await.unwrap()).1, "asked");
    }
}

#[tokio::test]
async fn what_a_breaker_refuses_is_not_kept() {
    let script = Script::new(|call| if call == 0 { Err(outage()) } else { Ok(Answer::Notarized) });
    let service = ServiceBuilder::new()
        .layer(CacheLayer::new(&Cache::new(time_to_live(LONG, LONG, LONG), 10)))
        .layer(BreakerLayer::new(1, Duration::from_millis(20)))
        .service(script.service.clone());
    ask(&service, digest('a')).await.unwrap_err();
    ask(&service, digest('b')).await.unwrap_err();
    // Rejections end with the breaker's pause.
    until(async || ask(&service, digest('b')).await.is_ok()).await;
    assert!(ask(&service, digest('a')).await.is_err(), "what did fail is not asked again yet");
    assert_eq!(script.calls(), 2);
}

#[tokio::test]
async fn the_number_of_digests_is_bounded_and_those_in_use_stay() {
    let script = Script::new(|_| Ok(Answer::Notarized));
    let service = CacheLayer::new(&Cache::new(long(), 100)).layer(script.service.clone());
    ask(&service, digest('a')).await.unwrap();
    // Requests for many distinct digests, interleaved with requests for one digest.
    for (index, other) in many(4_000).into_iter().enumerate() {
        ask(&service, other).await.unwrap();
        if index % 20 == 0 {
            let checked = ask(&service, digest('a')).await.unwrap();
            assert_eq!(told(&checked).1, "cached", "after {index} others");
        }
    }
    let before = script.calls();
    for other in many(4_000) {
        ask(&service, other).await.unwrap();
    }
    assert!(script.calls() - before >= 3_800, "{} of 4,000 were forgotten", script.calls() - before);
}
