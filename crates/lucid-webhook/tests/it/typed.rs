//! Webhooks for objects of one type.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube_core::Resource;
use lucid_webhook::Operation::{Create, Delete, Update};
use lucid_webhook::registration::{Configurations, Endpoint, Rule};
use lucid_webhook::{
    AdmissionRequest, AdmissionResponse, BoxError, Changed, FieldErrors, FieldPath, Object, Operation,
    Router, State, UserInfo, Validator, Webhook, WithState,
};
use lucid_webhook_test::{ApiServer, Review};
use serde_json::{Value, json};

use crate::cron_tab::CronTabV1;

const NAME: &str = "a.example.com";

fn deployment(replicas: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": replicas, "selector": {}, "template": {}}})
}

fn cron_tab(spec: Value) -> Value {
    json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": "nightly"}, "spec": spec})
}

fn registered(webhook: Webhook) -> ApiServer {
    ApiServer::registered(&Router::new().webhook("/", webhook)).namespace::<&str, &str>("shop", [])
}

async fn two_replicas(Object(mut deployment): Object<Deployment>) -> Changed<Deployment> {
    deployment.spec.get_or_insert_default().replicas.get_or_insert(2);
    Changed::new(deployment)
}

fn rules(webhook: Webhook) -> Value {
    let router = Router::new().webhook("/", webhook);
    let configurations = Configurations::new("example", Endpoint::service("example", "webhooks"));
    let mutating = configurations.mutating(router.registrations()).unwrap();
    let validating = configurations.validating(router.registrations()).unwrap();
    let configuration = mutating.map(serde_json::to_value).or(validating.map(serde_json::to_value));
    configuration.unwrap().unwrap()["webhooks"][0]["rules"].take()
}

#[test]
fn rules_derive_from_the_type() {
    struct All;
    impl Validator<CronTabV1> for All {}
    struct Creations;
    impl Validator<CronTabV1> for Creations {
        const OPERATIONS: &'static [Operation] = &[Create];
    }
    let rule = |group: &str, resource: &str, operations: &[&str]| {
        json!([{"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": operations,
            "scope": "*"}])
    };
    let defaulting = Webhook::defaulting::<Deployment>(NAME, [Update, Create], two_replicas);
    assert_eq!(rules(defaulting), rule("apps", "deployments", &["CREATE", "UPDATE"]));
    let all = rule("stable.example.com", "crontabs", &["CREATE", "UPDATE", "DELETE"]);
    assert_eq!(rules(Webhook::validator::<CronTabV1>(NAME, All)), all);
    let creations = rule("stable.example.com", "crontabs", &["CREATE"]);
    assert_eq!(rules(Webhook::validator(NAME, Creations)), creations);
}

#[tokio::test]
async fn a_defaulting_webhook_changes_its_objects() {
    async fn named(
        Object(mut deployment): Object<Deployment>,
        user: UserInfo,
        State(key): State<&'static str>,
    ) -> Changed<Deployment> {
        deployment.metadata.labels.get_or_insert_default().insert(key.into(), user.username);
        Changed::new(deployment).with_warning("named")
    }
    let webhook = registered(Webhook::defaulting::<Deployment>(NAME, [Create], two_replicas));
    let object = webhook.review(&Review::create(&deployment(Value::Null))).await.expect_admitted();
    assert_eq!(object["spec"]["replicas"], 2);
    let webhook = registered(Webhook::defaulting::<Deployment>(NAME, [Create], named.with_state("owner")));
    let outcome = webhook.review(&Review::create(&deployment(json!(1))).user("jane", ["dev"])).await;
    assert_eq!(outcome.warnings, ["named"]);
    assert_eq!(outcome.expect_admitted()["metadata"]["labels"], json!({"owner": "jane"}));
}

#[test]
fn rules_of_other_types_are_rejected() {
    struct Nothing;
    impl Validator<Deployment> for Nothing {}
    let deployments = || Rule::of::<Deployment>([Create]);
    let new = |versions: &[&str], resources: &[&str]| {
        Rule::new("apps", versions.to_vec(), resources.to_vec(), [Create])
    };
    for (rule, found) in [
        (deployments(), None),
        (deployments().subresource("scale"), None),
        (deployments().subresource("*"), None),
        (Rule::new("*", ["*"], ["*/scale"], [Create]), None),
        (Rule::of::<Pod>([Create]), Some("pods in v1")),
        (new(&["v1beta1"], &["deployments"]), Some("deployments in apps/v1beta1")),
        (new(&["v1"], &["deployments", "statefulsets"]), Some("deployments, statefulsets in apps/v1")),
        (new(&["v1"], &["*/*"]), Some("*/* in apps/v1")),
        (Rule::new("*", ["*"], ["*"], [Create]), Some("* in */*")),
    ] {
        for webhook in [
            Webhook::defaulting::<Deployment>(NAME, [Create], two_replicas),
            Webhook::validator::<Deployment>(NAME, Nothing),
        ] {
            let router =
                Router::new().webhook("/", webhook.with_registration(|it| it.with_rule(rule.clone())));
            let configurations = Configurations::new("example", Endpoint::service("example", "webhooks"));
            let mutating = configurations.mutating(router.registrations()).map(drop);
            let problem = mutating.and(configurations.validating(router.registrations()).map(drop)).err();
            let expected = found.map(|found| {
                format!("webhook \"{NAME}\": its handler accepts deployments in apps/v1 and subresources, and it has a rule for {found}")
            });
            assert_eq!(problem.map(|problem| problem.to_string()), expected, "{rule:?}");
        }
    }
}

