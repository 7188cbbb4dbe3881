//! Individual layers around a plain tower service.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lucid_webhook::guard::{Guard, Selector};
use lucid_webhook::layers::{CheckLayer, FailureLayer, TraceLayer};
use lucid_webhook::{
    AdmissionRequest, AdmissionResponse, AllowedPaths, BoxError, Failure, FailureAction, WebhookKind,
};
use lucid_webhook_test::Review;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

use crate::common::{Written, another_subscriber, patch};

/// The creation of a pod in a namespace.
fn request(namespace: &str) -> AdmissionRequest {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": namespace}});
    Review::create(&pod).into_request(Duration::from_secs(5))
}

/// Fails in namespace `broken`, denies in `denied`, and sets a label in all others.
async fn label(request: AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
    match request.namespace.as_deref() {
        Some("broken") => Err("the disk is full".into()),
        Some("denied") => Ok(AdmissionResponse::deny(403, "Forbidden", "not here")),
        _ => patch(&json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}])),
    }
}

#[tokio::test]
async fn check_turns_invalid_responses_into_errors() {
    let mutating = || CheckLayer::new(WebhookKind::Mutating);
    let allowed = |path| AllowedPaths::parse([path]).unwrap();
    for (layer, error) in [
        (mutating(), None),
        (CheckLayer::new(WebhookKind::Validating), Some("a validating webhook")),
        (mutating().with_allowed_paths(allowed("/metadata/labels/a")), None),
        (mutating().with_allowed_paths(allowed("/spec")), Some("/metadata/labels")),
    ] {
        let answer = layer.layer(service_fn(label)).oneshot(request("shop")).await;
        match (answer, error) {
            (Ok(answer), None) => assert!(answer.is_allowed()),
            (Err(found), Some(error)) => assert!(found.to_string().contains(error), "{found}, not {error}"),
            (answer, error) => panic!("{answer:?}, not {error:?}"),
        }
    }
    let layer = CheckLayer::new(WebhookKind::Validating);
    let error = layer.layer(service_fn(label)).oneshot(request("broken")).await.unwrap_err();
    assert_eq!(error.to_string(), "the disk is full", "the handler's own errors stay as they are");
}

#[tokio::test]
async fn failure_responds_for_a_failing_service() {
    let function = |request: &AdmissionRequest, failure: &Failure| {
        let message = format!("{}: {failure}", request.name);
        AdmissionResponse::deny(418, "Teapot", message)
    };
    for (action, allowed) in [
        (FailureAction::Abort, false),
        (FailureAction::Warn, true),
        (FailureAction::Skip, true),
        (FailureAction::call(function), false),
    ] {
        let layer = FailureLayer::new(CheckLayer::new(WebhookKind::Mutating), action.clone());
        let service = layer.layer(service_fn(label));
        let answer = service.clone().oneshot(request("broken")).await.unwrap();
        assert_eq!(answer.is_allowed(), allowed, "{action:?}");
        assert!(service.clone().oneshot(request("shop")).await.unwrap().is_allowed(), "{action:?}");
        assert!(!service.oneshot(request("denied")).await.unwrap().is_allowed(), "{action:?}");
    }
}

#[test]
fn trace_spans_a_call_and_says_how_it_ended() {
    use tracing_subscriber::fmt::format::FmtSpan;

    let written = Written::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(written.clone())
        .finish();
    let _other = another_subscriber();
    let service = TraceLayer::new("alone").layer(service_fn(label));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(subscriber, || {
        runtime.block_on(async {
            assert!(service.clone().oneshot(request("shop")).await.unwrap().is_allowed());
            assert!(!service.clone().oneshot(request("denied")).await.unwrap().is_allowed());
            service.oneshot(request("broken")).await.unwrap_err();
        });
    });
    let text = written.text();
    let spans = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["span"].clone());
    let spans: Vec<_> = spans
        .map(|span| ["name", "webhook", "namespace", "outcome"].map(|field| span[field].clone()))
        .collect();
    let expected = [("shop", "patched"), ("denied", "denied"), ("broken", "errored")];
    let expected =
        expected.map(|(namespace, outcome)| ["admission", "alone", namespace, outcome].map(|it| json!(it)));
    assert_eq!(spans, expected);
}

#[test]
fn log_lines_are_bounded() {
    let written = Written::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(written.clone()).finish();
    let _other = another_subscriber();
    let fails = |request: AdmissionRequest| async move {
        Err::<AdmissionResponse, BoxError>(format!("no such kind: {}", request.kind).into())
    };
    let layer = FailureLayer::new(CheckLayer::new(WebhookKind::Mutating), FailureAction::Abort);
    let service = TraceLayer::new("alone").layer(layer.layer(service_fn(fails)));
    let mut request = request("shop");
    let long = "x".repeat(6 << 20);
    request.uid.clone_from(&long);
    request.name.clone_from(&long);
    request.namespace = Some(long.clone());
    request.kind.kind.clone_from(&long);
    request.user_info.username = long;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answer = tracing::subscriber::with_default(subscriber, || runtime.block_on(service.oneshot(request)));
    assert!(!answer.unwrap().is_allowed());
    let text = written.text();
    assert!(text.contains("no such kind") && text.lines().all(|line| line.len() < 8_192), "{}", text.len());
}

#[tokio::test]
async fn guard_skips_unselected_requests() {
    let guard = Guard::new("alone.example.com", WebhookKind::Mutating)
        .with_selector(Selector::new().with_namespaces(["team-*"]));
    let calls = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&calls);
    let service = guard.layer(service_fn(move |request| {
        counting.fetch_add(1, Ordering::Relaxed);
        label(request)
    }));
    for (namespace, seen) in [("team-a", 1), ("shop", 0), ("denied", 0), ("broken", 0)] {
        calls.store(0, Ordering::Relaxed);
        let answer = service.clone().oneshot(request(namespace)).await.unwrap();
        assert!(answer.is_allowed(), "{namespace}");
        assert_eq!(calls.load(Ordering::Relaxed), seen, "{namespace}");
    }
}
