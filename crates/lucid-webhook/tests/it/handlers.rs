//! Handlers as functions: arguments, responses, failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use kube_core::DynamicObject;
use lucid_webhook::{
    AdmissionRequest, AdmissionResponse, BoxError, Changed, DecodeError, Failure, FailureAction, FieldErrors,
    FieldPath, Handler, JsonPatch, Object, OldObject, Operation, PatchError, RawObject, Router, State,
    UserInfo, Webhook, WithState,
};
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::Service;

use crate::common::{self, Written, another_subscriber, assert_counted, patch, patch_of, patch_text, post};
use crate::permissions::fixed;

const NAME: &str = "a.example.com";

pub(crate) fn validating<H: Handler<Args, Future: Send>, Args: 'static>(handler: H) -> Webhook {
    Webhook::validating(NAME, handler)
}

pub(crate) fn mutating<H: Handler<Args, Future: Send>, Args: 'static>(handler: H) -> Webhook {
    Webhook::mutating(NAME, handler)
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"team": "a\"b"}},
        "spec": {"containers": [{"name": "app", "image": "app:1", "fromTheFuture": 1}]}})
}

pub(crate) fn review(changes: Value) -> Value {
    let mut request = json!({
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "web", "namespace": "shop", "operation": "UPDATE", "dryRun": true,
        "userInfo": {"username": "jane"}, "object": pod(), "oldObject": pod(),
        "options": {"kind": "UpdateOptions", "fieldManager": "hand"},
    });
    for (key, value) in changes.as_object().unwrap() {
        request[key] = value.clone();
    }
    common::review(request)
}

pub(crate) async fn ask(webhook: Webhook, changes: Value) -> Value {
    let (status, _, mut answer) =
        post(&Router::new().webhook("/", webhook), "/?timeout=2s", &review(changes)).await;
    assert_eq!((status, &answer["response"]["uid"]), (200, &json!("u-1")));
    answer["response"].take()
}

async fn allow() -> AdmissionResponse {
    AdmissionResponse::allow()
}

async fn hang() -> AdmissionResponse {
    std::future::pending().await
}

#[derive(Deserialize)]
struct ManagerOption {
    #[serde(rename = "fieldManager")]
    field_manager: String,
}

#[tokio::test]
async fn every_argument_matches_the_request() {
    #[expect(clippy::too_many_arguments, reason = "as many as a handler may have")]
    async fn handle(
        request: AdmissionRequest,
        Object(pod): Object<Pod>,
        OldObject(old): OldObject<DynamicObject>,
        kube_request: kube_core::admission::AdmissionRequest<DynamicObject>,
        raw: RawObject,
        user: UserInfo,
        operation: Operation,
        State(calls): State<Arc<AtomicUsize>>,
    ) -> AdmissionResponse {
        calls.fetch_add(1, Ordering::Relaxed);
        let left = request.deadline - Instant::now();
        assert!(left > Duration::from_millis(500) && left < Duration::from_millis(1001), "{left:?}");
        let pod_metadata = pod.metadata.clone();
        let team = &pod.metadata.labels.unwrap()["team"];
        let old = old.metadata.name.unwrap();
        let options: ManagerOption = request.options.unwrap().decode().unwrap();
        assert_eq!(
            (kube_request.object.unwrap().metadata, raw.as_bytes()),
            (pod_metadata, request.object.unwrap().as_bytes())
        );
        AdmissionResponse::allow().with_warning(format!(
            "{} {team} {old} {} {} {} {}",
            request.name,
            options.field_manager,
            user.username,
            operation.as_str(),
            request.dry_run
        ))
    }
    let calls = Arc::new(AtomicUsize::new(0));
    let answer = ask(validating(handle.with_state(Arc::clone(&calls))), json!({})).await;
    assert_eq!(answer["warnings"], json!(["web a\"b web hand jane UPDATE true"]));
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_view_decodes_only_its_fields_and_borrows_them() {
    #[derive(Deserialize)]
    struct View<'a> {
        #[serde(borrow)]
        kind: &'a str,
    }
    async fn handle(object: RawObject) -> Result<AdmissionResponse, BoxError> {
        let view: View<'_> = object.decode()?;
        assert!(object.as_bytes().as_ptr_range().contains(&view.kind.as_ptr()), "it is a copy");
        Ok(AdmissionResponse::allow().with_warning(view.kind))
    }
    // Does not decode as any type of Kubernetes.
    let object = json!({"kind": "Pod", "metadata": 7, "spec": "none"});
    let answer = ask(validating(handle), json!({"object": object})).await;
    assert_eq!(answer["warnings"], json!(["Pod"]));
}

