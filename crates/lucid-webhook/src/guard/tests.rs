//! Requests that guards admit, and handling of the others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::client::access_review::{CAPACITY, CachedAccessReview};

const WEBHOOK: &str = "label.example.com";

/// A request as sent by the API server: an UPDATE of a pod with `fields` replaced.
fn request(fields: Value) -> AdmissionRequest {
    let mut request = json!({
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "shop",
        "name": "web-1",
        "operation": "UPDATE",
    });
    for (key, value) in fields.as_object().unwrap() {
        request[key] = value.clone();
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    AdmissionRequest::from_json(&review.to_string().into(), deadline).unwrap()
}

fn object(key: &str, entries: Value) -> Value {
    json!({"metadata": {"name": "web-1", key: entries}, "spec": {}})
}

fn selector(selector: Value) -> Selector {
    serde_json::from_value(selector).unwrap()
}

fn account() -> ServiceAccount {
    serde_json::from_value(json!("policies:labeller")).unwrap()
}

fn access(verb: &str) -> SubjectAccessReviewSpec {
    account().access(verb, &request(json!({})))
}

fn matches(selector: &Selector, request: &AdmissionRequest) -> bool {
    selector.matches_request(request)
        && selector.matches_metadata(request, &selector.metadata(request).unwrap())
}

fn guard(kind: WebhookKind, permissions: Value) -> Guard {
    let permissions = serde_json::from_value(permissions).unwrap();
    Guard::new(WEBHOOK.into(), kind, watch::channel(permissions).1)
}

/// Returns a preset result after a delay, and counts the calls.
#[derive(Default)]
struct Reviewer {
    answers: AtomicUsize,
    takes: Duration,
    denies: bool,
    fails_first: bool,
}

impl AccessReview for Reviewer {
    fn is_allowed<'a>(&'a self, _: &'a SubjectAccessReviewSpec) -> BoxFuture<'a, Result<bool, BoxError>> {
        async move {
            let asked_before = self.answers.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(self.takes).await;
            match asked_before {
                0 if self.fails_first => Err("no route to the API server".into()),
                _ => Ok(!self.denies),
            }
        }
        .boxed()
    }
}

#[test]
fn selectors_match_namespace_kind_name_and_labels() {
    let kube_system = json!({"namespace": "kube-system"});
    let cluster_scoped = json!({"namespace": null, "resource": {"resource": "nodes"}});
    let namespace = |name: &str| {
        json!({"namespace": name, "name": name, "kind": {"version": "v1", "kind": "Namespace"},
               "resource": {"version": "v1", "resource": "namespaces"}})
    };
    let new_namespace = |metadata: Value| {
        json!({"namespace": null, "name": "", "operation": "CREATE", "object": {"metadata": metadata},
               "resource": {"version": "v1", "resource": "namespaces"}})
    };
    let deployment = json!({"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}});
    let generated = |prefix: &str| json!({"name": "", "operation": "CREATE", "object": {"metadata": {"generateName": prefix}}});
    for (what, is, fields, expected) in [
        ("everything", json!({}), json!({}), true),
        ("everything", json!({}), kube_system.clone(), false),
        ("everything", json!({}), cluster_scoped.clone(), true),
        ("everything", json!({}), namespace("kube-system"), false),
        ("everything", json!({}), namespace("shop"), true),
        ("everything", json!({}), new_namespace(json!({"name": "kube-system"})), false),
        ("everything", json!({}), new_namespace(json!({"name": "shop"})), true),
        ("a star", json!({"namespace": ["*"]}), kube_system.clone(), false),
        ("a star", json!({"namespace": ["*"]}), cluster_scoped.clone(), true),
        ("a pattern", json!({"namespace": ["kube-*"]}), kube_system.clone(), false),
        ("kube-system besides", json!({"kubeSystem": true}), kube_system.clone(), true),
        ("kube-system besides", json!({"kubeSystem": true}), namespace("kube-system"), true),
        ("kube-system besides", json!({"kubeSystem": true}), json!({}), true),
        ("kube-system besides", json!({"kubeSystem": true, "namespace": ["x"]}), kube_system.clone(), true),
        ("kube-system besides", json!({"kubeSystem": true, "namespace": ["x"]}), json!({}), false),
        (
            "kube-system besides",
            json!({"kubeSystem": true, "resourceName": ["x"]}),
            kube_system.clone(),
            false,
        ),
        ("kube-system named", json!({"namespace": ["*", "kube-system"]}), kube_system, true),
        ("kube-system named", json!({"namespace": ["kube-system"]}), namespace("kube-system"), true),
        ("kube-system named", json!({"namespace": ["kube-system"]}), json!({}), false),
        ("namespaces", json!({"namespace": ["a", "sh*"]}), json!({}), true),
        ("namespaces", json!({"namespace": ["a", "b*"]}), json!({}), false),
        ("namespaces", json!({"namespace": ["shop"]}), cluster_scoped, false),
        ("namespaces", json!({"namespace": ["shop"]}), namespace("shop"), true),
        ("namespaces", json!({"namespace": ["shop"]}), namespace("other"), false),
        ("kinds", json!({"resourceKind": ["Pod"]}), json!({}), true),
        ("kinds", json!({"resourceKind": ["Deployment.apps", "v1/Pod"]}), json!({}), true),
        ("kinds", json!({"resourceKind": ["apps/v1/Deployment"]}), deployment.clone(), true),
        ("kinds", json!({"resourceKind": ["Deployment.extensions"]}), deployment.clone(), false),
        ("kinds", json!({"resourceKind": ["v1/Deployment"]}), deployment, false),
        ("names", json!({"resourceName": ["web-*"]}), json!({}), true),
        ("names", json!({"resourceName": ["web"]}), json!({}), false),
        ("names to come", json!({"resourceName": ["web-*"]}), generated("web-"), true),
        ("names to come", json!({"resourceName": ["web-*"]}), generated("other-"), false),
        (
            "all of them",
            json!({"resourceName": ["web-*"], "resourceKind": ["Pod"], "namespace": ["other"]}),
            json!({}),
            false,
        ),
    ] {
        let matches = matches(&selector(is.clone()), &request(fields.clone()));
        assert_eq!(matches, expected, "{what}: {is} on {fields}");
    }
}

#[test]
fn labels_select_like_the_object_selector() {
    let web = object("labels", json!({"app": "web", "tier": "a"}));
    let bare = json!({"metadata": {}});
    let match_labels = json!({"matchLabels": {"app": "web"}});
    let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]});
    for (labels, fields, expected) in [
        (json!({}), json!({"object": {"stdin": true}, "operation": "CONNECT"}), true),
        (match_labels.clone(), json!({"object": web}), true),
        (match_labels.clone(), json!({"object": bare}), false),
        (match_labels.clone(), json!({"oldObject": web, "operation": "DELETE"}), true),
        // Removing a label does not bypass the webhook.
        (match_labels.clone(), json!({"object": bare, "oldObject": web}), true),
        (match_labels.clone(), json!({"object": web, "oldObject": bare}), true),
        (match_labels, json!({"object": bare, "oldObject": bare}), false),
        (expression("In", json!(["a", "b"])), json!({"object": web}), true),
        (expression("In", json!(["b"])), json!({"object": web}), false),
        (expression("In", json!(["a"])), json!({"object": bare}), false),
        (expression("NotIn", json!(["a"])), json!({"object": web}), false),
        (expression("NotIn", json!(["b"])), json!({"object": web}), true),
        (expression("NotIn", json!(["a"])), json!({"object": bare}), true),
        (expression("Exists", json!([])), json!({"object": web}), true),
        (expression("Exists", json!([])), json!({"object": bare}), false),
        (expression("DoesNotExist", json!([])), json!({"object": bare}), true),
        (expression("DoesNotExist", json!([])), json!({"object": web}), false),
        // An object without metadata matches no label expression.
        (
            expression("DoesNotExist", json!([])),
            json!({"object": {"stdin": true}, "operation": "CONNECT"}),
            false,
        ),
        (json!({"matchLabels": {"app": "web", "tier": "b"}}), json!({"object": web}), false),
    ] {
        let matches = matches(&selector(labels.clone()), &request(fields.clone()));
        assert_eq!(matches, expected, "{labels} on {fields}");
    }
}

