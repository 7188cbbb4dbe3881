//! Webhooks called by a real API server.
//!
//! The tests share one cluster, which runs as long as any of them. Each has its own namespace, and its webhooks handle
//! no other.

mod access;
mod answers;
mod conversion;
mod examples;
mod failures;
mod operations;
mod registrations;
mod servers;

use std::future::pending;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request, header};
use kube::Client;
use kube::client::Body;
use lucid_e2e::{ClusterExt as _, eventually};
use lucid_testbed::Cluster;
use lucid_webhook::registration::{Configurations, Endpoint};
use lucid_webhook::{AdmissionRequest, AdmissionResponse, Router, Webhook, WebhookKind};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use servers::{CA_BUNDLE, serve};

/// Connections to the cluster outlive a test.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
static CLUSTER: tokio::sync::Mutex<Weak<Cluster>> = tokio::sync::Mutex::const_new(Weak::new());

fn in_namespace(namespace: &'static str, test: impl AsyncFnOnce(&Scene)) {
    RUNTIME.block_on(async {
        let cluster = {
            let mut shared = CLUSTER.lock().await;
            if let Some(cluster) = shared.upgrade() {
                cluster
            } else {
                let cluster = Arc::new(Cluster::builder().start().await.unwrap());
                *shared = Arc::downgrade(&cluster);
                cluster
            }
        };
        cluster.create_namespace(namespace, &[]).await.unwrap();
        test(&Scene { cluster, namespace }).await;
    });
}

struct Scene {
    cluster: Arc<Cluster>,
    namespace: &'static str,
}

#[derive(Debug)]
struct Answer {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

impl Answer {
    #[track_caller]
    fn stored(self) -> Value {
        assert!(matches!(self.code, 200 | 201), "{self:?}");
        self.body
    }

    #[track_caller]
    fn refused(&self, code: u16, message: &str) {
        assert!(self.code == code && self.message() == message, "expected {code} {message}, got {self:?}");
    }

    fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

impl Scene {
    fn client(&self) -> Client {
        self.cluster.client()
    }

    /// Like `kubectl --raw`, with the warnings, which kube clients do not expose.
    async fn send(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Answer {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content_type);
        let response = self.client().send(request.body(Body::from(body)).unwrap()).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect_bytes().await.unwrap();
        Answer {
            code: head.status.as_u16(),
            body: serde_json::from_slice(&body)
                .unwrap_or_else(|_| json!({"message": String::from_utf8_lossy(&body)})),
            warnings: head
                .headers
                .get_all(header::WARNING)
                .iter()
                .map(|it| unquoted(it.as_bytes()))
                .collect(),
        }
    }

    fn path(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace)
    }

    async fn create(&self, resource: &str, object: &Value) -> Answer {
        self.send(Method::POST, &self.path(resource), "application/json", object).await
    }

    async fn get(&self, resource: &str) -> Answer {
        self.send(Method::GET, &self.path(resource), "application/json", &Value::Null).await
    }

    async fn delete(&self, resource: &str) -> Answer {
        self.send(Method::DELETE, &self.path(resource), "application/json", &Value::Null).await
    }

    async fn merge(&self, resource: &str, patch: &Value) -> Answer {
        let content_type = "application/strategic-merge-patch+json";
        self.send(Method::PATCH, &self.path(resource), content_type, patch).await
    }

    async fn register_one(&self, kind: WebhookKind, webhook: Webhook, fields: Value) {
        let server = serve(Router::new().webhook("/", webhook)).await;
        self.register(kind, [registration(&server, "/", fields)]).await;
    }

    /// Registers webhooks for this namespace, and waits until they are in effect.
    async fn register(&self, kind: WebhookKind, webhooks: impl IntoIterator<Item = Value>) {
        let (path, kind) = match kind {
            WebhookKind::Mutating => ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
            WebhookKind::Validating => ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
        };
        let name = format!("{}-{}", self.namespace, kind.to_lowercase());
        // All webhooks of a configuration take effect together, so one that denies is a marker for all.
        let marker = json!({
            "name": "marker.example.com",
            "rules": [rule("CREATE", "configmaps")],
            "objectSelector": {"matchLabels": {"marker": name}},
        });
        let mut registered = vec![registration(&serve(marker_router()).await, "/", marker)];
        registered.extend(webhooks);
        for webhook in &mut registered {
            webhook["namespaceSelector"] =
                json!({"matchLabels": {"kubernetes.io/metadata.name": self.namespace}});
        }
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "webhooks": registered,
        });
        let path = format!("/apis/admissionregistration.k8s.io/v1/{path}");
        self.send(Method::POST, &path, "application/json", &configuration).await.stored();