#[tokio::test]
async fn rejected_arguments_name_the_argument_and_path() {
    async fn object(_: Object<Pod>) -> AdmissionResponse {
        AdmissionResponse::allow()
    }
    async fn old(_: OldObject<Pod>) -> AdmissionResponse {
        AdmissionResponse::allow()
    }
    async fn optional(object: Option<Object<Pod>>, old: Option<OldObject<Pod>>) -> AdmissionResponse {
        AdmissionResponse::allow().with_warning(format!("{} {}", object.is_some(), old.is_some()))
    }
    async fn raw(object: RawObject) -> Result<AdmissionResponse, DecodeError> {
        object.decode::<Pod>()?;
        Ok(AdmissionResponse::allow())
    }
    let webhook = |name: &str| match name {
        "object" => validating(object),
        "old" => validating(old),
        "raw" => validating(raw),
        _ => validating(optional),
    };
    let create = || json!({"operation": "CREATE", "oldObject": null});
    let delete = || json!({"operation": "DELETE", "object": null});
    let mut broken = pod();
    broken["spec"]["containers"][0]["image"] = json!(7);
    let broken = || json!({"object": broken.clone()});
    let image = "failed to decode the object at spec.containers[0].image";
    for (handler, changes, says) in [
        ("object", delete(), "the request carries no object: operation DELETE"),
        ("old", create(), "the request carries no old object: operation CREATE"),
        ("object", broken(), &*format!("the object, core/v1 Pod shop/web: {image}")),
        ("optional", broken(), "spec.containers[0].image: invalid type: integer `7`, expected a string"),
    ] {
        let answer = ask(webhook(handler), changes).await;
        assert_eq!((&answer["allowed"], &answer["status"]["code"]), (&json!(false), &json!(400)));
        let message = answer["status"]["message"].as_str().unwrap();
        assert!(message.contains(says), "{message}");
    }
    for handler in ["object", "raw"] {
        let answer = ask(webhook(handler), broken()).await;
        let details = &answer["status"]["details"];
        let cause = &details["causes"][0];
        assert_eq!(cause["field"], "spec.containers[0].image", "{handler}: {answer}");
        assert_eq!(cause["reason"], "FieldValueTypeInvalid", "{handler}");
        let says = "Invalid value: invalid type: integer `7`, expected a string";
        assert!(cause["message"].as_str().unwrap().starts_with(says), "{handler}: {cause}");
        if handler == "object" {
            assert_eq!((&details["kind"], &details["name"]), (&json!("Pod"), &json!("web")));
        }
    }
    assert_eq!(ask(webhook("optional"), delete()).await["warnings"], json!(["false true"]));
    assert_eq!(ask(webhook("optional"), create()).await["warnings"], json!(["true false"]));
}

#[tokio::test]
async fn a_changed_object_becomes_the_patch_of_what_differs() {
    async fn prepend(Object(mut pod): Object<Pod>) -> Changed<Pod> {
        let containers = &mut pod.spec.get_or_insert_default().containers;
        containers.insert(0, serde_json::from_value(json!({"name": "first"})).unwrap());
        Changed::new(pod)
    }
    async fn nothing(Object(pod): Object<Pod>) -> Changed<Pod> {
        Changed::new(pod)
    }
    async fn annotated(Object(mut pod): Object<Pod>) -> Changed<Pod> {
        pod.metadata.labels = None;
        Changed::new(pod).with_warning("no labels").with_audit_annotation("labels", "removed")
    }
    async fn explicit() -> Result<JsonPatch, PatchError> {
        JsonPatch::from_operations(&json!([{"op": "remove", "path": "/metadata/labels/team"}]))
    }
    let answer = ask(mutating(prepend), json!({})).await;
    assert_eq!(
        patch_of(&answer),
        json!([{"op": "add", "path": "/spec/containers/0", "value": {"name": "first"}}])
    );
    let answer = ask(mutating(nothing), json!({})).await;
    assert_eq!(answer, json!({"uid": "u-1", "allowed": true}));
    let answer = ask(mutating(annotated), json!({})).await;
    assert_eq!(patch_of(&answer), json!([{"op": "remove", "path": "/metadata/labels"}]));
    assert_eq!(answer["warnings"], json!(["no labels"]));
    assert_eq!(answer["auditAnnotations"], json!({"labels": "removed"}));
    let answer = ask(mutating(explicit), json!({})).await;
    assert_eq!(patch_of(&answer), json!([{"op": "remove", "path": "/metadata/labels/team"}]));
    let answer = ask(mutating(prepend), json!({"object": null})).await;
    assert_eq!(answer["status"]["code"], 400);
}

