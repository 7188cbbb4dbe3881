//! Operators keep their registration on a real API server.

use std::fmt::Debug;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use axum::routing::get;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::ClusterResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use lucid_certs::source::FileSource;
use lucid_certs::{Certificates, ServingNames, Timing};
use lucid_e2e::{ClusterExt as _, eventually};
use lucid_testbed::Cluster;
use lucid_webhook::operator::{Operator, Registration};
use lucid_webhook::registration::{Configurations, Endpoint, FailurePolicy, Rule};
use lucid_webhook::{AdmissionResponse, JsonPatch, Operation, Readiness, Router, Webhook};
use rcgen::ExtendedKeyUsagePurpose;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::cron_tab;
use crate::wire::Authority;

const NAME: &str = "widgets";
const NAMESPACE: &str = "widgets-system";
const DEFINITION: &str = "crontabs.stable.example.com";

fn router() -> Router {
    let allow = async || AdmissionResponse::allow();
    let pods = || Rule::of::<Pod>([Operation::Create]);
    // Nothing calls these webhooks, and nothing waits for them.
    let ignoring = FailurePolicy::Ignore;
    let mutating = Webhook::mutating("mutate.example.com", allow)
        .with_registration(|it| it.with_rule(pods()).with_failure_policy(ignoring));
    let validating = Webhook::validating("validate.example.com", allow)
        .with_registration(|it| it.with_rule(pods()).with_failure_policy(ignoring));
    let converter = cron_tab::builder().build(&cron_tab::definition()).unwrap();
    Router::new().webhook("/mutate", mutating).webhook("/validate", validating).convert("/convert", converter)
}

fn configurations() -> Configurations {
    Configurations::new(NAME, Endpoint::service(NAMESPACE, NAME))
}

fn names() -> ServingNames {
    ServingNames::for_services(NAMESPACE, &[NAME]).unwrap()
}

async fn cluster() -> Cluster {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.create_namespace(NAMESPACE, &[]).await.unwrap();
    cluster
}

async fn define(client: &Client) {
    let mut definition = cron_tab::definition();
    definition.spec.conversion = None;
    Api::all(client.clone()).create(&PostParams::default(), &definition).await.unwrap();
}

/// The part of an object that a registration writes, if it exists and is not empty.
async fn part<K>(client: &Client, name: &str, pointer: &str) -> Option<Value>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let found = Api::<K>::all(client.clone()).get_opt(name).await.unwrap()?;
    serde_json::to_value(found).unwrap().pointer(pointer).cloned()
}

async fn mutating(client: &Client) -> Option<Value> {
    part::<MutatingWebhookConfiguration>(client, NAME, "/webhooks").await
}

async fn validating(client: &Client) -> Option<Value> {
    part::<ValidatingWebhookConfiguration>(client, NAME, "/webhooks").await
}

async fn conversion(client: &Client) -> Option<Value> {
    let conversion = part::<CustomResourceDefinition>(client, DEFINITION, "/spec/conversion").await?;
    conversion.pointer("/webhook/clientConfig/caBundle")?;
    Some(conversion)
}

async fn patch<K: Clone + Debug + DeserializeOwned>(api: &Api<K>, name: &str, operations: &Value) -> K {
    let patch: Patch<()> = Patch::Json(serde_json::from_value(operations.clone()).unwrap());
    api.patch(name, &PatchParams::default(), &patch).await.unwrap()
}