#[test]
fn invalid_selectors_are_rejected() {
    let expression = |expression: Value| json!({"matchExpressions": [expression]});
    for (is, message) in [
        (json!({"namespaces": ["a"]}), "unknown field `namespaces`"),
        (json!({"namespace": 1}), "expected a text or a list of texts"),
        (json!({"labels": {"app": "web"}}), "unknown field `labels`"),
        (json!({"matchLabels": {"-": "a"}}), "label key \"-\""),
        (json!({"matchLabels": {"A.b/c": "a"}}), "label key \"A.b/c\""),
        (json!({"matchLabels": {"a": "no spaces"}}), "label a: value \"no spaces\""),
        (expression(json!({"key": "a", "operator": "in", "values": ["b"]})), "unknown variant `in`"),
        (expression(json!({"key": "a", "operator": "In"})), "label a: operator In needs at least one value"),
        (
            expression(json!({"key": "a", "operator": "NotIn", "values": []})),
            "operator NotIn needs at least one value",
        ),
        (
            expression(json!({"key": "a", "operator": "Exists", "values": ["b"]})),
            "operator Exists takes no values",
        ),
        (json!({"resourceKind": ["pods"]}), "kind \"pods\""),
    ] {
        let error = serde_json::from_value::<Selector>(is.clone()).unwrap_err().to_string();
        assert!(error.contains(message), "{is}: {error}");
    }
}

