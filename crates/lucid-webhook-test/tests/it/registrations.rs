//! Calls as the registrations require.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use lucid_webhook::registration::{Rule, WebhookRegistration, parse_selector};
use lucid_webhook::{AdmissionRequest, AdmissionResponse, BoxError, JsonPatch, Operation, Router, Webhook};
use lucid_webhook_test::{ApiServer, Mismatch, Review, ReviewOutcome};
use serde_json::{Value, json};

const NAME: &str = "team.example.com";

fn pod(namespace: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": namespace, "labels": labels}})
}

fn pods() -> Rule {
    Rule::of::<Pod>([Operation::Create])
}

fn denying(change: impl FnOnce(WebhookRegistration) -> WebhookRegistration) -> ApiServer {
    let webhook = Webhook::validating(NAME, async || AdmissionResponse::deny(403, "Forbidden", "no"));
    ApiServer::registered(&Router::new().webhook("/", webhook.with_registration(change)))
        .namespace("other", [("team", "b")])
        .namespace("shop", [("team", "a")])
}

#[track_caller]
fn assert_not_called(outcome: &ReviewOutcome, why: Mismatch, problem: &str) {
    let reason = outcome.expect_not_called(NAME);
    assert_eq!((reason.why, reason.problem.as_str()), (why, problem));
    assert!(outcome.is_admitted());
}

#[tokio::test]
async fn requests_that_no_rule_matches_are_not_sent() {
    let api_server = denying(|registration| registration.with_rule(pods()));
    assert!(!api_server.create(&pod("shop", json!({}))).await.is_admitted());
    let outcome = api_server.update(&pod("shop", json!({})), &pod("shop", json!({"a": "b"}))).await;
    let expected = "no rule matches UPDATE of pods in v1, in shop, the rules are: CREATE of pods in v1";
    assert_not_called(&outcome, Mismatch::Rules, expected);
    let review = Review::create(&pod("shop", json!({}))).subresource("eviction");
    assert_eq!(api_server.review(&review).await.expect_not_called(NAME).why, Mismatch::Rules);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
    assert_eq!(api_server.create(&node).await.expect_not_called(NAME).why, Mismatch::Rules);
}

#[tokio::test]
async fn scopes_distinguish_namespaces_from_namespaced_objects() {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}});
    let rule = || Rule::of::<Namespace>([Operation::Create]);
    let cluster = denying(|registration| registration.with_rule(rule().cluster_scoped()));
    assert!(!cluster.create(&namespace).await.is_admitted());
    let namespaced = denying(|registration| registration.with_rule(rule().namespaced()));
    assert_eq!(namespaced.create(&namespace).await.expect_not_called(NAME).why, Mismatch::Rules);
}

#[tokio::test]
async fn selectors_are_evaluated() {
    let api_server = denying(|registration| {
        let registration = registration.with_namespace_selector(parse_selector("team=a").unwrap());
        registration.with_object_selector(parse_selector("!skip").unwrap()).with_rule(pods())
    });
    assert!(!api_server.create(&pod("shop", json!({}))).await.is_admitted());
    let outcome = api_server.create(&pod("other", json!({}))).await;
    let expected = "namespaceSelector requires team=a, namespace \"other\" has kubernetes.io/metadata.name=other, team=b";
    assert_not_called(&outcome, Mismatch::NamespaceSelector, expected);
    let outcome = api_server.create(&pod("shop", json!({"skip": "1"}))).await;
    let expected = "objectSelector requires skip DoesNotExist, the object has skip=1";
    assert_not_called(&outcome, Mismatch::ObjectSelector, expected);
    // kube-system is excluded by every registration.
    let outcome =
        denying(|registration| registration.with_rule(pods())).create(&pod("kube-system", json!({}))).await;
    assert_eq!(outcome.expect_not_called(NAME).why, Mismatch::NamespaceSelector);
}

#[tokio::test]
async fn objects_without_metadata_are_not_selected() {
    let exec = json!({"apiVersion": "v1", "kind": "PodExecOptions", "command": ["sh"]});
    let exec = Review::connect(&exec).namespace("shop").name("web");
    let rule = || Rule::of::<Pod>([Operation::Connect]).subresource("*");
    for selector in ["!skip", "skip notin (a)"] {
        let selector = parse_selector(selector).unwrap();
        let api_server =
            denying(|registration| registration.with_object_selector(selector.clone()).with_rule(rule()));
        let expected = "objectSelector selects no objects without metadata";
        assert_not_called(&api_server.review(&exec).await, Mismatch::ObjectSelector, expected);
    }
    assert!(!denying(|registration| registration.with_rule(rule())).review(&exec).await.is_admitted());
}