#[tokio::test]
async fn field_errors_deny_the_object_with_causes() {
    fn errors() -> FieldErrors {
        let mut errors = FieldErrors::new();
        errors.required(FieldPath::new("spec").child("a"), "");
        errors.invalid(FieldPath::new("spec").child("b"), 9, "at most 3");
        errors
    }
    async fn alone() -> FieldErrors {
        errors()
    }
    async fn as_error() -> Result<AdmissionResponse, BoxError> {
        errors().into_result()?;
        panic!("on purpose");
    }
    async fn none() -> FieldErrors {
        FieldErrors::new()
    }
    for webhook in [validating(alone), validating(as_error), validating(alone.with_state(()))] {
        let answer = ask(webhook, json!({})).await;
        let message =
            r#"Pod "web" is invalid: [spec.a: Required value, spec.b: Invalid value: 9: at most 3]"#;
        let causes = json!([
            {"reason": "FieldValueRequired", "field": "spec.a", "message": "Required value"},
            {"reason": "FieldValueInvalid", "field": "spec.b", "message": "Invalid value: 9: at most 3"},
        ]);
        let details = json!({"name": "web", "kind": "Pod", "causes": causes});
        let status = json!({
            "status": "Failure", "code": 422, "reason": "Invalid", "message": message, "details": details
        });
        assert_eq!(answer["status"], status);
    }
    assert_eq!(ask(validating(none), json!({})).await["allowed"], true);
    let deployment = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
    let answer = ask(validating(alone), json!({"kind": deployment})).await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.starts_with(r#"Deployment.apps "web" is invalid: "#), "{message}");
    assert_eq!(answer["status"]["details"]["group"], "apps");
}

async fn fail_as_named(request: AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
    match request.name.as_str() {
        "error" => Err("the disk is full".into()),
        "panic" => panic!("on purpose"),
        "denied" => Ok(AdmissionResponse::deny(403, "Forbidden", "not here")),
        "patched" => patch(&json!([{"op": "add", "path": "/metadata/labels/a", "value": "b"}])),
        "late" => {
            tokio::time::sleep(Duration::from_secs(30)).await;
            Ok(AdmissionResponse::allow())
        }
        "bad-patch" => patch(&json!([{"op": "remove", "path": "/spec/nothing"}])),
        _ => Ok(AdmissionResponse::allow().with_warning("fine")),
    }
}

#[tokio::test]
async fn failures_follow_the_action() {
    let function = |request: &AdmissionRequest, failure: &Failure| {
        let what = match failure {
            Failure::Error(error) => error.to_string(),
            Failure::Panic => "panic".to_owned(),
            Failure::Deadline => "deadline".to_owned(),
            _ => unreachable!(),
        };
        AdmissionResponse::deny(418, "Teapot", format!("{}: {what}", request.name))
    };
    let action = |name: &str| match name {
        "function" => FailureAction::call(function),
        name => serde_json::from_value(json!(name)).unwrap(),
    };
    let in_vain = "the webhook failed: the patch does not apply";
    for (action_name, recovery, object, allowed, code, says) in [
        ("abort", None, "error", false, json!(500), "the webhook failed: the disk is full"),
        ("abort", None, "panic", false, json!(500), "the webhook panicked"),
        ("abort", None, "late", false, json!(504), "the webhook timed out"),
        ("abort", None, "bad-patch", false, json!(500), in_vain),
        ("warn", None, "error", true, json!(null), "the webhook failed: the disk is full"),
        ("warn", None, "panic", true, json!(null), "the webhook panicked"),
        ("warn", None, "late", true, json!(null), "the webhook timed out"),
        ("warn", None, "bad-patch", true, json!(null), in_vain),
        ("skip", None, "error", true, json!(null), ""),
        ("skip", None, "late", true, json!(null), ""),
        ("function", None, "error", false, json!(418), "error: the disk is full"),
        ("function", None, "late", false, json!(418), "late: deadline"),
        ("skip", Some("abort"), "panic", false, json!(500), "the webhook panicked"),
        ("abort", Some("skip"), "panic", true, json!(null), ""),
        ("abort", Some("skip"), "late", false, json!(504), "timed out"),
        ("function", None, "panic", false, json!(418), "panic: panic"),
        ("skip", None, "none", true, json!(null), "fine"),
        ("warn", None, "denied", false, json!(403), "not here"),
        ("function", None, "denied", false, json!(403), "not here"),
    ] {
        let mut webhook = mutating(fail_as_named).with_failure_action(action(action_name));
        if let Some(recovery) = recovery {
            webhook = webhook.with_permissions(fixed(json!({"recoveryPolicy": recovery})));
        }
        let answer = ask(webhook, json!({"name": object})).await;
        let case = format!("{action_name} {recovery:?} {object}: {answer}");
        assert_eq!(answer["allowed"], allowed, "{case}");
        assert_eq!(answer["status"]["code"], code, "{case}");
        let said = if allowed { &answer["warnings"][0] } else { &answer["status"]["message"] };
        assert!(said.as_str().unwrap_or_default().contains(says), "{case}");
        assert!(!says.is_empty() || answer.get("warnings").is_none(), "{case}");
        assert!(answer.get("patch").is_none(), "{case}");
    }
    let error = serde_json::from_value::<FailureAction>(json!("Abort")).unwrap_err().to_string();
    assert!(error.contains("`abort`, `warn`, `skip`"), "{error}");
}

#[tokio::test]
async fn an_invalid_response_of_a_failure_function_denies() {
    let function = |_: &AdmissionRequest, _: &Failure| {
        patch(&json!([{"op": "add", "path": "/metadata/labels", "value": {}}])).unwrap()
    };
    let webhook = validating(fail_as_named).with_failure_action(FailureAction::call(function));
    let answer = ask(webhook, json!({"name": "error"})).await;
    assert_eq!(answer["status"]["message"], "the webhook failed: the disk is full");
}

#[tokio::test]
async fn a_service_that_is_never_ready_times_out() {
    #[derive(Clone)]
    struct Never;
    impl Service<AdmissionRequest> for Never {
        type Response = AdmissionResponse;
        type Error = BoxError;
        type Future = std::future::Ready<Result<AdmissionResponse, BoxError>>;
        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), BoxError>> {
            std::task::Poll::Pending
        }
        fn call(&mut self, _: AdmissionRequest) -> Self::Future {
            std::future::ready(Ok(AdmissionResponse::allow()))
        }
    }
    let answer = ask(validating(Never), json!({})).await;
    assert_eq!(answer["status"]["reason"], "Timeout");
}

