//! Processing of valid and invalid responses.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use lucid_webhook::registration::FailurePolicy;
use lucid_webhook::{AdmissionRequest, AdmissionResponse, BoxError, JsonPatch, Router, Webhook, WebhookKind};
use lucid_webhook_test::{ApiServer, RejectedBy, Review};
use serde_json::{Value, json};
use tower::service_fn;

use crate::register::Register;

const NAME: &str = "team.example.com";

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}})
}

/// An API server that calls a service which maps each request and its JSON to a response.
fn api_server(
    answer: impl Fn(&Request<()>, Value) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
) -> ApiServer {
    ApiServer::in_process(service_fn(move |request: Request<Full<Bytes>>| {
        let answer = answer.clone();
        async move {
            let (head, body) = request.into_parts();
            let review = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap();
            Ok::<_, Infallible>(answer(&Request::from_parts(head, ()), review))
        }
    }))
}

fn response(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let builder = headers.iter().fold(Response::builder().status(status), |b, (k, v)| b.header(*k, *v));
    builder.body(Full::new(body.into())).unwrap()
}

fn reviewed(answer: &Value) -> Response<Full<Bytes>> {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer});
    response(200, &[("content-type", "application/json")], review.to_string())
}

/// A service that responds with an AdmissionReview with this `response`, adding a missing uid.
fn answering(answer: Value) -> ApiServer {
    api_server(move |_, review| {
        let mut answer = answer.clone();
        if answer.is_object() && answer.get("uid").is_none() {
            answer["uid"] = review["request"]["uid"].clone();
        }
        reviewed(&answer)
    })
}

fn patching(operations: &Value) -> ApiServer {
    answering(json!({"allowed": true, "patch": patch(operations), "patchType": "JSONPatch"}))
}

fn patch(operations: &Value) -> String {
    STANDARD.encode(operations.to_string())
}

fn registered(api_server: &ApiServer, kind: WebhookKind, policy: FailurePolicy) -> ApiServer {
    api_server.register(kind, [NAME, "/"], |registration| registration.with_failure_policy(policy))
}

/// A violation is a failed call: rejected, or ignored.
async fn assert_call_fails(case: &str, api_server: &ApiServer, kind: WebhookKind, expected: &str) {
    let review = Review::create(&pod());
    let rejection = registered(api_server, kind, FailurePolicy::Fail).review(&review).await.expect_rejected();
    let failure = format!("failed calling webhook {NAME:?}: {expected}");
    assert!(
        rejection.message.starts_with(&format!("Internal error occurred: {failure}")),
        "{case}: {rejection}"
    );
    assert_eq!((rejection.code, rejection.reason.as_str()), (500, "InternalError"), "{case}");
    assert_eq!(rejection.by, RejectedBy::FailurePolicy, "{case}");
    let cause = rejection.causes[0].message.as_deref();
    assert!(cause.is_some_and(|message| message.starts_with(&failure)), "{case}");
    let outcome = registered(api_server, kind, FailurePolicy::Ignore).review(&review).await;
    assert_eq!(outcome.result.clone().unwrap(), pod(), "{case}: the object goes on as it was");
    assert!(outcome.expect_failed_open().starts_with(&failure), "{case}");
}

