//! Requests, converters, logs and metrics for several tests.

use std::io;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use lucid_webhook::{AdmissionResponse, BoxError, Converter, JsonPatch, Router};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tower::ServiceExt;
use tracing_subscriber::fmt::MakeWriter;

pub(crate) fn review(request: Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
}

pub(crate) async fn post(router: &Router, path: &str, review: &Value) -> (u16, HeaderMap, Value) {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(review.to_string()))).unwrap();
    let (head, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), head.headers, serde_json::from_slice(&body).unwrap())
}

pub(crate) fn patch(operations: &Value) -> Result<AdmissionResponse, BoxError> {
    Ok(AdmissionResponse::patch(JsonPatch::from_operations(operations)?))
}

pub(crate) fn patch_text(response: &Value) -> String {
    let patch = response["patch"].as_str().unwrap_or_else(|| panic!("no patch in {response}"));
    String::from_utf8(STANDARD.decode(patch).unwrap()).unwrap()
}

pub(crate) fn patch_of(response: &Value) -> Value {
    serde_json::from_str(&patch_text(response)).unwrap()
}

/// Converts Things between v1 and v2, which do not differ.
pub(crate) fn things() -> Converter {
    let same = |object: Value| object;
    let converter = Converter::dynamic("example.com", "Thing", "v2").spoke_dynamic("v1", same, same);
    converter.build_for(["v1", "v2"]).unwrap()
}

pub(crate) fn exposed(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

#[track_caller]
pub(crate) fn assert_counted(registry: &Registry, line: &str, count: u64) {
    let text = exposed(registry);
    assert!(text.contains(&format!("{line}}} {count}\n")), "{line} {count} is not in\n{text}");
}

#[derive(Clone, Default)]
pub(crate) struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Written {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Keep this while the subscriber of one thread is active. With a single subscriber, tracing applies the interest of
/// the first thread that reaches a callsite to all: a thread without a subscriber would disable it.
pub(crate) fn another_subscriber() -> tracing::Dispatch {
    tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default())
}