#[tokio::test]
async fn truncated_parts_are_counted() {
    async fn handle() -> AdmissionResponse {
        AdmissionResponse::allow()
            .with_warning("two\nlines")
            .with_audit_annotation("a/b", "")
            .with_audit_annotation("fine", "yes")
    }
    let mut registry = Registry::default();
    let router = Router::new().with_metrics(&mut registry).webhook("/", validating(handle));
    let (_, _, answer) = post(&router, "/", &review(json!({}))).await;
    assert_eq!(answer["response"]["warnings"], json!(["two lines"]));
    assert_eq!(answer["response"]["auditAnnotations"], json!({"fine": "yes"}));
    for what in ["warning", "audit_annotation"] {
        let line = format!("admission_cut_total{{webhook=\"a.example.com\",what=\"{what}\"");
        assert_counted(&registry, &line, 1);
    }
}

#[test]
fn spans_describe_each_call_in_the_callers_trace() {
    use opentelemetry::trace::TracerProvider;
    use tracing_subscriber::layer::SubscriberExt;

    let written = Written::default();
    let json = tracing_subscriber::fmt::layer()
        .json()
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::CLOSE)
        .with_writer(written.clone());
    let exporter = opentelemetry_sdk::trace::InMemorySpanExporter::default();
    let provider =
        opentelemetry_sdk::trace::SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let open_telemetry = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let subscriber = tracing_subscriber::registry().with(json).with(open_telemetry);
    let _other = another_subscriber();

    let mut router = Router::new().webhook("/", mutating(fail_as_named));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(subscriber, || {
        for name in ["error", "denied", "patched"] {
            let request = http::Request::post("/")
                .header("content-type", "application/json")
                .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
                .body(http_body_util::Full::new(Bytes::from(review(json!({"name": name})).to_string())));
            runtime.block_on(router.call(request.unwrap())).unwrap();
        }
    });

    let lines = written.text();
    let close = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let close = close.filter(|line| line["fields"]["message"] == "close").collect::<Vec<_>>();
    let outcomes: Vec<_> = close.iter().map(|line| &line["span"]["outcome"]).collect();
    assert_eq!(outcomes, ["errored", "denied", "patched"], "{lines}");
    let close = &close[0];
    for (field, value) in [
        ("name", json!("admission")),
        ("webhook", json!("a.example.com")),
        ("uid", json!("u-1")),
        ("group", json!("")),
        ("version", json!("v1")),
        ("kind", json!("Pod")),
        ("namespace", json!("shop")),
        ("operation", json!("UPDATE")),
        ("dry_run", json!(true)),
        ("trace_id", json!("4bf92f3577b34da6a3ce929d0e0e4736")),
        ("parent_id", json!("00f067aa0ba902b7")),
    ] {
        assert_eq!(close["span"][field], value, "{field}: {close}");
    }
    let spans = exporter.get_finished_spans().unwrap();
    assert_eq!(spans[0].span_context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(spans[0].parent_span_id.to_string(), "00f067aa0ba902b7");
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
async fn a_patch_is_written_as_go_writes_json() {
    async fn handle() -> Result<JsonPatch, PatchError> {
        JsonPatch::from_operations(&json!([{"op": "add", "path": "/metadata/note", "value": "a<b>&c"}]))
    }
    let answer = ask(mutating(handle), json!({})).await;
    assert_eq!(patch_of(&answer)[0]["value"], "a<b>&c");
    assert!(patch_text(&answer).contains(r"a\u003cb\u003e\u0026c"));
}

#[tokio::test]
async fn undecodable_objects_are_not_quoted() {
    #[derive(Deserialize)]
    struct Secret {
        #[expect(dead_code, reason = "only its type matters")]
        data: u8,
    }
    async fn handle(_: Object<Secret>) -> AdmissionResponse {
        AdmissionResponse::allow()
    }
    let object = json!({"kind": "Secret", "data": "hunter\", expected2"});
    let answer = ask(validating(handle), json!({"object": object})).await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains("at data: invalid type: string, expected u8"), "{message}");
}