#[tokio::test]
async fn invalid_metadata_is_an_error() {
    let selector = json!({"selector": {"matchLabels": {"app": "web"}}});
    let guard = guard(WebhookKind::Validating, selector);
    let broken = request(json!({"object": {"metadata": {"labels": [1, 2]}}}));
    assert!(matches!(guard.check(&broken).await, Err(GuardError::Metadata { .. })));
}

#[tokio::test]
async fn strict_mode_requires_consent() {
    use WebhookKind::{Mutating, Validating};
    let annotated = |key: &str, names: &str| object("annotations", json!({key: names}));
    let (can_mutate, can_validate) = (annotated("canMutate", WEBHOOK), annotated("canValidate", WEBHOOK));
    let bare = json!({"metadata": {}});
    for (kind, fields, expected) in [
        (Mutating, json!({"object": can_mutate}), true),
        (Mutating, json!({"object": can_validate}), false),
        (Validating, json!({"object": can_validate}), true),
        (Validating, json!({"object": can_mutate}), false),
        (Mutating, json!({"object": annotated("canMutate", " a.b.c , label.example.com,")}), true),
        (Mutating, json!({"object": annotated("canMutate", "xlabel.example.com")}), false),
        (Mutating, json!({"object": annotated("canMutate", "*")}), false),
        (Mutating, json!({"object": annotated("canMutate", r#"["a", "label.example.com"]"#)}), true),
        (Mutating, json!({"object": annotated("canMutate", "[a, 'label']")}), true),
        (Mutating, json!({"object": annotated("canMutate", "- a\n- \"label\"\n")}), true),
        (Mutating, json!({"object": annotated("canMutate", "label")}), true),
        (Mutating, json!({"object": annotated("canMutate", "label.example")}), false),
        (Mutating, json!({"object": annotated("canMutate", "[]")}), false),
        (Mutating, json!({"object": annotated("lucid.computing/can-mutate", "label")}), true),
        (Validating, json!({"object": annotated("lucid.computing/can-validate", "label")}), true),
        (Validating, json!({"object": annotated("lucid.computing/can-mutate", "label")}), false),
        (Mutating, json!({"object": bare}), false),
        // An object that no longer consents is not changed.
        (Mutating, json!({"object": bare, "oldObject": can_mutate}), false),
        (Mutating, json!({"object": {"spec": {}}, "oldObject": can_mutate}), false),
        (Mutating, json!({"object": can_mutate, "oldObject": bare}), true),
        // An update that withdraws consent is still evaluated.
        (Validating, json!({"object": bare, "oldObject": can_validate}), true),
        (Validating, json!({"object": can_validate, "oldObject": bare}), true),
        (Validating, json!({"object": null, "oldObject": can_validate, "operation": "DELETE"}), true),
        (Mutating, json!({"object": null, "oldObject": can_mutate, "operation": "DELETE"}), true),
        (Validating, json!({"object": {"stdin": true}, "operation": "CONNECT"}), false),
    ] {
        let scope = guard(kind, json!({"strictMode": true})).check(&request(fields.clone())).await.unwrap();
        let expected = if expected { Scope::Inside } else { Scope::NoConsent { problem: None } };
        assert_eq!(scope, expected, "{kind} {fields}");
    }
    let quoted = json!({"object": annotated("canMutate", "[“label”]")});
    let strict = guard(Mutating, json!({"strictMode": true}));
    let Scope::NoConsent { problem: Some(problem) } = strict.check(&request(quoted)).await.unwrap() else {
        panic!("typographic quotes are not reported");
    };
    assert_eq!(problem, "annotation canMutate contains the typographic quote “; expected \" or '");
    let free = guard(Mutating, json!({}));
    assert_eq!(free.check(&request(json!({"object": bare}))).await.unwrap(), Scope::Inside);
}

#[tokio::test]
async fn access_is_reviewed_for_the_subject_of_the_request() {
    struct Recorder(std::sync::Mutex<Vec<SubjectAccessReviewSpec>>);
    impl AccessReview for Recorder {
        fn is_allowed<'a>(
            &'a self,
            access: &'a SubjectAccessReviewSpec,
        ) -> BoxFuture<'a, Result<bool, BoxError>> {
            self.0.lock().unwrap().push(access.clone());
            async { Ok(false) }.boxed()
        }
    }
    let permissions = json!({"selector": {"namespace": "shop"}, "serviceAccountName": "policies/labeller"});
    let recorder = Arc::new(Recorder(Default::default()));
    let scale = request(json!({
        "resource": {"group": "apps", "version": "v1", "resource": "deployments"}, "subResource": "scale",
    }));
    for kind in [WebhookKind::Mutating, WebhookKind::Validating] {
        let guard = Guard { review: Some(recorder.clone()), ..guard(kind, permissions.clone()) };
        let lacks = format!(
            "system:serviceaccount:policies:labeller may neither {} deployments/scale.apps web-1 in namespace shop",
            verbs(kind).join(" nor ")
        );
        assert_eq!(guard.check(&scale).await.unwrap(), Scope::Forbidden(lacks));
        let elsewhere = request(json!({"namespace": "other"}));
        assert_eq!(guard.check(&elsewhere).await.unwrap(), Scope::NotSelected);
    }
    let asked = recorder.0.lock().unwrap();
    let attributes: Vec<_> = asked.iter().map(|access| access.resource_attributes.clone().unwrap()).collect();
    let verbs: Vec<_> = attributes.iter().map(|attributes| attributes.verb.as_deref().unwrap()).collect();
    assert_eq!(verbs, ["update", "mutate", "get", "validate"], "nobody is asked about what is not selected");
    assert_eq!(
        serde_json::to_value(&asked[0]).unwrap(),
        json!({
            "user": "system:serviceaccount:policies:labeller",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:policies", "system:authenticated"],
            "resourceAttributes": {
                "verb": "update", "group": "apps", "version": "v1", "resource": "deployments",
                "subresource": "scale", "namespace": "shop", "name": "web-1",
            },
        })
    );
}

#[tokio::test]
async fn equal_requests_are_coalesced_and_results_expire() {
    let (access, other) = (access("update"), access("get"));
    for denies in [false, true] {
        let reviewer = Arc::new(Reviewer { takes: Duration::from_millis(50), denies, ..Reviewer::default() });
        // Only the result given expires.
        let (short, long) = (Duration::from_millis(300), Duration::from_secs(60));
        let (allowed, denied) = if denies { (long, short) } else { (short, long) };
        let cached = CachedAccessReview::new(reviewer.clone()).with_ttl(allowed, denied);
        let answers = join_all((0..10).map(|_| cached.is_allowed(&access))).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap() != denies));
        assert_eq!(cached.is_allowed(&access).await.unwrap(), !denies);
        assert_eq!(reviewer.answers.load(Ordering::SeqCst), 1);
        cached.is_allowed(&other).await.unwrap();
        assert_eq!(reviewer.answers.load(Ordering::SeqCst), 2, "another verb is another question");
        tokio::time::sleep(short).await;
        cached.is_allowed(&access).await.unwrap();
        assert_eq!(reviewer.answers.load(Ordering::SeqCst), 3, "an answer outlived its time");
    }
}

