//! One object of each kind that carries a bundle.

use std::{
    fmt::Debug,
    future::Future,
    time::{Duration, Instant, SystemTime},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::ConfigMap,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use lucid_certs::{
    CertificateAuthority, TrustBundle,
    target::{CONFIG_MAP_KEY, ObjectTarget, Reading, TargetError, TrustTarget, Webhooks},
};
use serde_json::{Value, json};

use crate::common::names;

pub(crate) const MANAGER: &str = "lucid-certs";
/// Field manager of the interfering client.
pub(crate) const OTHER_MANAGER: &str = "somebody";

const NAMESPACE: &str = "default";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutating,
    Validating,
    Conversion,
    ApiService,
    ConfigMap,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Mutating, Self::Validating, Self::Conversion, Self::ApiService, Self::ConfigMap];
}

pub(crate) struct Subject {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) api: Api<DynamicObject>,
    pub(crate) target: ObjectTarget,
    resource: ApiResource,
}

impl Subject {
    /// Creates a subject. `word` is part of the name, to keep subjects of a cluster apart.
    pub(crate) fn new(client: &Client, kind: Kind, word: &str) -> Self {
        let (name, resource) = match kind {
            Kind::Mutating => (word.to_owned(), ApiResource::erase::<MutatingWebhookConfiguration>(&())),
            Kind::Validating => (word.to_owned(), ApiResource::erase::<ValidatingWebhookConfiguration>(&())),
            Kind::Conversion => {
                (format!("{word}s.example.com"), ApiResource::erase::<CustomResourceDefinition>(&()))
            }
            Kind::ApiService => (format!("v1.{word}.example.com"), ApiResource::erase::<APIService>(&())),
            Kind::ConfigMap => (word.to_owned(), ApiResource::erase::<ConfigMap>(&())),
        };
        let api = match kind {
            Kind::ConfigMap => Api::namespaced_with(client.clone(), NAMESPACE, &resource),
            _ => Api::all_with(client.clone(), &resource),
        };
        let target = target(client, kind, &name);
        Self { kind, name, api, target, resource }
    }

    pub(crate) async fn create(client: &Client, kind: Kind, word: &str) -> Self {
        let subject = Self::new(client, kind, word);
        subject.make(&subject.manifest()).await;
        subject
    }

    pub(crate) async fn make(&self, manifest: &Value) {
        let object = serde_json::from_value(manifest.clone()).unwrap();
        let params = PostParams { field_manager: Some("owner".to_owned()), ..PostParams::default() };
        self.api.create(&params, &object).await.unwrap();
    }