#[tokio::test]
async fn a_webhook_of_another_version_is_reported() {
    let thing = |version: &str| json!({"apiVersion": format!("example.com/{version}"), "kind": "Thing", "metadata": {"name": "a"}});
    let rule = || Rule::new("example.com", ["v2"], ["things"], [Operation::Create]);
    let api_server = denying(|registration| registration.with_rule(rule()));
    let expected = "no rule matches CREATE of things in example.com/v1, in shop. The API server would convert the object, by \
                    matchPolicy: Equivalent, for the rule CREATE of things in example.com/v2; ApiServer does not: pass the \
                    converted object, and the requested version by Review::requested_as";
    assert_not_called(&api_server.create(&thing("v1")).await, Mismatch::Equivalent, expected);
    let converted = Review::create(&thing("v2")).requested_as("example.com", "v1", "things");
    assert!(!api_server.review(&converted).await.is_admitted());
    let exact = denying(|registration| registration.with_rule(rule()).with_exact_match());
    assert_eq!(exact.create(&thing("v1")).await.expect_not_called(NAME).why, Mismatch::Rules);
    let other = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}});
    assert_eq!(api_server.create(&other).await.expect_not_called(NAME).why, Mismatch::Rules);
}

#[tokio::test]
async fn namespaces_of_requests_must_exist() {
    let api_server = denying(|registration| registration.with_rule(pods()));
    let rejection = api_server.create(&pod("unknown", json!({}))).await.expect_rejected();
    assert_eq!((rejection.code, rejection.message.as_str()), (404, "namespaces \"unknown\" not found"));
    let mut pod = pod("", json!({}));
    pod["metadata"].as_object_mut().unwrap().remove("namespace");
    let rejection = api_server.create(&pod).await.expect_rejected();
    assert!(rejection.message.ends_with("denied the request: no"), "it is in the last one: {rejection}");
}

#[tokio::test]
async fn match_conditions_are_assumed() {
    let api_server =
        denying(|registration| registration.with_rule(pods()).with_match_condition("first", "false"));
    let outcome = api_server.create(&pod("shop", json!({}))).await;
    assert_eq!(outcome.calls[0].assumed_conditions, ["first"]);
    assert!(!outcome.is_admitted());
}

#[tokio::test]
#[should_panic(
    expected = "no webhook was called; webhook \"team.example.com\" is not called: no rule matches"
)]
async fn an_uncalled_webhook_is_not_what_a_test_expects() {
    let api_server = denying(|registration| registration.with_rule(pods()));
    drop(api_server.delete(&pod("shop", json!({}))).await.expect_admitted());
}

/// Appends its letter to the label `seen`, at most once.
fn appending(name: &'static str, letter: char, again: bool) -> Webhook {
    let handler = move |request: AdmissionRequest| async move {
        let pod: Pod = request.object.ok_or("no object")?.decode()?;
        let labels = pod.metadata.labels.unwrap_or_default();
        let seen = labels.get("seen").cloned().unwrap_or_default();
        if seen.ends_with(letter) {
            return Ok(AdmissionResponse::allow());
        }
        let patch =
            json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": format!("{seen}{letter}")}}]);
        Ok::<_, BoxError>(AdmissionResponse::patch(JsonPatch::from_operations(&patch)?))
    };
    Webhook::mutating(name, handler).with_registration(|registration| {
        let registration = registration.with_rule(pods());
        if again { registration.with_reinvocation() } else { registration }
    })
}

#[tokio::test]
async fn mutating_webhooks_are_called_first_and_again_after_a_change() {
    let validate = async |request: AdmissionRequest| {
        let pod: Pod = request.object.ok_or("no object")?.decode()?;
        let name = pod.metadata.name.unwrap_or_default();
        Ok::<_, BoxError>(AdmissionResponse::allow().with_warning(name))
    };
    let validating = Webhook::validating("v.example.com", validate)
        .with_registration(|registration| registration.with_rule(pods()));
    let router = Router::new()
        .webhook("/v", validating)
        .webhook("/a", appending("a.example.com", 'a', true))
        .webhook("/b", appending("b.example.com", 'b', false))
        .webhook("/c", appending("c.example.com", 'c', true));
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-", "namespace": "shop"}});
    let outcome = ApiServer::registered(&router).namespace("shop", [("a", "b")]).create(&pod).await;
    let calls: Vec<_> = outcome.calls.iter().map(|call| call.webhook.as_str()).collect();
    // The second change of a calls c again.
    let expected = ["a", "b", "c", "a", "c", "v"].map(|name| format!("{name}.example.com"));
    assert_eq!(calls, expected);
    assert!(outcome.warnings[0].starts_with("web-0"), "a generated name: {:?}", outcome.warnings);
    assert_eq!(outcome.expect_admitted()["metadata"]["labels"]["seen"], "abcac");
}
