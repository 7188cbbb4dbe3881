//! The Deployments and StatefulSets that run Lucid's programs.

mod deployed_args;

use std::collections::BTreeMap;
use std::fmt;

use clap::Args;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use lucid_shared::serving::Program;

pub(crate) use deployed_args::parse;

/// Kind of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Deployment,
    /// Has a volume for the decision log of each replica.
    StatefulSet,
}

impl Kind {
    /// Returns the resource name used in RBAC rules.
    pub(crate) const fn resource(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::StatefulSet => "statefulsets",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
        })
    }
}

/// A Deployment or StatefulSet.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Desired number of replicas.
    pub(crate) wanted: i32,
    /// Number of ready replicas.
    pub(crate) ready: i32,
    /// `true` if scaling down deletes the volumes of the pods.
    pub(crate) discards_volumes: bool,
    selector: LabelSelector,
    pod: PodSpec,
}

impl Workload {
    /// Returns the label selector of the pods for list requests, or `None` without `matchLabels`.
    pub(crate) fn selector(&self) -> Option<String> {
        let labels = self.selector.match_labels.as_ref()?;
        let terms: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        (!terms.is_empty()).then(|| terms.join(","))
    }

    /// Returns the ServiceAccount of the pods.
    pub(crate) fn service_account(&self) -> &str {
        self.pod.service_account_name.as_deref().filter(|name| !name.is_empty()).unwrap_or("default")
    }

    /// Returns the container named after `program`, or else the first one.
    pub(crate) fn container(&self, program: Program) -> Option<&Container> {
        let containers = &self.pod.containers;
        containers.iter().find(|container| container.name == program.name).or_else(|| containers.first())
    }

    /// Returns the options of `program`, and the variables whose values are not in the manifest.
    ///
    /// # Errors
    ///
    /// Returns an error if the container does not run `program`, or the options are invalid.
    pub(crate) fn deployed_args<A: Args>(&self, program: Program) -> Result<(A, Vec<String>), String> {
        deployed_args::read(program, self.container(program).ok_or("it has no container")?, &self.namespace)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

impl From<Deployment> for Workload {
    fn from(it: Deployment) -> Self {
        let (namespace, name) = (it.namespace().unwrap_or_default(), it.name_any());
        let spec = it.spec.unwrap_or_default();
        Self {
            kind: Kind::Deployment,
            namespace,
            name,
            labels: it.metadata.labels.unwrap_or_default(),
            wanted: spec.replicas.unwrap_or(1),
            ready: it.status.and_then(|status| status.ready_replicas).unwrap_or(0),
            discards_volumes: false,
            selector: spec.selector,
            pod: spec.template.spec.unwrap_or_default(),
        }
    }
}

impl From<StatefulSet> for Workload {
    fn from(it: StatefulSet) -> Self {
        let (namespace, name) = (it.namespace().unwrap_or_default(), it.name_any());
        let spec = it.spec.unwrap_or_default();
        let retention = spec.persistent_volume_claim_retention_policy.unwrap_or_default();
        Self {
            kind: Kind::StatefulSet,
            namespace,
            name,
            labels: it.metadata.labels.unwrap_or_default(),
            wanted: spec.replicas.unwrap_or(1),
            ready: it.status.and_then(|status| status.ready_replicas).unwrap_or(0),
            discards_volumes: retention.when_scaled.as_deref() == Some("Delete"),
            selector: spec.selector,
            pod: spec.template.spec.unwrap_or_default(),
        }
    }
}
