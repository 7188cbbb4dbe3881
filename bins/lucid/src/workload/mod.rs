//! The Deployments and StatefulSets that run Lucid's programs.

mod deployed_args;

use std::collections::BTreeMap;
use std::fmt;

use clap::Args;
use k8s_openapi::api::apps::v1::StatefulSetSpec;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use lucid_shared::serving::Program;
use serde_json::Value;

pub(crate) use deployed_args::parse;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Deployment,
    /// Has a volume for the decision log of each replica.
    StatefulSet,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Deployment, Self::StatefulSet];

    pub(crate) const fn resource(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::StatefulSet => "statefulsets",
        }
    }

    pub(crate) fn api(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("apps", "v1", &self.to_string());
        Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) wanted: i32,
    pub(crate) ready: i32,
    /// `true` if scaling down deletes the volumes of the pods.
    pub(crate) discards_volumes: bool,
    selector: LabelSelector,
    pod: PodSpec,
}

impl Workload {
    pub(crate) fn new(kind: Kind, mut object: DynamicObject) -> Self {
        // A Deployment has a subset of these fields.
        let spec: StatefulSetSpec = object
            .data
            .get_mut("spec")
            .map(Value::take)
            .and_then(|it| serde_json::from_value(it).ok())
            .unwrap_or_default();
        let retention = spec.persistent_volume_claim_retention_policy.unwrap_or_default();
        let ready = object.data["status"]["readyReplicas"].as_i64().unwrap_or_default();
        Self {
            kind,
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            wanted: spec.replicas.unwrap_or(1),
            ready: ready.try_into().unwrap_or_default(),
            discards_volumes: retention.when_scaled.as_deref() == Some("Delete"),
            selector: spec.selector,
            pod: spec.template.spec.unwrap_or_default(),
            labels: object.metadata.labels.unwrap_or_default(),
        }
    }

    /// Returns the label selector of the pods for list requests, or `None` without `matchLabels`.
    pub(crate) fn selector(&self) -> Option<String> {
        let labels = self.selector.match_labels.as_ref()?;
        let terms: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        (!terms.is_empty()).then(|| terms.join(","))
    }

    pub(crate) fn service_account(&self) -> &str {
        self.pod.service_account_name.as_deref().filter(|name| !name.is_empty()).unwrap_or("default")
    }

    /// Returns the container named after `program`, or else the first one.
    pub(crate) fn container(&self, program: Program) -> Option<&Container> {
        let containers = &self.pod.containers;
        containers.iter().find(|container| container.name == program.name).or_else(|| containers.first())
    }

    /// Returns the options of `program`, and the variables whose values are not in the manifest.
    pub(crate) fn deployed_args<A: Args>(&self, program: Program) -> Result<(A, Vec<String>), String> {
        deployed_args::read(program, self.container(program).ok_or("it has no container")?, &self.namespace)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}
