//! Objects that carry a trust bundle, on a real API server.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lucid_certs::target::ObjectTarget;
use lucid_e2e::Error;
use serde_json::{Value, json};

pub(super) const NAMESPACE: &str = "default";

const MANAGER: &str = "soak-certs";

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Mutating,
    Validating,
    Conversion,
    ApiService,
    ConfigMap,
}

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::Mutating, Self::Validating, Self::Conversion, Self::ApiService, Self::ConfigMap];
}

pub(super) struct Subject {
    kind: Kind,
    pub(super) name: String,
    pub(super) api: Api<DynamicObject>,
    resource: ApiResource,
}

impl Subject {
    /// Creates the object without a bundle; `word` is part of its name.
    pub(super) async fn create(client: &Client, kind: Kind, word: &str) -> Result<Self, Error> {
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
        let subject = Self { kind, name, api, resource };
        let object = serde_json::from_value(subject.manifest(word))?;
        subject.api.create(&PostParams::default(), &object).await?;
        Ok(subject)
    }

    pub(super) fn target(&self, client: &Client) -> ObjectTarget {
        let (client, name) = (client.clone(), &self.name);
        match self.kind {
            Kind::Mutating => ObjectTarget::mutating_webhooks(client, MANAGER, name),
            Kind::Validating => ObjectTarget::validating_webhooks(client, MANAGER, name),
            Kind::Conversion => ObjectTarget::crd_conversion(client, MANAGER, name),
            Kind::ApiService => ObjectTarget::api_service(client, MANAGER, name),
            Kind::ConfigMap => ObjectTarget::config_map(client, MANAGER, NAMESPACE, name),
        }
    }

    pub(super) fn api_with(&self, client: &Client) -> Api<DynamicObject> {
        match self.kind {
            Kind::ConfigMap => Api::namespaced_with(client.clone(), NAMESPACE, &self.resource),
            _ => Api::all_with(client.clone(), &self.resource),
        }
    }

    fn manifest(&self, word: &str) -> Value {
        let webhook = |name: &str| {
            json!({
                "name": name,
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "clientConfig": { "url": "https://127.0.0.1:1/" },
                // Never called: the resource does not exist.
                "rules": [{
                    "apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["none"],
                }],
            })
        };
        let mut manifest = match self.kind {
            Kind::Mutating | Kind::Validating => json!({ "webhooks": [webhook("first.example.com")] }),
            Kind::Conversion => json!({ "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": { "plural": format!("{word}s"), "singular": word, "kind": word },
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": { "type": "object" } },
                }],
                "conversion": { "strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v1"],
                    "clientConfig": { "url": "https://127.0.0.1:1/" },
                } },
            } }),
            Kind::ApiService => json!({ "spec": {
                "group": format!("{word}.example.com"),
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

    pub(super) fn what(&self) -> &str {
        &self.resource.kind
    }

    /// JSON pointer of the bundle.
    fn pointer(&self) -> &'static str {
        match self.kind {
            Kind::Mutating | Kind::Validating => "/webhooks/0/clientConfig/caBundle",
            Kind::Conversion => "/spec/conversion/webhook/clientConfig/caBundle",
            Kind::ApiService => "/spec/caBundle",
            Kind::ConfigMap => "/data/ca.crt",
        }
    }

    /// Bundle of the object, in PEM; empty if the field is absent.
    pub(super) fn bundle(&self, object: &DynamicObject) -> Vec<u8> {
        let field = object.data.pointer(self.pointer()).cloned().unwrap_or_default();
        match self.kind {
            Kind::ConfigMap => field.as_str().unwrap_or_default().as_bytes().to_vec(),
            _ => serde_json::from_value::<ByteString>(field).unwrap_or_default().0,
        }
    }

    /// Writes `content` to the field, or removes the field.
    pub(super) async fn damage(&self, content: Option<&[u8]>) -> Result<(), kube::Error> {
        let patch = match (content, self.kind) {
            (None, _) => json!([{ "op": "remove", "path": self.pointer() }]),
            (Some(content), Kind::ConfigMap) => {
                json!([{ "op": "add", "path": self.pointer(), "value": String::from_utf8_lossy(content) }])
            }
            (Some(content), _) => {
                json!([{ "op": "add", "path": self.pointer(), "value": ByteString(content.to_vec()) }])
            }
        };
        let patch = serde_json::from_value(patch).map_err(kube::Error::SerdeError)?;
        let params = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
        self.api.patch(&self.name, &params, &Patch::Json::<()>(patch)).await.map(drop)
    }
}