#[tokio::test]
async fn an_invalid_response_is_a_failed_call() {
    let invalid = "received invalid webhook response: ";
    let change = patch(&json!([{"op": "add", "path": "/x", "value": 1}]));
    let both = [WebhookKind::Mutating, WebhookKind::Validating].as_slice();
    let other_uid = |found: &str| format!("expected response.uid=\"u\", got {found:?}");
    let lacks = |found, absent| format!("webhook returned response.{found} but not response.{absent}");
    let may_not = |field| format!("validating webhook may not return response.{field}");
    let invalid_type = "webhook returned invalid response.patchType of \"\"";
    let typed = |patch: &str, kind: &str| json!({"allowed": true, "patch": patch, "patchType": kind});
    let denied = json!({"allowed": false, "patchType": "JSONPatch"});
    let cases: [(&[WebhookKind], Value, String); 9] = [
        (both, Value::Null, "webhook response was absent".to_owned()),
        (both, json!({"uid": "", "allowed": true}), other_uid("")),
        (both, json!({"uid": "x", "allowed": false}), other_uid("x")),
        (&[WebhookKind::Mutating], json!({"allowed": true, "patch": change}), lacks("patch", "patchType")),
        (&[WebhookKind::Mutating], denied.clone(), lacks("patchType", "patch")),
        (&[WebhookKind::Mutating], typed("", "JSONPatch"), lacks("patchType", "patch")),
        (&[WebhookKind::Mutating], typed(&change, ""), invalid_type.to_owned()),
        (&[WebhookKind::Validating], typed(&change, "JSONPatch"), may_not("patch")),
        (&[WebhookKind::Validating], denied, may_not("patchType")),
    ];
    for (kinds, answer, expected) in cases {
        let case = answer.to_string();
        for kind in kinds {
            let api_server = answering(answer.clone());
            let webhook = registered(&api_server, *kind, FailurePolicy::Fail);
            let review = Review::create(&pod()).uid("u");
            let message = webhook.review(&review).await.expect_rejected().message;
            let full =
                format!("Internal error occurred: failed calling webhook {NAME:?}: {invalid}{expected}");
            assert_eq!(message, full, "{case}");
            assert_call_fails(&case, &api_server, *kind, invalid).await;
        }
    }
    let no_json = "failed to call webhook: json: ";
    for (answer, expected) in [
        (typed(&STANDARD.encode("{}"), "JSONPatch"), "received undecodable patch in webhook response: "),
        (typed(&change, "Merge"), "unsupported patch type \"Merge\""),
        (typed("!", "JSONPatch"), no_json),
        (json!({"allowed": "yes"}), no_json),
    ] {
        let case = answer.to_string();
        assert_call_fails(&case, &answering(answer), WebhookKind::Mutating, expected).await;
    }
}

#[tokio::test]
async fn a_response_that_is_not_a_review_is_a_failed_call() {
    const JSON: &str = "application/json";
    let of_type = |api_version: &str, kind: &str| {
        json!({"apiVersion": api_version, "kind": kind, "response": {"uid": "u", "allowed": true}})
            .to_string()
    };
    let review = || of_type("admission.k8s.io/v1", "AdmissionReview");
    let beta = of_type("admission.k8s.io/v1beta1", "AdmissionReview");
    let untyped = json!({"response": {"uid": "u", "allowed": true}}).to_string();
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "I am ill"});
    let text = str::to_owned;
    let invalid = "received invalid webhook response: expected webhook response of admission.k8s.io/v1, \
                   Kind=AdmissionReview, got /, Kind=";
    let no_json = "couldn't get version/kind; json parse error";
    let boom = "an error on the server (\"boom\") has prevented the request from succeeding";
    let cases = [
        (200, JSON, String::new(), "0-length response with status code: 200"),
        (200, JSON, text("{"), no_json),
        (200, JSON, text("[]"), no_json),
        (200, JSON, of_type("v1", "Pod"), "no kind \"Pod\""),
        (200, JSON, beta, ""),
        (200, JSON, status.to_string(), ""),
        (200, JSON, untyped, invalid),
        (200, "nonsense/", review(), "Internal error occurred: mime: "),
        (207, JSON, review(), "the server responded with the status code 207"),
        (307, "", String::new(), "the server responded"),
        (400, "", text("x"), "the server rejected our request for an unknown reason"),
        (403, "text/plain", text(" no \n"), "no"),
        (403, JSON, text("no"), "unknown"),
        (404, "", text("x"), "the server could not find the requested resource"),
        (500, "text/html", text("boom\n"), boom),
        (500, JSON, status.to_string(), "I am ill"),
        (503, "", String::new(), "the server is currently unable to handle the request"),
    ];
    for (code, content_type, body, expected) in cases {
        let case = format!("{code} {content_type} {body}");
        let api_server = api_server(move |_, review| {
            let uid = review["request"]["uid"].as_str().unwrap();
            let headers = [("location", "/elsewhere"), ("content-type", content_type)];
            let headers = if content_type.is_empty() { &headers[..1] } else { &headers };
            response(code, headers, body.replace("\"u\"", &format!("{uid:?}")))
        });
        let called = format!("failed to call webhook: {expected}");
        let expected = if expected == invalid { invalid } else { &called };
        assert_call_fails(&case, &api_server, WebhookKind::Validating, expected).await;
    }
    let broken =
        service_fn(async |_: Request<Full<Bytes>>| Err::<Response<Full<Bytes>>, BoxError>("EOF".into()));
    let expected = "failed to call webhook: Post \"https://webhook.in-process.svc:443/?timeout=10s\": EOF";
    assert_call_fails("no answer", &ApiServer::in_process(broken), WebhookKind::Validating, expected).await;
}

