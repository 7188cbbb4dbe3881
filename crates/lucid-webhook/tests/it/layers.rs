//! Checks, failure handling, spans and permissions around a handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lucid_webhook::{
    AdmissionRequest, AdmissionResponse, AllowedPaths, BoxError, Failure, FailureAction, Router, Webhook,
};
use serde_json::{Value, json};

use crate::common::{Written, another_subscriber, patch, post};
use crate::handlers::{ask, mutating, review, validating};
use crate::permissions::fixed;

/// Fails in namespace `broken`, denies in `denied`, and sets a label in all others.
async fn label(request: AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
    match request.namespace.as_deref() {
        Some("broken") => Err("the disk is full".into()),
        Some("denied") => Ok(AdmissionResponse::deny(403, "Forbidden", "not here")),
        _ => patch(&json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}])),
    }
}

async fn ask_in(namespace: &str, webhook: Webhook) -> Value {
    ask(webhook, json!({"namespace": namespace, "object": {"metadata": {"name": "web"}}})).await
}

#[tokio::test]
async fn invalid_responses_are_errors() {
    let allowed = |path| AllowedPaths::parse([path]).unwrap();
    for (webhook, error) in [
        (mutating(label), None),
        (validating(label), Some("a validating webhook")),
        (mutating(label).with_allowed_paths(allowed("/metadata/labels/a")), None),
        (mutating(label).with_allowed_paths(allowed("/spec")), Some("/metadata/labels")),
    ] {
        let answer = ask_in("shop", webhook).await;
        assert_eq!(answer["allowed"], error.is_none(), "{answer}");
        let message = answer["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(error.unwrap_or_default()), "{answer}, not {error:?}");
    }
    let answer = ask_in("broken", validating(label)).await;
    let message = "the webhook failed: the disk is full";
    assert_eq!(answer["status"]["message"], message, "the handler's own errors stay as they are");
}

#[tokio::test]
async fn the_failure_action_responds_for_a_failing_handler() {
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
        for (namespace, allowed) in [("broken", allowed), ("shop", true), ("denied", false)] {
            let answer = ask_in(namespace, mutating(label).with_failure_action(action.clone())).await;
            assert_eq!(answer["allowed"], allowed, "{action:?} {namespace}");
        }
    }
}

#[test]
fn spans_have_the_outcome_of_a_request() {
    use tracing_subscriber::fmt::format::FmtSpan;

    let written = Written::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(written.clone())
        .finish();
    let _other = another_subscriber();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(subscriber, || {
        runtime.block_on(async {
            for (namespace, allowed) in [("shop", true), ("denied", false), ("broken", false)] {
                assert_eq!(ask_in(namespace, mutating(label)).await["allowed"], allowed);
            }
        });
    });
    let text = written.text();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let spans: Vec<_> = lines
        .filter(|line| line["fields"]["message"] == "close")
        .map(|line| ["name", "webhook", "namespace", "outcome"].map(|field| line["span"][field].clone()))
        .collect();
    let expected = [("shop", "patched"), ("denied", "denied"), ("broken", "errored")];
    let expected = expected
        .map(|(namespace, outcome)| ["admission", "a.example.com", namespace, outcome].map(|it| json!(it)));
    assert_eq!(spans, expected);
}

#[test]
fn log_lines_are_bounded() {
    async fn fails(request: AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
        Err(format!("no such kind: {}", request.kind.kind).into())
    }
    let written = Written::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(written.clone()).finish();
    let _other = another_subscriber();
    // Larger requests are handled on another thread, without the subscriber.
    let long = "x".repeat(12 << 10);
    let review = review(json!({
        "name": long, "namespace": long, "userInfo": {"username": long},
        "kind": {"group": "", "version": "v1", "kind": long},
    }));
    let router = Router::new().webhook("/", mutating(fails));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_, _, answer) =
        tracing::subscriber::with_default(subscriber, || runtime.block_on(post(&router, "/", &review)));
    assert_eq!(answer["response"]["allowed"], false, "{answer}");
    let text = written.text();
    assert!(text.contains("no such kind") && text.lines().all(|line| line.len() < 8_192), "{}", text.len());
}

#[tokio::test]
async fn requests_that_are_not_selected_skip_the_handler() {
    let calls = Arc::new(AtomicUsize::new(0));
    for (namespace, seen) in [("team-a", 1), ("shop", 0), ("denied", 0), ("broken", 0)] {
        let counting = Arc::clone(&calls);
        let webhook = mutating(move |request: AdmissionRequest| {
            counting.fetch_add(1, Ordering::Relaxed);
            label(request)
        });
        let permissions = fixed(json!({"selector": {"namespace": "team-*"}}));
        calls.store(0, Ordering::Relaxed);
        let answer = ask_in(namespace, webhook.with_permissions(permissions)).await;
        assert_eq!(answer["allowed"], true, "{namespace}");
        assert_eq!(calls.load(Ordering::Relaxed), seen, "{namespace}");
    }
}