struct Replicas {
    address: SocketAddr,
    readiness: [Readiness; 2],
    stop: Vec<oneshot::Sender<()>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Replicas {
    fn start(client: &Client) -> Self {
        let readiness = [Readiness::default(), Readiness::default()];
        let (mut stop, mut tasks) = (Vec::new(), Vec::new());
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = TcpListener::bind(any).unwrap().local_addr().unwrap();
        for (readiness, listen) in readiness.iter().zip([address, any]) {
            let (sender, stopped) = oneshot::channel::<()>();
            let shutdown: Shared<BoxFuture<'static, ()>> = stopped.map(drop).boxed().shared();
            let operator = Operator::new(NAME, NAMESPACE, router())
                .with_addresses(listen, any)
                .with_label("admissions.enforcer/disabled", "true")
                .with_annotation("example.com/owner", "team a")
                .with_fallback(axum::Router::new().route("/version", get(async || "1")))
                .with_timing(Timing::default().with_settle(Duration::from_secs(1)))
                .with_readiness(readiness.clone());
            let client = client.clone();
            tasks.push(tokio::spawn(async move { operator.run(client, shutdown).await.unwrap() }));
            stop.push(sender);
        }
        Self { address, readiness, stop, tasks }
    }

    async fn get(&self, webhook: &Value, path: &str) -> (u16, String) {
        let config: WebhookClientConfig = serde_json::from_value(webhook["clientConfig"].clone()).unwrap();
        let root = reqwest::Certificate::from_pem(&config.ca_bundle.unwrap().0).unwrap();
        let host = format!("{NAME}.{NAMESPACE}.svc");
        let client =
            reqwest::Client::builder().tls_certs_only([root]).resolve(&host, self.address).no_proxy();
        let url = format!("https://{host}:{}{path}", self.address.port());
        let response = client.build().unwrap().get(url).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn until_ready(&self) {
        let is_ready = |readiness: &Readiness| readiness.missing().is_empty();
        eventually("ready", async || self.readiness.iter().all(is_ready)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_outside_of_the_cluster_is_called_by_url() {
    let cluster = cluster().await;
    let client = cluster.client();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listen = TcpListener::bind(any).unwrap().local_addr().unwrap();
    let readiness = Readiness::default();
    let (_running, stopped) = oneshot::channel::<()>();
    let label = async || {
        JsonPatch::from_operations(
            &json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]),
        )
    };
    let webhook = Webhook::mutating("mutate.example.com", label)
        .with_registration(|it| it.with_rule(Rule::of::<ConfigMap>([Operation::Create])));
    let operator = Operator::new(NAME, NAMESPACE, Router::new().webhook("/mutate", webhook))
        .with_endpoint(Endpoint::url(format!("https://{listen}")))
        .with_addresses(listen, any)
        .with_readiness(readiness.clone());
    let shutdown: Shared<BoxFuture<'static, ()>> = stopped.map(drop).boxed().shared();
    tokio::spawn(operator.run(client.clone(), shutdown));
    let webhooks = eventually("registered", async || mutating(&client).await).await;
    assert_eq!(webhooks[0]["clientConfig"]["url"], format!("https://{listen}/mutate"));
    eventually("ready", async || readiness.missing().is_empty()).await;
    let called = async || {
        let map = serde_json::from_value(json!({"metadata": {"generateName": "a-"}})).unwrap();
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
        let created = maps.create(&PostParams::default(), &map).await;
        created.is_ok_and(|map| map.labels().contains_key("seen")).then_some(())
    };
    eventually("called", called).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_restore_what_is_deleted_or_changed() {
    let cluster = cluster().await;
    let client = &cluster.client();
    define(client).await;
    let replicas = Replicas::start(client);
    let wanted = eventually("registered", async || {
        let found = (mutating(client).await, validating(client).await, conversion(client).await);
        (found.0.is_some() && found.1.is_some() && found.2.is_some()).then_some(found)
    });
    let wanted = wanted.await;
    replicas.until_ready().await;
    let service = wanted.2.as_ref().unwrap().pointer("/webhook/clientConfig/service").cloned();
    let expected = json!({"namespace": NAMESPACE, "name": NAME, "path": "/convert", "port": 443});
    assert_eq!(service, Some(expected));
    let webhook = &wanted.0.as_ref().unwrap()[0];
    let without = json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", NAMESPACE]});
    assert_eq!(webhook["namespaceSelector"], json!({"matchExpressions": [without]}));
    let found = Api::<MutatingWebhookConfiguration>::all(client.clone()).get(NAME).await.unwrap();
    assert_eq!(found.labels()["admissions.enforcer/disabled"], "true");
    assert_eq!(found.annotations()["example.com/owner"], "team a");
    assert_eq!(replicas.get(webhook, "/version").await, (200, "1".to_owned()));
    assert_eq!(replicas.get(webhook, "/mutate").await.0, 405);
    assert_eq!(replicas.get(webhook, "/other").await.0, 404);
    let restored = async |what: &str| {
        let holds = async || {
            let found = (mutating(client).await, validating(client).await, conversion(client).await);
            (found == wanted).then_some(())
        };
        eventually(&format!("restored: {what}"), holds).await;
    };

    // Another webhook, rule or bundle could bypass the operator's.
    let never = json!([{"name": "never", "expression": "false"}]);
    let mut other = wanted.0.as_ref().unwrap()[0].clone();
    other["name"] = json!("other.example.com");
    let configurations = Api::<MutatingWebhookConfiguration>::all(client.clone());
    for damage in [
        json!([{"op": "add", "path": "/webhooks/0/objectSelector", "value": {"matchLabels": {"a": "b"}}}]),
        json!([{"op": "add", "path": "/webhooks/0/matchConditions", "value": never}]),
        json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "Cg=="}]),
        json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]),
        json!([{"op": "add", "path": "/webhooks/-", "value": other}]),
        json!([{"op": "remove", "path": "/webhooks/0"}]),
    ] {
        let patched = patch(&configurations, NAME, &damage).await;
        assert_ne!(json!(patched.webhooks), *wanted.0.as_ref().unwrap(), "{damage} does nothing");
        restored(&damage.to_string()).await;
    }
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let none = json!([{"op": "replace", "path": "/spec/conversion", "value": {"strategy": "None"}}]);
    patch(&definitions, DEFINITION, &none).await;
    restored("conversion").await;

    let delete = DeleteParams::default();
    configurations.delete(NAME, &delete).await.unwrap();
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    validating.delete(NAME, &delete).await.unwrap();
    restored("both configurations").await;
    replicas.until_ready().await;

    // With its Secret, the authority is kept in memory, and a rotation begins.
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    secrets.delete("widgets-ca", &delete).await.unwrap();
    eventually("the Secret", async || secrets.get_opt("widgets-ca").await.unwrap()).await;

    // Operators that end leave the registration to the other replicas.
    let Replicas { stop, tasks, .. } = replicas;
    drop(stop);
    for task in tasks {
        task.await.unwrap();
    }
    assert!(configurations.get_opt(NAME).await.unwrap().is_some());
    let registration = Registration::new(client.clone(), self::configurations(), &router()).unwrap();
    registration.remove().await.unwrap();
    assert!(configurations.get_opt(NAME).await.unwrap().is_none());
    assert!(validating.get_opt(NAME).await.unwrap().is_none());
}

