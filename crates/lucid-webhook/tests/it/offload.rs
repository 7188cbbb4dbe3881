//! Expensive requests beside others, on a server with one worker thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use lucid_webhook::testing::Review;
use lucid_webhook::{AdmissionRequest, AdmissionResponse, Router, Webhook};
use serde_json::{Value, json};
use tower::service_fn;

use crate::server_under_test::TestServer;

const PATIENCE: Duration = Duration::from_secs(60);

/// Stops the spinning handlers, so that the runtime can end.
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
async fn expensive_requests_leave_the_server_to_others_and_end_at_the_deadline() {
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
        // A client of its own, so a handshake of its own.
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
