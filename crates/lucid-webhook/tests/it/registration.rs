//! Registrations, compared with those stored by a real API server.

use std::fmt::Debug;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ClusterResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use lucid_testbed::Cluster;
use lucid_webhook::registration::{
    Configurations, Endpoint, FailurePolicy, RegistrationError, Rule, WebhookRegistration, parse_selector,
};
use lucid_webhook::{AdmissionResponse, Operation, Router, Webhook, WebhookKind};
use lucid_webhook_test::ApiServer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const MANAGER: &str = "example-operator";

fn selector(selector: Value) -> LabelSelector {
    serde_json::from_value(selector).unwrap()
}

fn pods() -> Rule {
    Rule::of::<Pod>([Operation::Update, Operation::Create, Operation::Create])
}

fn label() -> WebhookRegistration {
    WebhookRegistration::new(WebhookKind::Mutating, "label.example.com", "/label").with_rule(pods())
}

fn full() -> WebhookRegistration {
    WebhookRegistration::new(WebhookKind::Mutating, "full.example.com", "/full/")
        .with_rule(Rule::of::<Deployment>([Operation::Delete]).subresource("scale").namespaced())
        .with_rule(Rule::new("example.com", ["v2", "v1"], ["things", "gadgets"], [Operation::Connect]))
        .with_rule(Rule::of::<Namespace>([Operation::Create]).cluster_scoped())
        .with_namespace_selector(selector(json!({"matchLabels": {}, "matchExpressions": [
            {"key": "team", "operator": "Exists", "values": []}]})))
        .with_object_selector(selector(json!({"matchLabels": {"a": "b"}, "matchExpressions": []})))
        .with_match_condition("example.com/second", "true")
        .with_match_condition("first", "request.operation != 'CREATE'")
        .with_side_effects()
        .with_timeout_seconds(30)
        .with_failure_policy(FailurePolicy::Ignore)
        .with_exact_match()
        .with_reinvocation()
}

fn judge() -> WebhookRegistration {
    WebhookRegistration::new(WebhookKind::Validating, "judge.example.com", "/judge").with_rule(pods())
}

fn service() -> Configurations {
    Configurations::new("example", Endpoint::service("example", "webhooks")).with_label("app", "example")
}

fn mutating(
    configurations: &Configurations,
    webhooks: &[WebhookRegistration],
) -> MutatingWebhookConfiguration {
    configurations.mutating(webhooks).unwrap().unwrap()
}

#[test]
fn rules_are_sorted() {
    let configuration = serde_json::to_value(mutating(&service(), &[full(), judge(), label()])).unwrap();
    let names =
        |webhooks: &Value| webhooks.as_array().unwrap().iter().map(|w| w["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&configuration["webhooks"]), ["full.example.com", "label.example.com"]);
    let full = &configuration["webhooks"][0];
    assert_eq!(
        full["rules"],
        json!([
            {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["deployments/scale"],
             "scope": "Namespaced"},
            {"apiGroups": ["example.com"], "apiVersions": ["v1", "v2"], "operations": ["CONNECT"],
             "resources": ["gadgets", "things"], "scope": "*"},
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["namespaces"],
             "scope": "Cluster"},
        ])
    );
    let label = &configuration["webhooks"][1];
    assert_eq!(label["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
    assert_eq!(
        label["clientConfig"],
        json!({"service": {"namespace": "example", "name": "webhooks", "path": "/label", "port": 443}})
    );
    assert!(service().validating([&self::label()]).unwrap().is_none());
}

/// The registered namespaceSelector, and `true` if the default guard of the webhook admits requests from `kube-system`.
async fn registered(change: impl FnOnce(WebhookRegistration) -> WebhookRegistration) -> (Value, bool) {
    async fn refuse() -> AdmissionResponse {
        AdmissionResponse::deny(403, "Forbidden", "seen")
    }
    let webhook = Webhook::mutating("label.example.com", refuse)
        .with_registration(|registration| change(registration.with_rule(pods())));
    let router = Router::new().webhook("/label", webhook);
    let configuration = service().mutating(router.registrations()).unwrap().unwrap();
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "kube-system"}});
    // Registered without a selector, so that the guard decides.
    let without_selector = Webhook::mutating("label.example.com", refuse)
        .with_registration(|registration| registration.with_rule(pods()).with_kube_system());
    let api_server =
        ApiServer::in_process(router).with_webhooks(&Router::new().webhook("/label", without_selector));
    let is_seen = !api_server.create(&pod).await.is_admitted();
    let selector = &serde_json::to_value(configuration).unwrap()["webhooks"][0]["namespaceSelector"];
    (selector.clone(), is_seen)
}

