//! Failures of webhooks, handled by the failure action or by the registration's `failurePolicy`.
//!
//! The failurePolicy covers webhooks that are unavailable. A handler that fails was reached: the webhook responds, and
//! by default denies under `Ignore` too, unless its `FailureAction` is another one.

use std::future::pending;
use std::time::Duration;

use futures::future::join_all;
use lucid_webhook::{
    AdmissionResponse, BoxError, FailureAction, JsonPatch, Object, PatchError, Router, Webhook, WebhookKind,
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::servers::{refusing, serve, serve_raw, serve_untrusted};
use super::{Scene, answer, in_namespace, pod, registration, unchecked};
use crate::common::assert_counted;

#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// Denied by the webhook; start of the message after the API server's prefix.
    Refused(u16, &'static str),
    Allowed(&'static [&'static str]),
    /// The API server got no response. Under `Fail` it denies with a message that contains this text; under `Ignore` it
    /// allows the request and records the failure in the audit log.
    ByPolicy(&'static str),
    /// The API server denies under either policy, with a message that contains this text.
    RefusedByApiServer(&'static str),
}
use Outcome::{Allowed, ByPolicy, Refused, RefusedByApiServer};

struct Case<'a> {
    name: &'a str,
    server: &'a str,
    timeout_seconds: u8,
    outcome: Outcome,
}

async fn check(scene: &Scene, kind: WebhookKind, cases: &[Case<'_>]) {
    let policies = ["Fail", "Ignore"];
    let both = || cases.iter().flat_map(|case| policies.map(|policy| (case, policy)));
    let webhooks = both().map(|(case, policy)| {
        let name = format!("{}-{}", case.name, policy.to_lowercase());
        let fields = json!({
            "name": format!("{name}.example.com"),
            "failurePolicy": policy,
            "timeoutSeconds": case.timeout_seconds,
            "objectSelector": {"matchLabels": {"case": name}},
        });
        registration(case.server, &format!("/{}", case.name), fields)
    });
    scene.register(kind, webhooks).await;
    join_all(both().map(|(case, policy)| check_case(scene, case, policy))).await;
}

async fn check_case(scene: &Scene, case: &Case<'_>, policy: &str) {
    let name = format!("{}-{}", case.name, policy.to_lowercase());
    let answer = scene.create("pods", &pod(&name, json!({"case": name}))).await;
    let audited = scene.audited("create", &name);
    let failed_open = audited.keys().any(|key| key.starts_with("failed-open."));
    match (case.outcome, policy) {
        (Refused(code, message), _) => {
            let denied = format!("admission webhook \"{name}.example.com\" denied the request: ");
            let told = answer.message().strip_prefix(&*denied).is_some_and(|it| it.starts_with(message));
            assert!(answer.code == code && told, "{name}: {message} does not begin {answer:?}");
        }
        (Allowed(warnings), _) => {
            assert!(answer.code == 201 && answer.warnings == warnings, "{name}: {answer:?}");
            assert_eq!(answer.body["metadata"]["annotations"], json!(null), "{name}: unchanged");
        }
        (ByPolicy(_), "Ignore") => assert_eq!(answer.code, 201, "{name}: {answer:?}"),
        (ByPolicy(text), _) => {
            let failed = format!("failed calling webhook \"{name}.example.com\"");
            let message = answer.message();
            let told = message.contains(&failed) && message.contains(text);
            assert!(answer.code == 500 && told, "{name}: {text} is not in {answer:?}");
        }
        (RefusedByApiServer(text), _) => {
            let message = answer.message();
            let refused = message.contains(text) && !message.contains("denied the request");
            assert!(answer.code == 500 && refused, "{name}: {text} is not in {answer:?}");
        }
    }
    let expected = policy == "Ignore" && matches!(case.outcome, ByPolicy(_));
    assert_eq!(failed_open, expected, "{name}: {audited:?}");
}

async fn fail() -> Result<AdmissionResponse, BoxError> {
    Err("the database is away".into())
}

async fn crash() -> AdmissionResponse {
    panic!("on purpose")
}

async fn misread(Object(_): Object<Vec<u8>>) -> AdmissionResponse {
    AdmissionResponse::allow()
}

async fn unfitting_patch() -> Result<JsonPatch, PatchError> {
    JsonPatch::from_operations(&json!([
        {"op": "add", "path": "/metadata/annotations", "value": {"seen": "true"}},
        {"op": "remove", "path": "/metadata/annotations/absent"},
    ]))
}

#[test]
fn failure_actions_apply_under_any_failure_policy() {
    let webhook = |name: &str, action: Option<FailureAction>| {
        let webhook = match name {
            "overrun" => Webhook::validating(name, pending::<AdmissionResponse>),
            "panic" => Webhook::validating(name, crash),
            "misread" => Webhook::validating(name, misread),
            "patch-of-validating" => Webhook::validating(name, unfitting_patch),
            _ => Webhook::validating(name, fail),
        };
        match action {
            Some(action) => webhook.with_failure_action(action),
            None => webhook,
        }
    };
    const AWAY: &str = "the webhook failed: the database is away";
    let patched = "the webhook failed: a validating webhook answered with a patch";
    let table = [
        ("error", None, Refused(500, AWAY)),
        ("error-warn", Some(FailureAction::Warn), Allowed(&[AWAY])),
        ("error-skip", Some(FailureAction::Skip), Allowed(&[])),
        ("panic", None, Refused(500, "the webhook panicked")),
        ("overrun", None, Refused(504, "the webhook timed out")),
        ("misread", None, Refused(400, "the webhook failed: the object, core/v1 Pod failing/misread-")),
        ("patch-of-validating", None, Refused(500, patched)),
    ];
    in_namespace("failing", async |scene| {
        let router = table.iter().fold(Router::new(), |router, (name, action, _)| {
            router.webhook(format!("/{name}"), webhook(name, action.clone()))
        });
        let server = serve(router).await;
        let cases = table.map(|(name, _, outcome)| {
            // Shorter than the API server's default.
            let timeout_seconds = if name == "overrun" { 1 } else { 5 };
            Case { name, server: &server, timeout_seconds, outcome }
        });
        check(scene, WebhookKind::Validating, &cases).await;
    });
}

#[test]
fn the_failure_policy_applies_without_a_response() {
    fn nonsense(path: &str, review: &Value) -> Option<(u16, String)> {
        Some(match path {
            "/silent" => return None,
            "/no-json" => (200, "hello".into()),
            "/no-response" => (200, answer(json!(null))),
            "/broken" => (500, "out of paper".into()),
            "/other-uid" => (200, answer(json!({"uid": "another", "allowed": true}))),
            "/validating-patch" => return unchecked(review, &json!([])),
            _ => panic!("{path}"),
        })
    }
    in_namespace("silent", async |scene| {
        let raw = serve_raw(nonsense).await;
        let (_port, down) = refusing();
        let untrusted = serve_untrusted(Router::new()).await;
        let ours = serve(Router::new()).await;
        let case = |name, server, outcome| {
            let timeout_seconds = if name == "silent" { 1 } else { 5 };
            Case { name, server, timeout_seconds, outcome }
        };
        let cases = [
            // A timeout detected by this crate has another message.
            case("silent", &raw, ByPolicy("context deadline exceeded")),
            case("no-json", &raw, ByPolicy("couldn't get version/kind")),
            case("no-response", &raw, ByPolicy("webhook response was absent")),
            case("broken", &raw, ByPolicy("out of paper")),
            case("other-uid", &raw, ByPolicy("expected response.uid=")),
            case("validating-patch", &raw, ByPolicy("may not")),
            case("down", &down, ByPolicy("connection refused")),
            case("untrusted", &untrusted, ByPolicy("x509: certificate signed by unknown authority")),
            case("unknown-path", &ours, ByPolicy("no webhook at /unknown-path")),
        ];
        check(scene, WebhookKind::Validating, &cases).await;
    });
}

#[test]
fn an_inapplicable_patch_is_denied_with_the_cause() {
    fn raw(_: &str, review: &Value) -> Option<(u16, String)> {
        unchecked(review, &json!([{"op": "remove", "path": "/metadata/annotations/absent"}]))
    }
    in_namespace("unfitting", async |scene| {
        let abort = Webhook::mutating("patch", unfitting_patch);
        let skip = Webhook::mutating("skip", unfitting_patch).with_failure_action(FailureAction::Skip);
        let ours = serve(Router::new().webhook("/patch", abort).webhook("/patch-skip", skip)).await;
        let raw = serve_raw(raw).await;
        let case = |name, server, outcome| Case { name, server, timeout_seconds: 5, outcome };
        let message = "the webhook failed: the patch does not apply to the object: ";
        let cases = [
            case("patch", &*ours, Refused(500, message)),
            case("patch-skip", &ours, Allowed(&[])),
            case("patch-unchecked", &raw, RefusedByApiServer("metadata")),
        ];
        check(scene, WebhookKind::Mutating, &cases).await;
    });
}

#[test]
fn the_test_kit_decodes_patched_objects_like_the_api_server() {
    fn patch(pod: &str) -> Value {
        match pod {
            "no-kind" => json!([{"op": "remove", "path": "/kind"}]),
            "no-version" => json!([{"op": "remove", "path": "/apiVersion"}]),
            "other-kind" => json!([{"op": "replace", "path": "/kind", "value": "Podd"}]),
            "other-version" => json!([{"op": "replace", "path": "/apiVersion", "value": "v2"}]),
            "list" => json!([{"op": "replace", "path": "", "value": []}]),
            _ => json!([{"op": "replace", "path": "/metadata", "value": "x"}]),
        }
    }
    fn answer(_: &str, review: &Value) -> Option<(u16, String)> {
        unchecked(review, &patch(review["request"]["name"].as_str().unwrap()))
    }
    in_namespace("decoded", async |scene| {
        let webhook = registration(&serve_raw(answer).await, "/", json!({"name": "patch.example.com"}));
        scene.register(WebhookKind::Mutating, [webhook]).await;
        let list = "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value";
        let metadata =
            "json: cannot unmarshal string into Go struct field Pod.metadata of type v1.ObjectMeta";
        for (name, expected) in [
            ("no-kind", None),
            ("no-version", None),
            ("other-kind", Some("no kind \"Podd\" is registered for version \"v1\"")),
            ("other-version", Some("no kind \"Pod\" is registered for version \"v2\"")),
            ("list", Some(list)),
            ("metadata", Some(metadata)),
        ] {
            let answer = scene.create("pods", &pod(name, json!(null))).await;
            match expected {
                None => assert_eq!(answer.stored()["kind"], "Pod", "{name}"),
                Some(text) => {
                    assert!(answer.code == 500 && answer.message().contains(text), "{name}: {answer:?}")
                }
            }
        }
    });
}

#[test]
fn a_shed_call_is_retried() {
    async fn slow() -> AdmissionResponse {
        sleep(Duration::from_millis(500)).await;
        AdmissionResponse::allow()
    }
    in_namespace("shed", async |scene| {
        let mut registry = Registry::default();
        let webhook = Webhook::validating("slow.example.com", slow).with_max_in_flight(1);
        let router = Router::new().webhook("/", webhook).with_metrics(&mut registry);
        let fields = json!({"name": "slow.example.com"});
        scene.register(WebhookKind::Validating, [registration(&serve(router).await, "/", fields)]).await;
        let pods = [pod("one", json!(null)), pod("two", json!(null))];
        for answer in join_all(pods.iter().map(|pod| scene.create("pods", pod))).await {
            answer.stored();
        }
        let shed = "webhook=\"slow.example.com\",operation=\"\",outcome=\"shed\"";
        assert_counted(&registry, &format!("admission_requests_total{{{shed}"), 1);
    });
}
