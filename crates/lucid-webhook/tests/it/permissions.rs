//! Permissions of an administrator, and responses that are not the handler's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use lucid_webhook::guard::Permissions;
use lucid_webhook::{
    AdmissionRequest, AdmissionResponse, BoxError, Failure, FailureAction, JsonPatch, PatchError, Router,
    Webhook,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::common::{patch, post};
use crate::handlers::{ask, mutating, review, validating};

fn denying() -> Client {
    let service = tower::service_fn(async |_: Request<Body>| {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {}, "status": {"allowed": false}});
        Ok::<_, BoxError>(Response::new(Body::from(review.to_string().into_bytes())))
    });
    Client::new(service, "default")
}

pub(crate) fn fixed(permissions: Value) -> watch::Receiver<Permissions> {
    watch::channel(serde_json::from_value(permissions).unwrap()).1
}

#[tokio::test]
async fn permissions_restrict_and_never_widen() {
    async fn handle() -> Result<JsonPatch, PatchError> {
        JsonPatch::from_operations(&json!([{"op": "add", "path": "/metadata/labels/a", "value": "b"}]))
    }
    let paths = |paths: &[&str]| lucid_webhook::AllowedPaths::parse(paths).unwrap();
    for (own, given, allowed) in [
        (&["/metadata/labels"][..], json!({}), true),
        (&["/metadata/annotations"], json!({}), false),
        (&["/metadata/annotations"], json!({"allowedPaths": ["/metadata/labels"]}), false),
        (&["/metadata"], json!({"allowedPaths": ["/metadata/labels"]}), true),
        (&["/metadata"], json!({"allowedPaths": []}), false),
    ] {
        let webhook = mutating(handle).with_allowed_paths(paths(own));
        let text = given.to_string();
        let webhook = webhook.with_permissions(fixed(given));
        let answer = ask(webhook, json!({})).await;
        assert_eq!(answer["allowed"], allowed, "{own:?} {text}: {answer}");
    }
}

#[tokio::test]
async fn permissions_override_code_and_earlier_permissions() {
    async fn handle(request: AdmissionRequest) -> Result<JsonPatch, BoxError> {
        let path = match &*request.name {
            "fails" => return Err("the disk is full".into()),
            "panics" => panic!("on purpose"),
            key => format!("/metadata/labels/{key}"),
        };
        Ok(JsonPatch::from_operations(&json!([{"op": "add", "path": path, "value": "b"}]))?)
    }
    let permitted = |webhook: Webhook, permissions: Value| {
        webhook.with_client(denying()).with_permissions(fixed(permissions))
    };
    let in_code = |webhook: Webhook| {
        let paths = lucid_webhook::AllowedPaths::parse(["/metadata/labels/a", "/metadata/labels/b"]).unwrap();
        webhook.with_failure_action(FailureAction::Skip).with_allowed_paths(paths)
    };
    let allowed =
        async |webhook: Webhook, name: &str| ask(webhook, json!({"name": name})).await["allowed"] == true;
    let given =
        json!({"failureAction": "abort", "recoveryPolicy": "abort", "allowedPaths": ["/metadata/labels/b"]});
    let replaced = json!({"failureAction": "warn", "selector": {"namespace": ["elsewhere"]},
        "allowedPaths": ["/metadata/labels/a"]});
    let new = || mutating(handle);
    let (before, after) =
        (|| permitted(in_code(new()), given.clone()), || in_code(permitted(new(), given.clone())));
    let twice = || permitted(in_code(permitted(new(), replaced.clone())), given.clone());
    for webhook in [&before as &dyn Fn() -> Webhook, &after, &twice] {
        for name in ["fails", "panics", "a", "b", "c"] {
            assert_eq!(allowed(webhook(), name).await, name == "b", "{name}");
        }
    }
    // Unset permissions leave the settings in code.
    for name in ["fails", "panics"] {
        assert!(allowed(permitted(in_code(new()), json!({})), name).await, "{name}");
    }
}

#[tokio::test]
async fn a_guard_that_fails_or_times_out_blocks_patches() {
    let with = |patches: bool| {
        let action = move |_: &AdmissionRequest, _: &Failure| match patches {
            false => AdmissionResponse::allow().with_warning("two\nlines"),
            true => patch(&json!([{"op": "add", "path": "/metadata/labels/a", "value": "b"}])).unwrap(),
        };
        mutating(async || AdmissionResponse::allow())
            .with_permissions(fixed(json!({"serviceAccountName": "a/b"})))
            .with_failure_action(FailureAction::call(action))
    };
    let answer = ask(with(true), json!({})).await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains("failed to find out") && message.contains("no access review"), "{answer}");
    assert_eq!(ask(with(false), json!({})).await["warnings"], json!(["two lines"]));
    let late =
        tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, BoxError>>());
    let answer = ask(with(true).with_client(Client::new(late, "default")), json!({})).await;
    assert_eq!(answer["allowed"], false, "{answer}");
}