#[tokio::test]
async fn any_media_type_and_lenient_json_are_accepted() {
    for content_type in ["", "text/plain; charset=utf-8", "application/json;", "json"] {
        let api_server = api_server(move |_, review| {
            let uid = review["request"]["uid"].as_str().unwrap();
            // A duplicate key, null for empty values, an unknown field, a patch as numbers.
            let patch =
                format!("{:?}", json!([{"op": "add", "path": "/x", "value": 1}]).to_string().as_bytes());
            let body = format!(
                r#"{{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "more": 1, "response":
                {{"uid": "other", "uid": {uid:?}, "allowed": true, "status": null, "warnings": [null, "w"],
                "auditAnnotations": null, "patch": {patch}, "patchType": "JSONPatch"}}}}"#
            );
            response(201, &[("content-type", content_type)], body)
        });
        let outcome = api_server.mutating(NAME, "/").review(&Review::create(&pod())).await;
        assert_eq!(outcome.warnings, ["w"], "{content_type}: {:?}", outcome.result);
        assert_eq!(outcome.expect_admitted()["x"], 1);
    }
}

#[tokio::test]
async fn an_inapplicable_patch_rejects_under_any_failure_policy() {
    let update = || Review::update(&pod(), &pod());
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}});
    let replace = |path: &str, value: Value| json!([{"op": "replace", "path": path, "value": value}]);
    let add = |path: &str, value: Value| json!([{"op": "add", "path": path, "value": value}]);
    let remove = |path: &str| json!([{"op": "remove", "path": path}]);
    let no_path = "add operation does not apply: doc is missing path: \"/metadata/labels/a\": missing value";
    let no_object = "admission webhook \"team.example.com\" attempted to modify the object, which is not supported for \
                     this operation";
    let no_list = "couldn't get version/kind; json parse error: json: cannot unmarshal array";
    let no_meta = "json: cannot unmarshal string into Go struct field Pod.metadata of type v1.ObjectMeta";
    let no_kind = "Object 'Kind' is missing in";
    let cases = [
        (add("/metadata/labels/a", json!("b")), update(), no_path),
        (json!([{"op": "swap", "path": "/x"}]), update(), "Unexpected kind: swap"),
        (remove("/kind"), Review::create(&thing), no_kind),
        (replace("/kind", json!("Podd")), update(), "no kind \"Podd\" is registered for version \"v1\""),
        (replace("/apiVersion", json!("v2")), update(), "no kind \"Pod\" is registered for version \"v2\""),
        (replace("", json!([])), update(), no_list),
        (replace("/metadata", json!("x")), update(), no_meta),
        (add("/x", json!(1)), Review::delete(&pod()), no_object),
    ];
    for (operations, review, expected) in cases {
        let api_server = patching(&operations);
        for policy in [FailurePolicy::Fail, FailurePolicy::Ignore] {
            let webhook = registered(&api_server, WebhookKind::Mutating, policy);
            let rejection = webhook.review(&review).await.expect_rejected();
            let message = format!("Internal error occurred: {expected}");
            assert!(rejection.message.starts_with(&message), "{operations}: {rejection}");
            assert_eq!((rejection.code, rejection.by), (500, RejectedBy::ApiServer), "{operations}");
        }
    }
}

#[tokio::test]
async fn a_removed_type_of_a_built_in_object_is_filled_in() {
    let operations = json!([{"op": "remove", "path": "/kind"}, {"op": "remove", "path": "/apiVersion"}]);
    let webhook = patching(&operations).mutating(NAME, "/");
    let patched = webhook.review(&Review::create(&pod())).await.expect_admitted();
    assert_eq!((&patched["kind"], &patched["apiVersion"]), (&json!("Pod"), &json!("v1")));
}

#[tokio::test]
async fn a_patch_changes_the_object_and_an_empty_list_does_not() {
    let operations = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]);
    for (operations, review, labels) in [
        (operations, Review::create(&pod()), json!({"a": "b"})),
        (json!([]), Review::create(&pod()), Value::Null),
        (json!([]), Review::delete(&pod()), Value::Null),
    ] {
        let outcome = patching(&operations).mutating(NAME, "/").review(&review).await;
        outcome.assert_nothing_dropped();
        assert!(outcome.is_admitted());
        assert_eq!(outcome.expect_admitted()["metadata"]["labels"], labels);
    }
}