    /// Returns the manifest of the object's owner, without a bundle.
    pub(crate) fn manifest(&self) -> Value {
        let webhook = |name: &str| {
            json!({
                "name": name,
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "clientConfig": { "url": "https://127.0.0.1:1/" },
                // Never called: the resource does not exist.
                "rules": [{
                    "apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["none"],
                }],
            })
        };
        let mut manifest = match self.kind {
            Kind::Mutating | Kind::Validating => {
                json!({ "webhooks": [webhook("first.example.com"), webhook("second.example.com")] })
            }
            Kind::Conversion => {
                let plural = self.name.split('.').next().unwrap();
                let kind = plural.trim_end_matches('s');
                let version = |name: &str, storage: bool| {
                    let schema = json!({ "openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    } });
                    json!({ "name": name, "served": true, "storage": storage, "schema": schema })
                };
                json!({ "spec": {
                    "group": "example.com",
                    "scope": "Namespaced",
                    "names": { "plural": plural, "singular": kind, "kind": kind },
                    "versions": [version("v1", true), version("v2", false)],
                    "conversion": { "strategy": "Webhook", "webhook": {
                        "conversionReviewVersions": ["v1"],
                        "clientConfig": { "url": "https://127.0.0.1:1/" },
                    } },
                } })
            }
            Kind::ApiService => json!({ "spec": {
                "group": self.name.strip_prefix("v1.").unwrap(),
                "version": "v1",
                "groupPriorityMinimum": 1000,
                "versionPriority": 10,
                "service": { "namespace": NAMESPACE, "name": "server" },
            } }),
            Kind::ConfigMap => json!({ "data": { "other": "text" } }),
        };
        manifest["apiVersion"] = json!(self.resource.api_version);
        manifest["kind"] = json!(self.resource.kind);
        manifest["metadata"] = json!({ "name": self.name });
        manifest
    }

    /// JSON pointer of the (first) bundle.
    pub(crate) fn pointer(&self) -> &'static str {
        match self.kind {
            Kind::Mutating | Kind::Validating => "/webhooks/0/clientConfig/caBundle",
            Kind::Conversion => "/spec/conversion/webhook/clientConfig/caBundle",
            Kind::ApiService => "/spec/caBundle",
            Kind::ConfigMap => "/data/ca.crt",
        }
    }

    /// Encodes content for the field.
    pub(crate) fn encoded(&self, content: &[u8]) -> Value {
        match self.kind {
            Kind::ConfigMap => json!(str::from_utf8(content).unwrap()),
            _ => json!(BASE64_STANDARD.encode(content)),
        }
    }

    /// Writes or removes the field as another client.
    pub(crate) async fn overwrite_field(&self, content: Option<&[u8]>) -> Result<(), kube::Error> {
        let patch = match content {
            Some(content) => {
                json!([{ "op": "add", "path": self.pointer(), "value": self.encoded(content) }])
            }
            None => json!([{ "op": "remove", "path": self.pointer() }]),
        };
        self.patch(patch).await
    }

    /// Changes another field as another client.
    pub(crate) async fn label(&self, value: &str) {
        self.patch(json!([{ "op": "add", "path": "/metadata/labels", "value": { "by": value } }]))
            .await
            .unwrap();
    }

    pub(crate) async fn patch(&self, patch: Value) -> Result<(), kube::Error> {
        let params = PatchParams { field_manager: Some(OTHER_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
        self.api.patch(&self.name, &params, &patch).await.map(drop)
    }

    pub(crate) async fn object(&self) -> Value {
        serde_json::to_value(self.api.get(&self.name).await.unwrap()).unwrap()
    }

    /// Reads and writes as the driver does. Retries, because the API server may update the status in between.
    pub(crate) async fn heal(&self, bundle: &TrustBundle) {
        let written = eventually(async || {
            let reading = self.target.read().await.unwrap();
            match self.target.write(bundle, &reading).await {
                Err(error @ TargetError::Changed { .. }) => Err(error),
                outcome => Ok(outcome.unwrap()),
            }
        })
        .await;
        assert!(written.holds(bundle), "{written:?}");
        assert!(self.target.read().await.unwrap().holds(bundle));
    }
}

pub(crate) fn target(client: &Client, kind: Kind, name: &str) -> ObjectTarget {
    let client = client.clone();
    match kind {
        Kind::Mutating => ObjectTarget::mutating_webhooks(client, MANAGER, name, Webhooks::All),
        Kind::Validating => ObjectTarget::validating_webhooks(client, MANAGER, name, Webhooks::All),
        Kind::Conversion => ObjectTarget::crd_conversion(client, MANAGER, name),
        Kind::ApiService => ObjectTarget::api_service(client, MANAGER, name),
        Kind::ConfigMap => ObjectTarget::config_map(client, MANAGER, NAMESPACE, name, CONFIG_MAP_KEY),
    }
}

pub(crate) fn authority() -> CertificateAuthority {
    CertificateAuthority::generate(&names(), SystemTime::now()).unwrap()
}

/// Returns the other field managers that own the bundle.
pub(crate) fn other_owners(reading: &Reading) -> Vec<String> {
    match reading {
        Reading::Present { other_owners, .. } => other_owners.clone(),
        _ => panic!("absent"),
    }
}

pub(crate) async fn eventually<T, E: Debug, F>(mut attempt: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, E>>,
{
    let begin = Instant::now();
    loop {
        match attempt().await {
            Ok(found) => return found,
            Err(why) => assert!(begin.elapsed() < Duration::from_secs(30), "not within 30 s: {why:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
