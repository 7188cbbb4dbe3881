//! Metrics of requests to the Verifier. Other metrics are covered by the tests of their features.

use std::time::Duration;

use lucid_notary::client::HttpVerifier;

use crate::common::{PATIENCE, Scrape, digest, honest, request};
use crate::server::{Reply, Server};

#[tokio::test]
async fn requests_are_counted_by_outcome_and_timed() {
    let response = |status: u16, body: String| Reply::Response { status, header: None, body };
    let cases = [
        ("notarized", Reply::notarized(digest('a').as_str(), true)),
        ("not_notarized", Reply::notarized(digest('a').as_str(), false)),
        ("timeout", Reply::Hang),
        ("transport", Reply::Reset),
        ("status", response(500, String::new())),
        ("status", response(302, String::new())),
        ("too_long", Reply::ok(" ".repeat(1 << 20))),
        ("malformed", Reply::ok("<html>")),
        ("other_digest", Reply::notarized(digest('c').as_str(), true)),
    ];
    for (outcome, reply) in cases {
        let timeout = if outcome == "timeout" { Duration::from_millis(100) } else { PATIENCE };
        let server = Server::start(move |_| reply.clone()).await;
        let scrape = Scrape::new();
        let verifier = HttpVerifier::builder(&server.url())
            .with_timeout(timeout)
            .with_metrics(scrape.metrics.clone())
            .build()
            .unwrap();
        drop(request(&verifier, digest('a')).await);
        let counted: Vec<_> =
            OUTCOMES.into_iter().filter(|outcome| scrape.value(&requests(outcome)) == 1.0).collect();
        assert_eq!(counted, [outcome]);
        assert_eq!(scrape.value("verifier_request_duration_seconds_count"), 1.0, "{outcome}");
    }
}

const OUTCOMES: [&str; 8] =
    ["notarized", "not_notarized", "timeout", "transport", "status", "too_long", "malformed", "other_digest"];

fn requests(outcome: &str) -> String {
    format!("verifier_requests_total{{outcome=\"{outcome}\"}}")
}

#[tokio::test]
async fn series_for_alerts_start_at_zero() {
    let server = Server::start(honest).await;
    let scrape = Scrape::new();
    let verifier = HttpVerifier::builder(&server.url()).with_metrics(scrape.metrics.clone()).build().unwrap();
    for outcome in OUTCOMES {
        assert!(scrape.has(&requests(outcome)), "{outcome}");
    }
    for file in ["token", "tls", "allowlist"] {
        for result in ["ok", "error"] {
            let series = format!("verifier_file_reloads_total{{file=\"{file}\",result=\"{result}\"}}");
            assert!(scrape.has(&series), "{series}");
        }
    }
    for series in [
        "verifier_allowlisted_total",
        "verifier_allowlist_entries",
        "verifier_coalesced_total",
        "verifier_deadlines_exceeded_total",
        "verifier_retries_total",
        "verifier_breaker_rejected_total",
        "verifier_requests_waiting",
        "verifier_requests_in_flight",
        "verifier_request_duration_seconds_count",
        "verifier_breaker_state{state=\"half_open\"}",
    ] {
        assert!(scrape.has(series), "{series}");
    }
    request(&verifier, digest('b')).await.unwrap();
    assert_eq!(scrape.value(&requests("not_notarized")), 1.0);
}