#[tokio::test]
async fn denials_are_formatted_as_in_kubectl() {
    let denied = "admission webhook \"team.example.com\" denied the request";
    let cases = [
        (json!(null), 400, "", format!("{denied} without explanation")),
        (json!({"code": 200, "status": "Success"}), 400, "", format!("{denied} without explanation")),
        (json!({"code": 403, "reason": "Forbidden"}), 403, "Forbidden", format!("{denied}: Forbidden")),
        (json!({"message": "no", "reason": "Invalid"}), 400, "Invalid", format!("{denied}: no")),
        (json!({"message": "a\nb", "code": 422}), 422, "", format!("{denied}: a\nb")),
    ];
    for (status, code, reason, message) in cases {
        let api_server = answering(json!({"allowed": false, "status": status}));
        let webhook = registered(&api_server, WebhookKind::Validating, FailurePolicy::Ignore);
        let rejection = webhook.review(&Review::create(&pod())).await.expect_rejected();
        assert_eq!((rejection.code, rejection.reason.as_str()), (code, reason));
        assert_eq!((rejection.message, rejection.by), (message, RejectedBy::Webhook));
    }
    let causes = json!([{"reason": "FieldValueInvalid", "message": "m", "field": "spec.x"}]);
    let status = json!({"code": 422, "details": {"name": "web", "causes": causes}});
    let webhook = answering(json!({"allowed": false, "status": status})).validating(NAME, "/");
    let cause = webhook.review(&Review::create(&pod())).await.expect_rejected().causes.remove(0);
    let cause = [cause.reason, cause.message, cause.field].map(Option::unwrap);
    assert_eq!(cause, ["FieldValueInvalid", "m", "spec.x"]);
}

#[tokio::test]
async fn silently_dropped_parts_are_reported() {
    let answer = json!({
        "allowed": false,
        "patch": patch(&json!([])), "patchType": "JSONPatch",
        "warnings": ["fine", "two\nlines", "fine"],
        "auditAnnotations": {"key": "value", "a/b": "x", "": "y"},
    });
    let outcome = answering(answer).mutating(NAME, "/").review(&Review::create(&pod())).await;
    assert_eq!(outcome.warnings, ["fine"]);
    let annotations = BTreeMap::from([("team.example.com/key".to_owned(), "value".to_owned())]);
    assert_eq!(outcome.audit_annotations, annotations);
    let mut dropped: Vec<&str> = outcome.dropped.iter().map(|dropped| dropped.part.as_str()).collect();
    dropped.sort_unstable();
    assert_eq!(
        dropped,
        ["audit annotation \"\"", "audit annotation \"a/b\"", "patch", "warning \"two\\nlines\""]
    );
    let answer = json!({"allowed": true, "status": {"message": "welcome"}});
    let outcome = answering(answer).mutating(NAME, "/").review(&Review::create(&pod())).await;
    assert_eq!(outcome.dropped[0].part, "status.message");
}

fn shedding(status: u16, retry_after: &'static str, times: u32) -> (ApiServer, Arc<Mutex<u32>>) {
    let calls = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&calls);
    let api_server = api_server(move |_, review| {
        let mut calls = counted.lock().unwrap();
        *calls += 1;
        if *calls <= times {
            return response(status, &[("retry-after", retry_after)], "busy");
        }
        reviewed(&json!({"uid": review["request"]["uid"], "allowed": true}))
    });
    (api_server, calls)
}

