//! Objects with an injected CA bundle.

use std::{fmt, time::SystemTime};

use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::{ConfigMap, ObjectReference},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Client, ResourceExt,
    api::{ApiResource, DynamicObject, PartialObjectMeta},
    runtime::events::Recorder,
};

use super::FIELD_MANAGER;
use crate::{
    bundle::TrustBundle,
    target::{ObjectTarget, Slot, Webhooks},
};

/// Key used by OpenShift's service CA.
const CONFIG_MAP_KEY: &str = "service-ca.crt";

/// Kinds with a field for a CA bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    CustomResourceDefinition,
    ApiService,
    ConfigMap,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::MutatingWebhookConfiguration => "MutatingWebhookConfiguration",
            Self::ValidatingWebhookConfiguration => "ValidatingWebhookConfiguration",
            Self::CustomResourceDefinition => "CustomResourceDefinition",
            Self::ApiService => "APIService",
            Self::ConfigMap => "ConfigMap",
        }
    }

    pub(super) fn resource(self) -> ApiResource {
        match self {
            Self::MutatingWebhookConfiguration => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            Self::ValidatingWebhookConfiguration => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
            Self::CustomResourceDefinition => ApiResource::erase::<CustomResourceDefinition>(&()),
            Self::ApiService => ApiResource::erase::<APIService>(&()),
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
        }
    }
}

/// Identity of an object. Displayed as `MutatingWebhookConfiguration/name` or `ConfigMap/namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Object {
    pub(super) kind: Kind,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{namespace}/{}", self.kind, self.name),
            None => write!(f, "{}/{}", self.kind, self.name),
        }
    }
}

impl Object {
    pub(super) fn of(kind: Kind, object: &PartialObjectMeta<DynamicObject>) -> Self {
        Self { kind, namespace: object.namespace(), name: object.name_any() }
    }

    /// Returns the target for the object's bundle. It reports contention to `recorder`.
    pub(super) fn target(&self, client: &Client, recorder: &Recorder) -> ObjectTarget {
        let (client, name) = (client.clone(), &*self.name);
        let target = match self.kind {
            Kind::MutatingWebhookConfiguration => {
                ObjectTarget::mutating_webhooks(client, FIELD_MANAGER, name, Webhooks::All)
            }
            Kind::ValidatingWebhookConfiguration => {
                ObjectTarget::validating_webhooks(client, FIELD_MANAGER, name, Webhooks::All)
            }
            Kind::CustomResourceDefinition => ObjectTarget::crd_conversion(client, FIELD_MANAGER, name),
            Kind::ApiService => ObjectTarget::api_service(client, FIELD_MANAGER, name),
            Kind::ConfigMap => {
                let namespace = self.namespace.as_deref().unwrap_or_default();
                ObjectTarget::config_map(client, FIELD_MANAGER, namespace, name, CONFIG_MAP_KEY)
            }
        };
        target.with_recorder(recorder.clone())
    }

    pub(super) fn reference(&self, uid: Option<String>) -> ObjectReference {
        let resource = self.kind.resource();
        ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            namespace: self.namespace.clone(),
            name: Some(self.name.clone()),
            uid,
            ..ObjectReference::default()
        }
    }
}

/// Merges `wanted` with the unexpired certificates of a slot. Drops certificates that do not parse.
pub(super) fn merged(slot: &Slot, wanted: &TrustBundle, now: SystemTime) -> Slot {
    let held = slot.bundle().and_then(|held| held.without_expired(now));
    let bundle = held.map_or_else(|| wanted.clone(), |held| held.merge(wanted));
    Slot::new(slot.name.clone(), bundle.to_pem())
}
