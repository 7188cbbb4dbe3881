//! Pods as the API server stores them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A pod of the API server, with the parts that are compared and the JSON that a planner reads.
#[derive(Clone, Debug)]
pub struct StoredPod {
    /// Without managed fields, which take more memory than everything else.
    metadata: ObjectMeta,
    pub(crate) status: PodStatus,
    json: Box<RawValue>,
}

#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

impl From<Metadata> for ObjectMeta {
    fn from(metadata: Metadata) -> Self {
        Self {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            creation_timestamp: metadata.creation_timestamp,
            deletion_timestamp: metadata.deletion_timestamp,
            labels: metadata.labels,
            annotations: metadata.annotations,
            owner_references: metadata.owner_references,
            ..Self::default()
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    phase: Option<String>,
    pub(crate) conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) last_transition_time: Option<Timestamp>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) ready: bool,
    #[serde(default)]
    pub(crate) image: String,
    #[serde(default, rename = "imageID")]
    pub(crate) image_id: String,
    #[serde(default)]
    pub(crate) state: ContainerState,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ContainerState {
    pub(crate) waiting: Option<Waiting>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Waiting {
    #[serde(default)]
    pub(crate) reason: String,
}

impl PodStatus {
    pub(crate) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Returns the status of a container or init container, once the kubelet reports it.
    pub(crate) fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.container_statuses.iter().chain(&self.init_container_statuses).find(|found| found.name == name)
    }
}

impl StoredPod {
    /// Returns the pod as JSON.
    #[must_use]
    pub fn json(&self) -> &str {
        self.json.get()
    }

    /// Returns the metadata with its managed fields, which [`meta`](Resource::meta) leaves out.
    #[must_use]
    pub fn full_metadata(&self) -> ObjectMeta {
        #[derive(Default, Deserialize)]
        struct Full {
            metadata: ObjectMeta,
        }
        serde_json::from_str::<Full>(self.json()).unwrap_or_default().metadata
    }

    /// Returns `true` unless the pod is being deleted or has completed.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.metadata.deletion_timestamp.is_none()
            && !matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// Returns an annotation of the pod.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the time of creation.
    #[must_use]
    pub fn created(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }
}

impl<'de> Deserialize<'de> for StoredPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let Parts { metadata, status } =
            serde_json::from_str(json.get()).map_err(serde::de::Error::custom)?;
        Ok(Self { metadata: metadata.into(), status, json })
    }
}

impl Resource for StoredPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(ty: &()) -> Cow<'_, str> {
        Pod::kind(ty)
    }

    fn group(ty: &()) -> Cow<'_, str> {
        Pod::group(ty)
    }

    fn version(ty: &()) -> Cow<'_, str> {
        Pod::version(ty)
    }

    fn plural(ty: &()) -> Cow<'_, str> {
        Pod::plural(ty)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