#[tokio::test]
async fn retry_after_is_honored_ten_times() {
    let cases = [
        (429, "0", 10, Ok(()), 11),
        (503, "-1", 3, Ok(()), 4),
        (429, "0", 11, Err("has received too many requests"), 11),
        (429, "Wed, 21 Oct 2026 07:28:00 GMT", 1, Err("has received too many requests"), 1),
        (429, "0.5", 1, Err("has received too many requests"), 1),
        (400, "0", 1, Err("the server rejected our request"), 1),
    ];
    for (status, retry_after, times, expected, attempts) in cases {
        let (api_server, calls) = shedding(status, retry_after, times);
        let outcome = api_server.validating(NAME, "/").review(&Review::create(&pod())).await;
        assert_eq!(
            (outcome.calls[0].attempts, *calls.lock().unwrap()),
            (attempts, attempts),
            "{retry_after}"
        );
        match (outcome.result, expected) {
            (Ok(_), Ok(())) => {}
            (Err(rejection), Err(part)) => assert!(rejection.message.contains(part), "{rejection}"),
            (found, _) => panic!("{status} {retry_after}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn attempts_end_with_the_deadline() {
    let (api_server, _) = shedding(429, "2", 99);
    let started = Instant::now();
    let webhook = api_server
        .register(WebhookKind::Validating, [NAME, "/v"], |registration| registration.with_timeout_seconds(3));
    let outcome = webhook.review(&Review::create(&pod())).await;
    assert_eq!((outcome.calls[0].attempts, started.elapsed().as_secs()), (2, 3));
    let expected = "Post \"https://webhook.in-process.svc:443/v?timeout=3s\": context deadline exceeded";
    assert!(outcome.expect_rejected().message.ends_with(expected));
    let hanging = service_fn(async |_: Request<Full<Bytes>>| {
        pending::<Result<Response<Full<Bytes>>, Infallible>>().await
    });
    let webhook =
        ApiServer::in_process(hanging).register(WebhookKind::Validating, [NAME, "/"], |registration| {
            registration.with_timeout_seconds(1).with_failure_policy(FailurePolicy::Ignore)
        });
    let started = Instant::now();
    let outcome = webhook.review(&Review::create(&pod())).await;
    assert!(outcome.expect_failed_open().ends_with("context deadline exceeded"));
    assert_eq!(started.elapsed().as_secs(), 1);
}

#[tokio::test]
async fn calls_match_those_of_the_api_server() {
    let seen = Arc::new(Mutex::new(None));
    let sink = Arc::clone(&seen);
    let api_server = api_server(move |head, _| {
        *sink.lock().unwrap() = Some((head.method().clone(), head.uri().clone(), head.headers().clone()));
        response(500, &[], "")
    });
    let webhook =
        api_server.register(WebhookKind::Mutating, [NAME, "/mutate"], |it| it.with_timeout_seconds(7));
    drop(webhook.review(&Review::create(&pod())).await);
    let (method, uri, headers) = seen.lock().unwrap().take().unwrap();
    assert_eq!((method.as_str(), uri.path_and_query().unwrap().as_str()), ("POST", "/mutate?timeout=7s"));
    let header = |name: &str| headers[name].to_str().unwrap();
    assert_eq!(header("user-agent"), "kube-apiserver-admission");
    assert_eq!(header("accept"), "application/json, */*");
    assert_eq!(header("content-type"), "application/json");
}

async fn careless(request: AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
    let object: Value = request.object.ok_or("no object")?.decode()?;
    let path = if object["spec"].is_null() { "/spec" } else { "/spec/more" };
    let patch = json!([{"op": "add", "path": path, "value": {"seen": true}}]);
    Ok(AdmissionResponse::patch(JsonPatch::from_operations(&patch)?))
}

#[tokio::test]
async fn assert_idempotent_accepts_an_idempotent_webhook() {
    let label = async || {
        let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]);
        JsonPatch::from_operations(&patch)
    };
    let router = Router::new().webhook("/", Webhook::mutating("a.example.com", label));
    let webhook = ApiServer::in_process(router).mutating(NAME, "/");
    let pod: k8s_openapi::api::core::v1::Pod =
        webhook.assert_idempotent(&Review::create(&pod())).await.expect_object();
    assert_eq!(pod.metadata.labels.unwrap()["a"], "b");
}

#[tokio::test]
#[should_panic(expected = "the webhooks change the object again: [{\"op\":\"add\",\"path\":\"/spec/more\"")]
async fn assert_idempotent_rejects_other_webhooks() {
    let router = Router::new().webhook("/", Webhook::mutating("a.example.com", careless));
    let webhook = ApiServer::in_process(router).mutating(NAME, "/");
    drop(webhook.assert_idempotent(&Review::create(&pod())).await);
}

#[tokio::test]
#[should_panic(expected = "the request was admitted because a failure is ignored")]
async fn expect_admitted_panics_if_a_failure_admitted_the_request() {
    let api_server = api_server(|_, _| response(500, &[], ""));
    let webhook = registered(&api_server, WebhookKind::Validating, FailurePolicy::Ignore);
    drop(webhook.review(&Review::create(&pod())).await.expect_admitted());
}

#[test]
fn registrations_that_the_api_server_rejects_cannot_be_built() {
    let api_server = ApiServer::in_process(Router::new());
    for name in ["team", "example.com", "Team.example.com", "team..example.com"] {
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| api_server.mutating(name, "/")));
        assert!(made.is_err(), "{name}");
    }
}