#[tokio::test]
async fn calls_for_another_kind_fail() {
    struct Nothing;
    impl Validator<Pod> for Nothing {}
    async fn keep(Object(pod): Object<Pod>) -> Changed<Pod> {
        Changed::new(pod)
    }
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web", "namespace": "shop"}});
    for webhook in
        [Webhook::defaulting::<Pod>(NAME, [Create], keep), Webhook::validator::<Pod>(NAME, Nothing)]
    {
        let evictions = Rule::of::<Pod>([Create]).subresource("eviction");
        let api_server = registered(webhook.with_registration(|it| it.with_rule(evictions)));
        let rejection = api_server.create(&eviction).await.expect_rejected();
        let says = "it handles core/v1 Pod and was called for policy/v1 Eviction: correct the rules of its registration";
        assert!(rejection.code == 500 && rejection.message.contains(says), "{rejection}");
    }
}

/// Requires an image that never changes, and keeps CronTabs with a label.
struct Images;

impl Validator<CronTabV1> for Images {
    async fn create(&self, new: CronTabV1, _: &AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
        let mut errors = FieldErrors::new();
        if new.spec.image.is_empty() {
            errors.required(FieldPath::new("spec").child("image"), "");
        }
        errors.into_result()?;
        Ok(AdmissionResponse::allow().with_warning("created"))
    }

    async fn update(
        &self,
        old: CronTabV1,
        new: CronTabV1,
        request: &AdmissionRequest,
    ) -> Result<AdmissionResponse, BoxError> {
        if old.spec.image != new.spec.image && request.user_info.username != "root" {
            let mut errors = FieldErrors::new();
            errors.forbidden(FieldPath::new("spec").child("image"), "it may not change");
            errors.into_result()?;
        }
        Ok(AdmissionResponse::allow())
    }

    async fn delete(&self, old: CronTabV1, _: &AdmissionRequest) -> Result<AdmissionResponse, BoxError> {
        if old.meta().labels.as_ref().is_some_and(|labels| labels.contains_key("keep")) {
            return Err(AdmissionResponse::deny(403, "Forbidden", "it is kept").into());
        }
        Ok(AdmissionResponse::allow())
    }
}

#[tokio::test]
async fn a_validator_has_a_method_for_each_operation() {
    let webhook = registered(Webhook::validator::<CronTabV1>(NAME, Images));
    let tab = |image: &str| cron_tab(json!({"cronSpec": "* * * * *", "image": image}));
    let mut kept = tab("a");
    kept["metadata"]["labels"] = json!({"keep": ""});

    assert_eq!(webhook.review(&Review::create(&tab("a"))).await.warnings, ["created"]);
    let invalid = r#"CronTab.stable.example.com "nightly" is invalid: spec.image"#;
    for (review, code, says) in [
        (Review::create(&tab("")), 422, format!("{invalid}: Required value")),
        (Review::update(&tab("a"), &tab("b")), 422, format!("{invalid}: Forbidden: it may not change")),
        (Review::delete(&kept), 403, "it is kept".to_owned()),
        (
            Review::create(&cron_tab(json!({"cronSpec": 1}))),
            400,
            "failed to decode the object at spec.cronSpec".to_owned(),
        ),
    ] {
        let rejection = webhook.review(&review).await.expect_rejected();
        assert!(rejection.code == code && rejection.message.contains(&says), "{rejection}");
    }
    for review in [
        Review::update(&tab("a"), &tab("b")).user("root", ["admins"]),
        Review::update(&tab("a"), &tab("a")),
        Review::delete(&tab("a")),
    ] {
        assert!(webhook.review(&review).await.is_admitted());
    }
}

#[tokio::test]
async fn methods_that_are_not_implemented_allow() {
    struct Deletions;
    impl Validator<CronTabV1> for Deletions {
        const OPERATIONS: &'static [Operation] = &[Delete];
    }
    let webhook = registered(Webhook::validator(NAME, Deletions));
    let tab = cron_tab(json!({"cronSpec": "", "image": ""}));
    for review in [Review::create(&tab), Review::update(&tab, &tab), Review::delete(&tab)] {
        assert!(webhook.review(&review).await.is_admitted());
    }
}
