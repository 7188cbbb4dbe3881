//! Bundle fields of the supported kinds of objects.

use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::ConfigMap,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::api::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::target::field_path::FieldPath;

#[derive(Clone, Debug)]
pub(crate) enum BundleFields {
    Mutating,
    Validating,
    Conversion,
    ApiService,
    ClusterTrustBundle,
    /// Key of a ConfigMap.
    Data(String),
}

impl BundleFields {
    pub(crate) fn resource(&self) -> ApiResource {
        match self {
            Self::Mutating => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            Self::Validating => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
            Self::Conversion => ApiResource::erase::<CustomResourceDefinition>(&()),
            Self::ApiService => ApiResource::erase::<APIService>(&()),
            // k8s-openapi has the kinds of the API version that it is compiled for.
            Self::ClusterTrustBundle => ApiResource::from_gvk(&GroupVersionKind::gvk(
                "certificates.k8s.io",
                "v1",
                "ClusterTrustBundle",
            )),
            Self::Data(_) => ApiResource::erase::<ConfigMap>(&()),
        }
    }

    /// Returns the names of the object's bundle fields, whether set or not. The error names the obstacle and
    /// the expected input.
    pub(super) fn slots(&self, object: &Value) -> Result<Vec<String>, String> {
        let spec = &object["spec"];
        match self {
            Self::Mutating | Self::Validating => {
                let webhooks = object["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
                let names = webhooks.iter().filter_map(|webhook| webhook["name"].as_str());
                Ok(names.map(str::to_owned).collect())
            }
            Self::Conversion => {
                let conversion = &spec["conversion"];
                // Without a client configuration the webhook cannot be called.
                let is_called =
                    conversion["strategy"] == "Webhook" && conversion["webhook"]["clientConfig"].is_object();
                Ok(is_called.then(|| "conversion".to_owned()).into_iter().collect())
            }
            Self::ApiService if !spec["service"].is_object() => Ok(Vec::new()),
            Self::ApiService if spec["insecureSkipTLSVerify"] == true => {
                Err("spec.insecureSkipTLSVerify is true, which excludes spec.caBundle: remove it".to_owned())
            }
            Self::ApiService | Self::ClusterTrustBundle => Ok(vec!["spec".to_owned()]),
            Self::Data(key) if !object["binaryData"][key].is_null() => {
                Err(format!("expected {key} in data, found it in binaryData: remove it there"))
            }
            Self::Data(key) => Ok(vec![key.clone()]),
        }
    }

    pub(super) fn path(&self, slot: &str) -> FieldPath {
        match self {
            Self::Mutating | Self::Validating => {
                FieldPath::of(["webhooks"]).named(slot).then(["clientConfig", "caBundle"])
            }
            Self::Conversion => FieldPath::of(["spec", "conversion", "webhook", "clientConfig", "caBundle"]),
            Self::ApiService => FieldPath::of(["spec", "caBundle"]),
            Self::ClusterTrustBundle => FieldPath::of(["spec", "trustBundle"]),
            Self::Data(key) => FieldPath::of(["data", key]),
        }
    }

    /// Returns the part of an object that sets these fields, by name.
    pub(super) fn applied(&self, bundles: Vec<(&str, String)>) -> Value {
        let webhooks = || {
            let webhook = |(name, bundle): &(&str, String)| json!({ "name": name, "clientConfig": { "caBundle": bundle } });
            bundles.iter().map(webhook).collect::<Vec<_>>()
        };
        let bundle = bundles.first().map(|(_, bundle)| bundle);
        match self {
            Self::Mutating | Self::Validating => json!({ "webhooks": webhooks() }),
            Self::Conversion => {
                json!({ "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": bundle } } } } })
            }
            Self::ApiService => json!({ "spec": { "caBundle": bundle } }),
            Self::ClusterTrustBundle => json!({ "spec": { "trustBundle": bundle } }),
            Self::Data(key) => json!({ "data": { key: bundle } }),
        }
    }

    /// Returns `true` if the fields hold PEM text rather than base64.
    pub(super) fn is_text(&self) -> bool {
        matches!(self, Self::ClusterTrustBundle | Self::Data(_))
    }
}
