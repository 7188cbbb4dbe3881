//! Objects of each kind that carries a bundle.

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
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};

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

    pub(crate) fn resource(self) -> ApiResource {
        match self {
            Self::Mutating => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            Self::Validating => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
            Self::Conversion => ApiResource::erase::<CustomResourceDefinition>(&()),
            Self::ApiService => ApiResource::erase::<APIService>(&()),
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
        }
    }

    /// Returns the API of the kind; `namespace` is that of ConfigMaps.
    pub(crate) fn api(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        match self {
            Self::ConfigMap => Api::namespaced_with(client.clone(), namespace, &self.resource()),
            _ => Api::all_with(client.clone(), &self.resource()),
        }
    }

    /// Returns the name of an object; `word` keeps objects of a cluster apart.
    pub(crate) fn object_name(self, word: &str) -> String {
        match self {
            Self::Conversion => format!("{word}s.example.com"),
            Self::ApiService => format!("v1.{word}.example.com"),
            _ => word.to_owned(),
        }
    }

    /// JSON pointers of the bundles. For a ConfigMap, that of OpenShift's service CA.
    pub(crate) fn pointers(self) -> &'static [&'static str] {
        match self {
            Self::Mutating | Self::Validating => {
                &["/webhooks/0/clientConfig/caBundle", "/webhooks/1/clientConfig/caBundle"]
            }
            Self::Conversion => &["/spec/conversion/webhook/clientConfig/caBundle"],
            Self::ApiService => &["/spec/caBundle"],
            Self::ConfigMap => &["/data/service-ca.crt"],
        }
    }

    pub(crate) fn encode(self, content: &[u8]) -> Value {
        match self {
            Self::ConfigMap => json!(str::from_utf8(content).unwrap()),
            _ => json!(BASE64_STANDARD.encode(content)),
        }
    }

    pub(crate) fn manifest(self, name: &str) -> Value {
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
        let mut manifest = match self {
            Self::Mutating | Self::Validating => {
                json!({ "webhooks": [webhook("first.example.com"), webhook("second.example.com")] })
            }
            Self::Conversion => {
                let plural = name.split('.').next().unwrap();
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
            Self::ApiService => json!({ "spec": {
                "group": name.strip_prefix("v1.").unwrap(),
                "version": "v1",
                "groupPriorityMinimum": 1000,
                "versionPriority": 10,
                "service": { "namespace": "default", "name": "server" },
            } }),
            Self::ConfigMap => json!({ "data": { "other": "text" } }),
        };
        manifest["apiVersion"] = json!(self.resource().api_version);
        manifest["kind"] = json!(self.resource().kind);
        manifest["metadata"] = json!({ "name": name });
        manifest
    }
}
