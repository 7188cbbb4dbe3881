//! Objects with an injected CA bundle.

use std::fmt;

use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::ConfigMap,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{Client, api::ApiResource};

use super::FIELD_MANAGER;
use crate::target::{ObjectTarget, Webhooks};

/// Key used by OpenShift's service CA.
const CONFIG_MAP_KEY: &str = "service-ca.crt";

/// Kinds with a field for a CA bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    CustomResourceDefinition,
    ApiService,
    ConfigMap,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource().kind)
    }
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::MutatingWebhookConfiguration,
        Self::ValidatingWebhookConfiguration,
        Self::CustomResourceDefinition,
        Self::ApiService,
        Self::ConfigMap,
    ];

    pub(super) fn resource(self) -> ApiResource {
        match self {
            Self::MutatingWebhookConfiguration => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            Self::ValidatingWebhookConfiguration => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
            Self::CustomResourceDefinition => ApiResource::erase::<CustomResourceDefinition>(&()),
            Self::ApiService => ApiResource::erase::<APIService>(&()),
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
        }
    }

    /// Returns the target for the bundle of an object; `namespace` is that of a ConfigMap.
    pub(super) fn target(self, client: Client, namespace: Option<&str>, name: &str) -> ObjectTarget {
        match self {
            Self::MutatingWebhookConfiguration => {
                ObjectTarget::mutating_webhooks(client, FIELD_MANAGER, name, Webhooks::All)
            }
            Self::ValidatingWebhookConfiguration => {
                ObjectTarget::validating_webhooks(client, FIELD_MANAGER, name, Webhooks::All)
            }
            Self::CustomResourceDefinition => ObjectTarget::crd_conversion(client, FIELD_MANAGER, name),
            Self::ApiService => ObjectTarget::api_service(client, FIELD_MANAGER, name),
            Self::ConfigMap => {
                let namespace = namespace.unwrap_or_default();
                ObjectTarget::config_map(client, FIELD_MANAGER, namespace, name, CONFIG_MAP_KEY)
            }
        }
    }
}
