//! The custom resource `auditors.lucid.computing`: an auditor of the catalogue as an object of the API server.
//!
//! [`CRD`] defines it, and [`read`] converts an object to the same auditor as the equivalent entry of an
//! `auditors.yaml`. The name of the object is the name of the auditor.

mod read;

pub use read::{AuditorError, read};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ApiResource, GroupVersionKind};
use serde::{Deserialize, Serialize};

/// CustomResourceDefinition of the resource, as a manifest.
///
/// [`read`] checks the rules that a schema cannot express, such as requests within limits. Violations are reported in
/// the status of the object.
pub const CRD: &str = include_str!("crd.yaml");
/// Name of the CustomResourceDefinition.
pub const CRD_NAME: &str = "auditors.lucid.computing";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AuditorStatus {
    pub(crate) notarized: String,
    pub(crate) observed_generation: i64,
    pub(crate) conditions: Vec<Condition>,
}

/// Returns the resource as a dynamic kube API resource.
#[must_use]
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("lucid.computing", "v1", "Auditor"), "auditors")
}