#[tokio::test]
async fn kube_system_is_excluded_unless_named() {
    let name = "kubernetes.io/metadata.name";
    let expression =
        |operator: &str, values: Value| json!({"key": name, "operator": operator, "values": values});
    let without = expression("NotIn", json!(["kube-system"]));
    let not_a = expression("NotIn", json!(["a"]));
    let both = expression("In", json!(["kube-system", "a"]));
    let exists = json!({"key": name, "operator": "Exists"});
    let team = json!({"key": "team", "operator": "Exists"});
    let labels = |value: &str| json!({"matchLabels": {name: value}});
    let expressions = |expressions: &[&Value]| json!({"matchExpressions": expressions});
    for (given, expected, is_seen) in [
        (json!({}), expressions(&[&without]), false),
        (
            json!({"matchLabels": {"a": "b"}}),
            json!({"matchLabels": {"a": "b"}, "matchExpressions": [without]}),
            false,
        ),
        (expressions(&[&team]), expressions(&[&team, &without]), false),
        (labels("kube-system"), labels("kube-system"), true),
        (labels("a"), labels("a"), false),
        (expressions(&[&both]), expressions(&[&both]), true),
        (expressions(&[&both, &team]), expressions(&[&both, &team]), true),
        (expressions(&[&both, &not_a]), expressions(&[&both, &not_a]), true),
        (
            expressions(&[&expression("In", json!(["a"]))]),
            expressions(&[&expression("In", json!(["a"]))]),
            false,
        ),
        (expressions(&[&without]), expressions(&[&without]), false),
        (expressions(&[&both, &without]), expressions(&[&both, &without]), false),
        (expressions(&[&not_a]), expressions(&[&not_a, &without]), false),
        (expressions(&[&exists]), expressions(&[&exists, &without]), false),
    ] {
        let registered = registered(|it| it.with_namespace_selector(selector(given.clone()))).await;
        assert_eq!(registered, (expected, is_seen), "{given}");
    }
    let named = parse_selector("kubernetes.io/metadata.name=kube-system").unwrap();
    assert_eq!(registered(|it| it.with_namespace_selector(named)).await, (labels("kube-system"), true));
    assert_eq!(registered(WebhookRegistration::with_kube_system).await, (json!({}), true));
}

#[test]
fn a_url_and_a_path_are_joined_by_one_slash() {
    for (base, url) in [
        ("https://127.0.0.1:8443", "https://127.0.0.1:8443/label"),
        ("https://example.com/hooks/", "https://example.com/hooks/label"),
    ] {
        let configurations = Configurations::new("example", Endpoint::url(base.to_owned()));
        let webhook = mutating(&configurations, &[label()]).webhooks.unwrap().remove(0);
        assert_eq!(webhook.client_config.url.as_deref(), Some(url));
        assert_eq!(webhook.client_config.service, None);
    }
}

async fn apply<K>(client: Client, wanted: &K) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let params = PatchParams::apply(MANAGER).force();
    Api::all(client).patch(&wanted.name_any(), &params, &Patch::Apply(wanted)).await
}

