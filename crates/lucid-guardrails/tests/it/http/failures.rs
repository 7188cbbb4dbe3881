//! Unavailable and hostile services.

use std::future::pending;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lucid_auditor::Verdict;
use serde_json::{Value, json};

use super::{Remote, ask, error, judge};

const TEXT: &str = "a text";

fn allowed() -> Response {
    axum::Json(json!({ "allowed": true })).into_response()
}

/// Options with a patient timeout.
fn patient(options: Value) -> Value {
    let mut all = json!({ "timeout": "30s" });
    all.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    all
}

#[tokio::test]
async fn blank_texts_pass_without_a_request() {
    let remote = Remote::with_status(StatusCode::INTERNAL_SERVER_ERROR).await;
    let judge = remote.judge(json!({}));
    for text in ["", " \n"] {
        assert_eq!(ask(&judge, text).await.unwrap(), Verdict::Allow);
    }
    assert_eq!(remote.calls(), 0);
}

#[tokio::test]
async fn outages_are_retried() {
    for status in [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT] {
        let remote =
            Remote::start(move |index| if index < 2 { status.into_response() } else { allowed() }).await;
        assert_eq!(ask(&remote.judge(patient(json!({}))), TEXT).await.unwrap(), Verdict::Allow);
        assert_eq!(remote.calls(), 3);
        let remote = Remote::with_status(status).await;
        assert!(error(&remote.judge(patient(json!({ "retries": 1 }))), TEXT).await.contains(status.as_str()));
        assert_eq!(remote.calls(), 2);
    }
}

#[tokio::test]
async fn other_errors_are_not_retried() {
    for status in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::BAD_REQUEST, StatusCode::FOUND] {
        let remote = Remote::with_status(status).await;
        let error = error(&remote.judge(patient(json!({}))), TEXT).await;
        assert!(error.contains(&format!("responded with status {status}")), "{error}");
        assert_eq!(remote.calls(), 1);
    }
}

#[tokio::test]
async fn a_missing_service_is_an_error_that_names_it() {
    let judge = judge(json!({ "url": "http://127.0.0.1:1", "retries": 0 })).unwrap();
    let error = error(&judge, TEXT).await;
    assert!(error.starts_with("request to http://127.0.0.1:1 failed: "), "{error}");
}

#[tokio::test]
async fn slow_services_time_out() {
    let stalled = || {
        let first = futures::stream::once(async { Ok::<_, std::io::Error>(Bytes::from_static(b"{")) });
        let rest = futures::stream::once(pending());
        Body::from_stream(futures::StreamExt::chain(first, rest)).into_response()
    };
    let remote = Remote::start(move |_| stalled()).await;
    let begun = Instant::now();
    let error = error(&remote.judge(patient(json!({ "timeout": "50ms" }))), TEXT).await;
    assert!(error.ends_with("did not respond within 50ms"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(remote.calls(), 1);
}

#[tokio::test]
async fn huge_responses_are_rejected() {
    let padded = |length: usize| format!("{{\"allowed\":true}}{}", " ".repeat(length - 16));
    let remote = Remote::start(move |index| padded((1024 * 1024) + index).into_response()).await;
    let judge = remote.judge(patient(json!({})));
    assert_eq!(ask(&judge, TEXT).await.unwrap(), Verdict::Allow);
    assert!(error(&judge, TEXT).await.ends_with("is longer than 1048576 bytes"));

    let endless = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 4096])));
    let remote = Remote::start(move |_| Body::from_stream(endless.clone()).into_response()).await;
    assert!(error(&remote.judge(patient(json!({}))), TEXT).await.ends_with("is longer than 1048576 bytes"));
}

#[tokio::test]
async fn responses_that_are_not_json_are_errors() {
    for body in ["", "allowed", "{\"allowed\":true", "{\"allowed\":true}{\"allowed\":true}", "\u{1}"] {
        let remote = Remote::start(move |_| body.into_response()).await;
        assert!(
            error(&remote.judge(patient(json!({}))), TEXT).await.contains("malformed response"),
            "{body:?}"
        );
    }
    let nested = "[".repeat(500_000);
    let remote = Remote::start(move |_| nested.clone().into_response()).await;
    assert!(error(&remote.judge(patient(json!({}))), TEXT).await.contains("malformed response"));
}

#[tokio::test]
async fn consecutive_outages_open_the_breaker() {
    let remote = Remote::start(|index| match index {
        1 => allowed(),
        _ => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    })
    .await;
    let judge = remote.judge(patient(json!({ "retries": 0, "breaker": { "failures": 3, "pause": "1h" } })));
    // One outage, one success, three outages.
    for _ in 0..5 {
        drop(ask(&judge, TEXT).await);
    }
    let error = error(&judge, TEXT).await;
    assert!(error.ends_with("are paused after repeated failures (circuit breaker open)"), "{error}");
    assert_eq!(remote.calls(), 5);
}

#[tokio::test]
async fn a_probe_closes_the_breaker() {
    let is_failing = |index| index < 2;
    let remote = Remote::start(move |index| match is_failing(index) {
        true => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        false => allowed(),
    })
    .await;
    let judge = remote.judge(patient(json!({ "retries": 0, "breaker": { "failures": 1, "pause": "30ms" } })));
    let mut rejected = 0;
    while ask(&judge, TEXT).await.is_err_and(|_| true) {
        rejected += 1;
        tokio::task::yield_now().await;
    }
    assert_eq!(remote.calls(), 3, "an outage, a failed probe and a probe");
    assert!(rejected >= 2);
    ask(&judge, TEXT).await.unwrap();
    ask(&judge, TEXT).await.unwrap();
}

#[tokio::test]
async fn texts_cannot_open_the_breaker() {
    let remote = Remote::start(|index| match index % 3 {
        0 => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        1 => "[".into_response(),
        _ => axum::Json(json!({ "spans": [{ "start": 9, "end": 99 }] })).into_response(),
    })
    .await;
    let judge = remote.judge(patient(json!({ "breaker": { "failures": 1, "pause": "1h" } })));
    for _ in 0..6 {
        assert!(!error(&judge, TEXT).await.contains("breaker"));
    }
    assert_eq!(remote.calls(), 6);
}
