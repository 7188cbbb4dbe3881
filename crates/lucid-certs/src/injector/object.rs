//! The objects that a CA is injected into

use std::{fmt, time::SystemTime};

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, PartialObjectMeta},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use super::{
    problem::{Problem, SkipsVerificationSnafu},
    wish::ObjectName,
};
use crate::{bundle::TrustBundle, target::Slot};

/// Where OpenShift puts a CA into a ConfigMap
const CONFIG_MAP_KEY: &str = "service-ca.crt";

/// The kinds that have a place for a CA
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
        let (group, plural) = match self {
            Self::MutatingWebhookConfiguration => {
                ("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
            }
            Self::ValidatingWebhookConfiguration => {
                ("admissionregistration.k8s.io", "validatingwebhookconfigurations")
            }
            Self::CustomResourceDefinition => ("apiextensions.k8s.io", "customresourcedefinitions"),
            Self::ApiService => ("apiregistration.k8s.io", "apiservices"),
            Self::ConfigMap => ("", "configmaps"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", self.as_str()), plural)
    }
}

/// One object. Shown as `MutatingWebhookConfiguration/name` or `ConfigMap/namespace/name`.
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

    pub(super) fn api(&self, client: &Client) -> Api<DynamicObject> {
        let resource = self.kind.resource();
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        }
    }

    /// As an event refers to it
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

/// The places for a CA in an object as it was read, with what they hold; none when nobody calls through it
pub(super) fn slots(kind: Kind, object: &Value) -> Result<Vec<Slot>, Problem> {
    let ca_bundle = |client_config: &Value| {
        let text = client_config["caBundle"].as_str().unwrap_or_default();
        BASE64_STANDARD.decode(text).unwrap_or_default()
    };
    match kind {
        Kind::MutatingWebhookConfiguration | Kind::ValidatingWebhookConfiguration => {
            let webhooks = object["webhooks"].as_array().into_iter().flatten();
            let slot = |webhook: &Value| {
                Some(Slot::new(webhook["name"].as_str()?, ca_bundle(&webhook["clientConfig"])))
            };
            Ok(webhooks.filter_map(slot).collect())
        }
        Kind::CustomResourceDefinition => {
            let conversion = &object["spec"]["conversion"];
            let by_webhook =
                conversion["strategy"] == "Webhook" && conversion["webhook"]["clientConfig"].is_object();
            Ok(by_webhook
                .then(|| Slot::new("conversion", ca_bundle(&conversion["webhook"]["clientConfig"])))
                .into_iter()
                .collect())
        }
        Kind::ApiService => {
            let spec = &object["spec"];
            // The API server serves the others itself, and takes no caBundle for them.
            if !spec["service"].is_object() {
                return Ok(Vec::new());
            }
            if spec["insecureSkipTLSVerify"] == true {
                return SkipsVerificationSnafu.fail();
            }
            Ok(vec![Slot::new("spec", ca_bundle(spec))])
        }
        Kind::ConfigMap => {
            let held = object["data"][CONFIG_MAP_KEY].as_str().unwrap_or_default();
            Ok(vec![Slot::new(CONFIG_MAP_KEY, held)])
        }
    }
}

/// What a place is to hold: what it trusts already and is not expired, and `wanted`. What does not parse is
/// replaced.
pub(super) fn merged(slot: &Slot, wanted: &TrustBundle, now: SystemTime) -> Slot {
    let held = slot.bundle().ok().and_then(|held| held.without_expired(now));
    let bundle = held.map_or_else(|| wanted.clone(), |held| held.merge(wanted));
    Slot::new(slot.name.clone(), bundle.to_pem())
}

/// What is applied: these places and no other field, and only if nobody wrote since `version`
pub(super) fn patch(object: &Object, version: &str, slots: &[Slot]) -> Value {
    let resource = object.kind.resource();
    let mut patch = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": { "name": object.name, "resourceVersion": version },
    });
    if let Some(namespace) = &object.namespace {
        patch["metadata"]["namespace"] = json!(namespace);
    }
    let ca_bundle = |slot: &Slot| json!({ "caBundle": BASE64_STANDARD.encode(&slot.pem) });
    match object.kind {
        Kind::MutatingWebhookConfiguration | Kind::ValidatingWebhookConfiguration => {
            let webhook = |slot: &Slot| json!({ "name": slot.name, "clientConfig": ca_bundle(slot) });
            patch["webhooks"] = slots.iter().map(webhook).collect();
        }
        Kind::CustomResourceDefinition => {
            let client_config = slots.first().map(ca_bundle);
            patch["spec"]["conversion"]["webhook"]["clientConfig"] = json!(client_config);
        }
        Kind::ApiService => patch["spec"] = json!(slots.first().map(ca_bundle)),
        Kind::ConfigMap => {
            for slot in slots {
                patch["data"][&slot.name] = json!(String::from_utf8_lossy(&slot.pem));
            }
        }
    }
    patch
}

/// As messages name an object that is known by namespace and name
pub(super) fn of_kind(kind: &str, name: &ObjectName) -> String {
    format!("{kind} {name}")
}