#[tokio::test]
async fn a_panic_anywhere_is_a_failure() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "on purpose");
        }
    }
    async fn late() -> AdmissionResponse {
        let _bomb = Bomb;
        std::future::pending().await
    }
    async fn fail() -> Result<AdmissionResponse, BoxError> {
        Err("the disk is full".into())
    }
    let answer = ask(validating(late), json!({})).await;
    assert_eq!(answer["status"]["message"], "the webhook panicked");
    let bomb = FailureAction::call(|_: &AdmissionRequest, _: &Failure| panic!("on purpose"));
    let webhook = validating(fail).with_failure_action(bomb);
    let answer = ask(webhook, json!({})).await;
    assert_eq!(answer["status"]["message"], "the webhook failed: the disk is full");
}

#[tokio::test]
async fn a_response_may_be_returned_as_an_error() {
    async fn handle() -> Result<AdmissionResponse, BoxError> {
        Err(AdmissionResponse::deny(409, "Conflict", "not now"))?;
        Ok(AdmissionResponse::allow())
    }
    let answer = ask(validating(handle), json!({})).await;
    assert_eq!(answer["status"]["reason"], "Conflict");
}

#[tokio::test]
async fn two_webhooks_at_one_path_fail_every_request() {
    let router = Router::new()
        .webhook("a", validating(allow))
        .webhook("/a", Webhook::validating("b.example.com", allow))
        .webhook("c", Webhook::validating("c.example.com", allow));
    assert_eq!(router.registrations().count(), 3);
    for (path, status) in [("/a", 500), ("/c", 200)] {
        assert_eq!(post(&router, path, &review(json!({}))).await.0, status, "{path}");
    }
}

#[test]
fn the_label_examples_have_less_than_30_lines() {
    for (name, text) in [
        ("required_label", include_str!("../../examples/required_label.rs")),
        ("add_label", include_str!("../../examples/add_label.rs")),
    ] {
        let lines = text.lines().count();
        assert!(lines < 30, "{name} has {lines}");
    }
}

#[tokio::test]
async fn skipped_and_cancelled_are_outcomes() {
    let mut registry = Registry::default();
    let router = Router::new()
        .with_metrics(&mut Registry::default())
        .with_metrics(&mut registry)
        .webhook("/", validating(hang));
    let call = async |namespace: &str| post(&router, "/", &review(json!({"namespace": namespace}))).await.0;
    assert_eq!(call("kube-system").await, 200);
    assert!(tokio::time::timeout(Duration::from_millis(50), call("shop")).await.is_err());
    for (outcome, count) in [("skipped", 1), ("cancelled", 1), ("allowed", 0)] {
        assert_counted(&registry, &format!("operation=\"UPDATE\",outcome=\"{outcome}\""), count);
    }
}