        let marked = json!({"metadata": {"generateName": "marker-", "labels": {"marker": name}}});
        eventually("the registration is in effect", async || {
            let answer = self.create("configmaps?dryRun=All", &marked).await;
            answer.message().contains("in effect").then_some(()).ok_or(answer)
        })
        .await;
    }

    /// Registers the webhooks of `router` as they are configured there.
    async fn configure(&self, router: &Router) {
        let endpoint = Endpoint::url(serve(router.clone()).await);
        let ca = STANDARD.decode(&*CA_BUNDLE).unwrap();
        let configurations = Configurations::new(self.namespace, endpoint).with_ca_bundle(ca);
        let mutating = configurations.mutating(router.registrations()).unwrap();
        let validating = configurations.validating(router.registrations()).unwrap();
        for (path, configuration) in [
            ("mutatingwebhookconfigurations", serde_json::to_value(mutating).unwrap()),
            ("validatingwebhookconfigurations", serde_json::to_value(validating).unwrap()),
        ] {
            let path = format!("/apis/admissionregistration.k8s.io/v1/{path}");
            self.send(Method::POST, &path, "application/json", &configuration).await.stored();
        }
    }

    fn audited(&self, verb: &str, pod: &str) -> serde_json::Map<String, Value> {
        let events = self.cluster.audit_events().unwrap();
        let mut events = events.into_iter().filter(|event| {
            let object = &event["objectRef"];
            event["verb"] == verb && object["namespace"] == self.namespace && object["name"] == pod
        });
        let event = events.next().unwrap_or_else(|| panic!("no {verb} of {pod} in the audit log"));
        event["annotations"].as_object().cloned().unwrap_or_default()
    }
}

fn marker_router() -> Router {
    async fn in_effect() -> AdmissionResponse {
        AdmissionResponse::deny(403, "Forbidden", "in effect")
    }
    Router::new().webhook("/", Webhook::validating("marker.example.com", in_effect))
}

/// An entry of a configuration, by default for the creation of pods; `fields` override.
fn registration(server: &str, path: &str, fields: Value) -> Value {
    let mut webhook = json!({
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "clientConfig": {"url": format!("{server}{path}"), "caBundle": *CA_BUNDLE},
        "rules": [rule("CREATE", "pods")],
    });
    let Value::Object(fields) = fields else { panic!("no object: {fields}") };
    webhook.as_object_mut().unwrap().extend(fields);
    webhook
}

fn rule(operation: &str, resource: &str) -> Value {
    json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]})
}

fn answer(response: Value) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).to_string()
}

/// Response of a raw server that patches the object without any check.
fn unchecked(review: &Value, patch: &Value) -> Option<(u16, String)> {
    let patch = STANDARD.encode(patch.to_string());
    let uid = &review["request"]["uid"];
    Some((200, answer(json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch}))))
}

/// A pod with these labels; none if they are null.
fn pod(name: &str, labels: Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "app", "image": "example.com/app:1"}], "terminationGracePeriodSeconds": 0},
    })
}

/// The text of a header such as `299 - "it said \"no\""` (RFC 7234, section 5.5).
fn unquoted(header: &[u8]) -> String {
    let header = String::from_utf8_lossy(header);
    let (_, quoted) = header.split_once('"').unwrap();
    quoted.strip_suffix('"').unwrap().replace("\\\"", "\"").replace("\\\\", "\\")
}

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<AdmissionRequest>>>);

impl Seen {
    fn add(&self, request: AdmissionRequest) {
        self.lock().push(request);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<AdmissionRequest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[track_caller]
    fn take_one(&self) -> AdmissionRequest {
        let mut seen = self.lock();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen.pop().unwrap()
    }
}
