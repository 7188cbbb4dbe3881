//! Load shedding.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use lucid_webhook::{AdmissionRequest, AdmissionResponse, Router};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tower::{Service, ServiceExt};

use crate::handlers::{review, validating};
use crate::http::assert_refusal;
use crate::server_under_test::TestServer;

#[tokio::test]
async fn requests_above_the_limit_get_429_and_keep_their_connection() {
    let (started, mut starts) = mpsc::unbounded_channel();
    let release = Arc::new(Semaphore::new(0));
    let permits = Arc::clone(&release);
    let slow = move |request: AdmissionRequest| {
        let (started, permits) = (started.clone(), Arc::clone(&permits));
        async move {
            if request.name == "slow" {
                started.send(()).unwrap();
                permits.acquire().await.unwrap().forget();
            }
            AdmissionResponse::allow()
        }
    };
    let router = Router::new().webhook("/", validating(slow).with_max_in_flight(2));
    let server = TestServer::start(router).await;
    let (mut one, mut two, mut three) = (server.http1().await, server.http1().await, server.http1().await);
    let post = |name: &str| {
        let body = review(json!({"name": name})).to_string();
        let head =
            "POST /?timeout=30s HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: ";
        format!("{head}{}\r\n\r\n{body}", body.len())
    };
    one.send(post("slow")).await.unwrap();
    two.send(post("slow")).await.unwrap();
    starts.recv().await.unwrap();
    starts.recv().await.unwrap();
    for name in [String::new(), "x".repeat(3_000_000)] {
        three.send(post(&name)).await.unwrap();
        let refused = three.answer().await.unwrap();
        assert_eq!(refused.status, 429);
        assert!(refused.head.contains("\r\nretry-after: 1\r\n") && !refused.closes(), "{}", refused.head);
        let status = serde_json::from_slice(&refused.body).unwrap();
        assert_refusal(&status, 429, "too many concurrent requests");
    }
    release.add_permits(2);
    assert_eq!(one.answer().await.unwrap().status, 200);
    assert_eq!(two.answer().await.unwrap().status, 200);
    three.send(post("fast")).await.unwrap();
    assert_eq!(three.answer().await.unwrap().status, 200, "on the same connection");
}

#[tokio::test]
async fn clones_share_the_limit() {
    async fn never() -> AdmissionResponse {
        std::future::pending().await
    }
    let request = || {
        let request = Request::post("/").header("content-type", "application/json");
        request.body(Full::<Bytes>::from(review(json!({})).to_string())).unwrap()
    };
    let router = |limit| Router::new().webhook("/", validating(never).with_max_in_flight(limit));
    let limited = router(1);
    let (mut first, second) = (limited.clone(), limited.clone());
    let mut in_flight = first.call(request());
    assert!(futures::poll!(&mut in_flight).is_pending());
    for service in [first.clone(), second.clone()] {
        assert_eq!(service.oneshot(request()).await.unwrap().status(), 429);
    }
    drop(in_flight);
    let waits = tokio::time::timeout(Duration::from_millis(50), second.oneshot(request())).await;
    assert!(waits.is_err(), "a cancelled request makes room");
    assert_eq!(router(0).oneshot(request()).await.unwrap().status(), 429);
}