#[tokio::test]
async fn applied_registrations_equal_stored_ones() {
    let cluster = Cluster::builder().start().await.unwrap();
    let client = cluster.client();
    let configurations = service().with_annotation("cert-manager.io/inject-ca-from", "example/webhooks");
    let wanted = mutating(&configurations, &[full(), label()]);
    let first = apply(client.clone(), &wanted).await.unwrap();
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let read = api.get("example").await.unwrap();
    assert_eq!(read, first);
    assert_eq!(read.webhooks, wanted.webhooks);
    assert_eq!((read.labels(), read.annotations()), (wanted.labels(), wanted.annotations()));
    let validating = configurations.validating([&judge()]).unwrap().unwrap();
    let stored = apply(client.clone(), &validating).await.unwrap();
    assert_eq!(stored.webhooks, validating.webhooks);
    let url = Configurations::new("by-url", Endpoint::url("https://127.0.0.1:8443".to_owned()));
    let by_url = mutating(&url.with_ca_bundle("ca"), &[label()]);
    assert_eq!(apply(client.clone(), &by_url).await.unwrap().webhooks, by_url.webhooks);

    // Not even a time in managedFields changes.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    assert_eq!(apply(client.clone(), &wanted).await.unwrap(), first);

    // cert-manager writes the caBundle, and it is kept.
    let inject = json!([{"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "Y2E="}]);
    let inject: Patch<()> = Patch::Json(serde_json::from_value(inject).unwrap());
    let injector = PatchParams { field_manager: Some("cainjector".to_owned()), ..PatchParams::default() };
    api.patch("example", &injector, &inject).await.unwrap();
    let slower = mutating(&configurations, &[full(), label().with_timeout_seconds(20)]);
    let stored = apply(client.clone(), &slower).await.unwrap();
    let webhook = &stored.webhooks.as_ref().unwrap()[1];
    assert_eq!(webhook.timeout_seconds, Some(20));
    assert_eq!(webhook.client_config.ca_bundle.as_ref().unwrap().0, b"ca");
    let owned =
        stored.managed_fields().iter().find(|entry| entry.manager.as_deref() == Some(MANAGER)).unwrap();
    assert!(!serde_json::to_string(&owned.fields_v1).unwrap().contains("f:caBundle"));

    // Changes to our fields by other managers are reverted; a webhook that is no longer registered is removed.
    let damage = Patch::Merge(json!({"metadata": {"labels": {"app": "mine", "other": "x"}}}));
    api.patch("example", &PatchParams::default(), &damage).await.unwrap();
    let stored = apply(client, &mutating(&configurations, &[full()])).await.unwrap();
    assert_eq!((&*stored.labels()["app"], &*stored.labels()["other"]), ("example", "x"));
    let names: Vec<_> = stored.webhooks.iter().flatten().map(|webhook| &*webhook.name).collect();
    assert_eq!(names, ["full.example.com"], "also when an injector owns a field of it");
}

fn is<T: Debug>(result: Result<T, RegistrationError>, message: &str, what: &Value) {
    let error = result.expect_err(&what.to_string()).to_string();
    assert!(error.contains(message), "{what}: {error}");
}

#[test]
fn unreachable_webhooks_are_rejected() {
    let of = |group: &str, resource: &str| {
        let rule = Rule::new(group, ["v1"], [resource], [Operation::Create]);
        WebhookRegistration::new(WebhookKind::Mutating, "label.example.com", "/label").with_rule(rule)
    };
    for (group, resource, expected) in [
        ("", "pods", None),
        ("*", "*/*", None),
        ("apps", "deployments/scale", None),
        ("example.com", "*/scale", None),
        ("", "pods/*", None),
        ("Example.com", "things", Some("API group \"Example.com\"")),
        ("*.example.com", "things", Some("API group")),
        ("core/v1", "pods", Some("API group")),
        ("", "Pods", Some("resource \"Pods\"")),
        ("", "pods/Exec", Some("resource \"pods/Exec\"")),
        ("", "pods/a/b", Some("resource \"pods/a/b\"")),
        ("", "pod*", Some("resource")),
        ("", "pods/", Some("resource")),
    ] {
        let error = service().mutating([&of(group, resource)]).map(drop).map_err(|error| error.to_string());
        match (&error, expected) {
            (Ok(()), None) => {}
            (Err(error), Some(expected)) if error.contains(expected) => {}
            _ => panic!("{group:?} {resource:?}: {error:?}, expected {expected:?}"),
        }
    }
    let again = WebhookRegistration::new(WebhookKind::Validating, "judge.example.com", "/judge")
        .with_rule(pods())
        .with_reinvocation();
    let error = service().validating([&again]).unwrap_err();
    assert!(error.to_string().contains("has no reinvocationPolicy"), "{error}");
    for pem in ["", "\n"] {
        let error = service().with_ca_bundle(pem).mutating([&label()]).unwrap_err();
        assert!(error.to_string().contains("the CA bundle is empty"), "{error}");
    }
}

#[tokio::test]
async fn registrations_that_the_api_server_rejects_are_rejected() {
    let cluster = Cluster::builder().start().await.unwrap();
    let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let valid = serde_json::to_value(mutating(&service(), &[label()])).unwrap();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    api.create(&dry_run, &serde_json::from_value(valid.clone()).unwrap()).await.unwrap();

    let named =
        |name: &str| WebhookRegistration::new(WebhookKind::Mutating, name, "/label").with_rule(pods());
    let at = |path: &str| {
        WebhookRegistration::new(WebhookKind::Mutating, "label.example.com", path).with_rule(pods())
    };
    let rule = |versions: &[&str], resources: &[&str], operations: &[Operation]| {
        let rule = Rule::new("", versions.to_vec(), resources.to_vec(), operations.to_vec());
        WebhookRegistration::new(WebhookKind::Mutating, "label.example.com", "/label").with_rule(rule)
    };
    let create = [Operation::Create];
    let labels = |key: &str, value: &str| json!({"matchLabels": {key: value}});
    let expression = |operator: &str| json!({"matchExpressions": [{"key": "a", "operator": operator}]});
    let condition = |name: &str, expression: &str| json!({"name": name, "expression": expression});
    let many =
        |count: usize| (0..count).fold(label(), |w, i| w.with_match_condition(format!("c{i}"), "true"));
    let conditions =
        |count: usize| (0..count).map(|i| condition(&format!("c{i}"), "true")).collect::<Value>();
    let twice = json!([condition("a", "true"), condition("a", "false")]);
    let path = "/clientConfig/service/path";
    let of_pods = |versions: &[&str]| rule(versions, &["pods"], &create);
    let of_resources = |resources: &[&str]| rule(&["v1"], resources, &create);
    let (versions, resources) = ("/rules/0/apiVersions", "/rules/0/resources");
    let in_namespaces = |is: Value| label().with_namespace_selector(selector(is));
    let of_objects = |is: Value| label().with_object_selector(selector(is));
    let if_matches = |name: &str, expression: &str| label().with_match_condition(name, expression);
    // The registration, and the same mistake in the object: (what, pointer below the webhook, value, message).
    let cases = [
        (named("example.com"), "/name", json!("example.com"), "at least three segments"),
        (named("Label.example.com"), "/name", json!("Label.example.com"), "at least three segments"),
        (named(""), "/name", json!(""), "at least three segments"),
        (at("label"), path, json!("label"), "path \"label\""),
        (at("//"), path, json!("//"), "path \"//\""),
        (at("/a//b"), path, json!("/a//b"), "path \"/a//b\""),
        (at("/Label"), path, json!("/Label"), "path \"/Label\""),
        (at("/a?b"), path, json!("/a?b"), "path \"/a?b\""),
        (of_pods(&[]), versions, json!([]), "no versions"),
        (of_pods(&[""]), versions, json!([""]), "no versions"),
        (of_pods(&["*", "v1"]), versions, json!(["*", "v1"]), "\"*\" among its versions"),
        (of_resources(&[]), resources, json!([]), "no resources"),
        (rule(&["v1"], &["pods"], &[]), "/rules/0/operations", json!([]), "no operations"),
        (of_resources(&["*", "pods"]), resources, json!(["*", "pods"]), "\"*\" among its resources"),
        (of_resources(&["*/*", "pods"]), resources, json!(["*/*", "pods"]), "\"*/*\" among"),
        (of_resources(&["pods/*", "pods/log"]), resources, json!(["pods/*", "pods/log"]), "\"pods/*\" among"),
        (of_resources(&["*/log", "pods/log"]), resources, json!(["*/log", "pods/log"]), "\"*/log\" among"),
        (label().with_timeout_seconds(0), "/timeoutSeconds", json!(0), "expected 1 to 30"),
        (label().with_timeout_seconds(31), "/timeoutSeconds", json!(31), "expected 1 to 30"),
        (
            in_namespaces(labels("-", "a")),
            "/namespaceSelector",
            labels("-", "a"),
            "namespaceSelector: label key",
        ),
        (
            of_objects(labels("a", "b c")),
            "/objectSelector",
            labels("a", "b c"),
            "objectSelector: label a: value",
        ),
        (of_objects(expression("in")), "/objectSelector", expression("in"), "found \"in\""),
        (of_objects(expression("In")), "/objectSelector", expression("In"), "needs at least one value"),
        (many(65), "/matchConditions", conditions(65), "at most 64"),
        (many(1).with_match_condition("c0", "false"), "/matchConditions", twice, "unique"),
        (if_matches("", "true"), "/matchConditions", json!([condition("", "true")]), "match condition"),
        (if_matches("a/", "true"), "/matchConditions", json!([condition("a/", "true")]), "match condition"),
        (if_matches("a", " "), "/matchConditions", json!([condition("a", " ")]), "an expression"),
    ];
    for (registration, pointer, value, message) in cases {
        let what = json!({pointer: value});
        is(service().mutating([&registration]), message, &what);
        let mut object = valid.clone();
        if object["webhooks"][0].pointer(pointer).is_none() {
            object["webhooks"][0][pointer.trim_start_matches('/')] = Value::Null;
        }
        *object["webhooks"][0].pointer_mut(pointer).unwrap() = value;
        let answer = api.create(&dry_run, &serde_json::from_value(object).unwrap()).await;
        assert!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 422), "{what}: {answer:?}");
    }
    api.create(&dry_run, &mutating(&service(), &[many(64)])).await.unwrap();
    for path in ["/", "/a/", "/a.b/c-d"] {
        api.create(&dry_run, &mutating(&service(), &[at(path)])).await.unwrap();
    }

    is(service().mutating([&label(), &label()]), "two of this name", &json!("twice"));
    let none = WebhookRegistration::new(WebhookKind::Mutating, "label.example.com", "/label");
    is(service().mutating([&none]), "would never be called", &json!("no rules"));
    for url in ["http://a", "https://", "a", "https://u@a", "https://a?b", "https://a#b"] {
        let configurations = Configurations::new("example", Endpoint::url(url.to_owned()));
        is(configurations.mutating([&label()]), "expected https://host", &json!(url));
    }
    let port = Endpoint::service("a", "b").with_port(0);
    for endpoint in [Endpoint::service("", "a"), Endpoint::service("a", ""), port] {
        let configurations = Configurations::new("example", endpoint);
        is(configurations.mutating([&label()]), "expected names and a port", &json!("service"));
    }
    let (long, upper) = ("a".repeat(64), "Example.com/a");
    for (field, key, value, accepted) in [
        ("labels", "example.com/a", "", true),
        ("labels", upper, "b", false),
        ("labels", "a b", "b", false),
        ("labels", "a", &*long, false),
        ("labels", "a", "-b", false),
        ("annotations", "cert-manager.io/inject-ca-from", "a/b c", true),
        ("annotations", upper, "b", true),
        ("annotations", "a/b/c", "b", false),
        ("annotations", "", "b", false),
    ] {
        let configurations = match field {
            "labels" => service().with_label(key, value),
            _ => service().with_annotation(key, value),
        };
        let what = json!({field: {key: value}});
        match configurations.mutating([&label()]) {
            Ok(_) => assert!(accepted, "{what}"),
            refused => {
                assert!(!accepted, "{what}");
                is(refused, key, &what);
            }
        }
        let mut object = valid.clone();
        object["metadata"][field] = json!({key: value});
        let answer = api.create(&dry_run, &serde_json::from_value(object).unwrap()).await;
        assert_eq!(answer.is_ok(), accepted, "{what}: {answer:?}");
    }
    let upper = Configurations::new("Example", Endpoint::service("a", "b"));
    is(upper.validating([&judge()]), "configuration \"Example\"", &json!("configuration"));
}