struct External {
    folder: TempDir,
    _stop: oneshot::Sender<()>,
}

impl External {
    fn start(registration: &Registration) -> Self {
        let folder = TempDir::new().unwrap();
        let name = format!("{NAME}.{NAMESPACE}.svc");
        Authority::new().issue(ExtendedKeyUsagePurpose::ServerAuth, NAME, &[&name]).write(folder.path());
        let certificates = Certificates::new(names()).with_targets(registration.targets());
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(certificates.run(FileSource::in_directory(folder.path()), stopped.map(drop)));
        Self { folder, _stop: stop }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_bundle_is_kept() {
    let cluster = cluster().await;
    let client = &cluster.client();
    define(client).await;
    let annotated = configurations().with_annotation("cert-manager.io/inject-ca-from", "widgets-system/x");
    let registration = Registration::new(client.clone(), annotated, &router()).unwrap();
    let present = registration.present();
    assert!(!*present.borrow());
    let first = External::start(&registration);
    eventually("present", async || *present.borrow()).await;
    let api = Api::<MutatingWebhookConfiguration>::all(client.clone());
    let bundle = |found: &MutatingWebhookConfiguration| {
        found.webhooks.as_ref().unwrap()[0].client_config.ca_bundle.clone()
    };
    let found = api.get(NAME).await.unwrap();
    assert_eq!(bundle(&found), None);
    assert_eq!(found.labels()["app.kubernetes.io/name"], NAME);

    let damage = json!([
        {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "Cg=="},
        {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"},
        {"op": "add", "path": "/metadata/annotations/team", "value": "blue"},
    ]);
    patch(&api, NAME, &damage).await;
    let healed = eventually("healed", async || {
        let found = api.get(NAME).await.unwrap();
        let policy = found.webhooks.as_ref()?[0].failure_policy.clone();
        (policy.as_deref() == Some("Ignore")).then_some(found)
    });
    assert_eq!(bundle(&healed.await).unwrap().0, b"\n");

    // A later version of the program has no annotation for an injector. Annotations of other managers stay.
    drop(first);
    let registration = Registration::new(client.clone(), configurations(), &router()).unwrap();
    let second = External::start(&registration);
    let annotations = eventually("without the annotation", async || {
        let annotations = api.get(NAME).await.unwrap().annotations().clone();
        (!annotations.contains_key("cert-manager.io/inject-ca-from")).then_some(annotations)
    });
    assert_eq!(annotations.await.into_iter().collect::<Vec<_>>(), [("team".to_owned(), "blue".to_owned())]);
    drop(second.folder);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_own_validating_configuration_is_removed() {
    let cluster = cluster().await;
    let client = &cluster.client();
    define(client).await;
    let api = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let registration = Registration::new(client.clone(), configurations(), &router()).unwrap();
    let present = registration.present();
    let first = External::start(&registration);
    eventually("present", async || *present.borrow()).await;
    drop(first);

    let registration = registration.without_validating();
    let second = External::start(&registration);
    eventually("removed", async || api.get_opt(NAME).await.unwrap().is_none()).await;
    let foreign = ValidatingWebhookConfiguration {
        metadata: kube::api::ObjectMeta { name: Some(NAME.to_owned()), ..Default::default() },
        webhooks: None,
    };
    api.create(&PostParams::default(), &foreign).await.unwrap();
    // The mutating one is restored after the foreign object was seen.
    let mutating_api = Api::<MutatingWebhookConfiguration>::all(client.clone());
    for _ in 0..2 {
        mutating_api.delete(NAME, &DeleteParams::default()).await.unwrap();
        eventually("restored", async || mutating(client).await).await;
    }
    assert!(api.get_opt(NAME).await.unwrap().is_some(), "a foreign object is removed");
    drop(second);
}
