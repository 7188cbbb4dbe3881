//! Expensive requests next to others, on a server with one worker thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use lucid_webhook::{AdmissionRequest, AdmissionResponse, Router, Webhook};
use lucid_webhook_test::Review;
use serde_json::{Value, json};
use tower::service_fn;

use crate::server_under_test::TestServer;

const PATIENCE: Duration = Duration::from_secs(60);

/// Stops the spinning handlers, so that the runtime can shut down.
struct Release(Arc<AtomicBool>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn body(bytes: usize) -> Bytes {
    let object =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "x": "x".repeat(bytes)});
    Review::create(&object).to_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn expensive_requests_do_not_block_others() {
    const CALLS: usize = 40;
    let release = Release(Arc::default());
    let spinning = Arc::new(AtomicUsize::new(0));
    let (released, spins) = (Arc::clone(&release.0), Arc::clone(&spinning));
    let handler = move |request: AdmissionRequest| {
        let (released, spins) = (Arc::clone(&released), Arc::clone(&spins));
        async move {
            if request.object.is_some_and(|object| object.as_bytes().len() > 10_000) {
                spins.fetch_add(1, Ordering::Relaxed);
                while !released.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            }
            AdmissionResponse::allow()
        }
    };
    let healthy = service_fn(async |_: Request<Bytes>| Ok(Response::new(Full::from("ok"))));
    let router = Router::new()
        .webhook("/validate", Webhook::validating("v.example.com", handler))
        .service("/healthz", healthy);
    let server = TestServer::start(router).await;
    let call = |timeout: u32, body: Bytes| {
        // A separate client for a separate handshake.
        let request = server.client().post(server.url(&format!("/validate?timeout={timeout}s")));
        let request = request.header("content-type", "application/json").timeout(PATIENCE).body(body);
        async move { request.send().await.unwrap() }
    };
    let expensive: Vec<_> = (0..CALLS).map(|_| tokio::spawn(call(5, body(100_000)))).collect();
    let others = async {
        while spinning.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..10 {
            let answer: Value = call(30, body(10)).await.json().await.unwrap();
            assert_eq!(answer["response"]["allowed"], true, "{answer}");
            let health = server.client().get(server.url("/healthz")).send().await.unwrap();
            assert_eq!(health.status(), 200);
        }
    };
    tokio::time::timeout(PATIENCE, others).await.expect("expensive requests block others");
    let (mut refused, mut shed) = (0, 0);
    for call in expensive {
        let answer = tokio::time::timeout(PATIENCE, call).await.expect("no answer at the deadline").unwrap();
        if answer.status() == 429 {
            assert_eq!(answer.headers()["retry-after"], "1");
            shed += 1;
        } else {
            let answer: Value = answer.json().await.unwrap();
            assert_eq!(answer["response"]["allowed"], false, "{answer}");
            refused += 1;
        }
    }
    let slots = 2 * std::thread::available_parallelism().unwrap().get();
    assert_eq!((refused, shed), (slots.min(CALLS), CALLS.saturating_sub(slots)));
    assert_eq!(spinning.load(Ordering::Relaxed), refused, "more handlers at a time than slots");
}

const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// Sends a review of `bytes`, with members in the order of API servers, to each path: one leaves overload to the
/// failure policy, and one denies it.
async fn asked(server: &TestServer, bytes: usize) -> [(u16, Value); 2] {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "x": "x".repeat(bytes)});
    let body = format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"{UID}",
        "kind":{{"group":"","version":"v1","kind":"Pod"}},"resource":{{"group":"","version":"v1","resource":"pods"}},
        "operation":"CREATE","userInfo":{{}},"object":{object}}}}}"#
    );
    let call = async |path: &str| {
        let request = server.client().post(server.url(&format!("{path}?timeout=1s"))).body(body.clone());
        let answer = request.header("content-type", "application/json").send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    };
    [call("/leave").await, call("/deny").await]
}

fn assert_denied((status, answer): &(u16, Value), code: u16, reason: &str) {
    let response = &answer["response"];
    assert_eq!(
        (*status, &response["allowed"], &response["uid"]),
        (200, &json!(false), &json!(UID)),
        "{answer}"
    );
    assert_eq!((&response["status"]["code"], &response["status"]["reason"]), (&json!(code), &json!(reason)));
}

#[tokio::test]
async fn overload_is_denied_in_a_review_if_configured() {
    let forever = async |_: AdmissionRequest| std::future::pending::<AdmissionResponse>().await;
    let quick = async || AdmissionResponse::allow();
    let router = Router::new()
        .webhook("/hold", Webhook::validating("h.example.com", forever))
        .webhook("/leave", Webhook::validating("l.example.com", quick))
        .webhook("/deny", Webhook::validating("d.example.com", quick).with_overload_denied())
        .with_body_limit(1 << 20);
    let server = TestServer::start(router).await;

    // Larger than the limit.
    let [(left, _), denied] = asked(&server, 2 << 20).await;
    assert_eq!(left, 413);
    assert_denied(&denied, 413, "RequestEntityTooLarge");

    // No thread is free until its deadline.
    let holding: Vec<_> = (0..64)
        .map(|_| {
            let request = server.client().post(server.url("/hold?timeout=30s")).body(body(1_000_000));
            tokio::spawn(request.header("content-type", "application/json").send())
        })
        .collect();
    let busy = async {
        loop {
            let [(left, _), denied] = asked(&server, 100_000).await;
            if left == 429 && denied.1["response"]["allowed"] == false {
                break denied;
            }
        }
    };
    let denied = tokio::time::timeout(PATIENCE, busy).await.expect("there is room for everything");
    assert_denied(&denied, 429, "TooManyRequests");
    assert_eq!(denied.1["response"]["status"]["details"]["retryAfterSeconds"], 1);
    // A small request needs no thread.
    for (status, answer) in asked(&server, 10).await {
        assert_eq!((status, &answer["response"]["allowed"]), (200, &Value::Bool(true)));
    }
    holding.into_iter().for_each(|call| call.abort());
}