#[tokio::test]
async fn errors_are_not_cached() {
    let reviewer = Arc::new(Reviewer { fails_first: true, ..Reviewer::default() });
    let cached = CachedAccessReview::new(reviewer.clone());
    let access = access("update");
    assert_eq!(cached.is_allowed(&access).await.unwrap_err().to_string(), "no route to the API server");
    assert!(cached.is_allowed(&access).await.unwrap());
}

#[tokio::test]
async fn cancelling_one_request_keeps_coalesced_ones() {
    let reviewer = Arc::new(Reviewer { takes: Duration::from_secs(5), ..Reviewer::default() });
    let cached = Arc::new(CachedAccessReview::new(reviewer.clone()));
    let access = access("update");
    let hasty = tokio::time::timeout(Duration::from_millis(50), cached.is_allowed(&access));
    let (hasty, patient) = tokio::join!(hasty, cached.is_allowed(&access));
    assert!(hasty.is_err() && patient.unwrap());
}

#[tokio::test]
async fn the_cache_is_bounded() {
    let reviewer = Arc::new(Reviewer::default());
    let cached = CachedAccessReview::new(reviewer.clone());
    let verbs: Vec<_> = (0..2 * CAPACITY).map(|verb| verb.to_string()).collect();
    let is_cached = async |verb: &str| {
        let before = reviewer.answers.load(Ordering::SeqCst);
        cached.is_allowed(&access(verb)).await.unwrap();
        reviewer.answers.load(Ordering::SeqCst) == before
    };
    for verb in &verbs {
        assert!(!is_cached(verb).await && is_cached(verb).await, "{verb}");
    }
    // The latest results are kept.
    let [kept, evicted] = [2, CAPACITY + 1].map(|age| verbs[verbs.len() - age].clone());
    assert!(is_cached(&kept).await && !is_cached(&evicted).await);
}

#[test]
fn a_configuration_is_complete_or_refused() {
    let config = |config: Value| serde_json::from_value::<Permissions>(config);
    assert_eq!(config(json!({})).unwrap().selector, Permissions::default().selector);
    for (refused, message) in [
        (json!({"strict": true}), "unknown field `strict`"),
        (json!({"serviceAccountName": "labeller"}), "expected namespace/name"),
        (json!({"serviceAccountName": "system:serviceaccount:a:b"}), "expected namespace/name"),
        (json!({"serviceAccountName": "Policies:labeller"}), "expected namespace/name"),
        (json!({"verbs": {"mutate": "get"}}), "unknown field `verbs`"),
        (json!({"forbidden": "ignore"}), "unknown variant `ignore`"),
    ] {
        let error = config(refused.clone()).unwrap_err().to_string();
        assert!(error.contains(message), "{refused}: {error}");
    }
}