#[tokio::test]
async fn access_reviews_are_cached_and_their_failures_named() {
    let restricted = |client: Client| {
        let permissions = fixed(json!({"serviceAccountName": "a/b", "forbidden": "deny"}));
        mutating(async || AdmissionResponse::allow()).with_client(client).with_permissions(permissions)
    };
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move { denying().send(request).await }
    });
    let router = Router::new().webhook("/", restricted(Client::new(service, "default")));
    for _ in 0..2 {
        assert_eq!(post(&router, "/", &review(json!({}))).await.2["response"]["status"]["code"], 403);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2, "update and mutate, each once");
    let forbidden = tower::service_fn(async |_: Request<Body>| {
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "subjectaccessreviews is forbidden", "reason": "Forbidden", "code": 403});
        let response = Response::builder().status(403).body(Body::from(status.to_string().into_bytes()));
        Ok::<_, BoxError>(response?)
    });
    let answer = ask(restricted(Client::new(forbidden, "default")), json!({})).await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains("failed to find out whether") && message.contains("is forbidden"), "{message}");
}

#[tokio::test]
async fn live_permissions_apply_from_the_next_request() {
    async fn handle() -> AdmissionResponse {
        AdmissionResponse::deny(403, "Forbidden", "no")
    }
    let permissions = |selector: Value| serde_json::from_value(json!({"selector": selector})).unwrap();
    let (sender, receiver) = watch::channel(permissions(json!({})));
    let webhook = validating(handle).with_permissions(receiver);
    let router = Router::new().webhook("/", webhook);
    let allowed = async || post(&router, "/", &review(json!({}))).await.2["response"]["allowed"] == true;
    assert!(!allowed().await);
    for (namespace, selected) in [("elsewhere", false), ("shop", true), ("elsewhere", false)] {
        sender.send_replace(permissions(json!({"namespace": namespace})));
        assert_eq!(allowed().await, !selected, "{namespace}");
    }
    drop(sender);
    assert!(allowed().await, "the last permissions stay");
}

#[tokio::test]
async fn on_response_receives_every_response() {
    async fn handle(request: AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
        match &*request.name {
            "fails" => Err("the disk is full".into()),
            "bomb" => panic!("on purpose"),
            _ => {
                let mut answer = patch(&json!([{"op": "add", "path": "/metadata/labels/a", "value": "b"}]))?;
                answer.extensions.insert("handled");
                Ok(answer)
            }
        }
    }
    let on_response = |request: &AdmissionRequest, response: AdmissionResponse, failure: Option<&Failure>| {
        let handled = response.extensions.get::<&str>().copied().unwrap_or("skipped");
        let failure = failure.map_or(handled.to_owned(), Failure::to_string);
        let name = request.name.clone();
        async move {
            match &*name {
                "panics" => panic!("on purpose"),
                "allows" => AdmissionResponse::allow(),
                "denies" => AdmissionResponse::deny(403, "Forbidden", "no"),
                "patches" => {
                    patch(&json!([{"op": "add", "path": "/metadata/labels/a", "value": "b"}])).unwrap()
                }
                _ => response.with_warning(failure),
            }
        }
    };
    const ELSEWHERE: &str = r#"{"selector": {"namespace": "elsewhere"}}"#;
    const FORBIDDEN: &str = r#"{"serviceAccountName": "a/b", "forbidden": "deny"}"#;
    const PATHS: &str = r#"{"allowedPaths": ["/spec"]}"#;
    let full = Some("the webhook failed: the disk is full");
    let refused = "the webhook failed: the patch is refused: the patch changes \"/metadata/labels/a\"; expected only changes of /spec";
    for (permissions, name, allowed, warning) in [
        ("{}", "patched", true, Some("handled")),
        (PATHS, "patched too far", false, Some(refused)),
        ("{}", "fails", false, full),
        (r#"{"failureAction": "skip"}"#, "fails", true, full),
        (r#"{"recoveryPolicy": "skip"}"#, "bomb", true, Some("the webhook panicked")),
        (ELSEWHERE, "other", true, Some("skipped")),
        (ELSEWHERE, "panics", false, None),
        (ELSEWHERE, "denies", false, None),
        (ELSEWHERE, "patches", true, None),
        (FORBIDDEN, "other", false, Some("skipped")),
        (FORBIDDEN, "allows", false, None),
    ] {
        let webhook = mutating(handle).with_on_response(on_response);
        let permissions = fixed(serde_json::from_str(permissions).unwrap());
        let webhook = webhook.with_client(denying()).with_permissions(permissions);
        let answer = ask(webhook, json!({"name": name})).await;
        assert_eq!(
            (answer["allowed"].as_bool(), answer["warnings"][0].as_str()),
            (Some(allowed), warning),
            "{answer}"
        );
        assert_eq!(answer.get("patch").is_some(), name == "patched", "{answer}");
    }
}

#[tokio::test]
async fn text_that_is_not_a_patch_is_never_permitted() {
    const TEXT: &str = r#"[{"op": "ADD", "path": "/spec/hostNetwork", "value": true}]"#;
    let webhook = mutating(async || AdmissionResponse::patch(JsonPatch::from_text_unchecked(TEXT)))
        .with_permissions(fixed(json!({"allowedPaths": ["/metadata/labels"]})));
    assert_eq!(ask(webhook, json!({})).await["allowed"], false);
}
