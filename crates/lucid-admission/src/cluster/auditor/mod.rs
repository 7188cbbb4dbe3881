//! The custom resource `auditors.lucid.computing`: an auditor of the catalogue as an object of the API server.
//!
//! [`crd`] defines it, and [`read`] converts an object to the same auditor as the equivalent entry of an
//! `auditors.yaml`. The name of the object is the name of the auditor.

mod crd;
mod read;
mod schema;

pub use crd::crd;
pub use read::{AuditorError, read};

use kube::api::{ApiResource, GroupVersionKind};

/// API group of the resource.
pub const GROUP: &str = "lucid.computing";
/// Kind of the resource.
pub const KIND: &str = "Auditor";
/// Plural name of the resource, as in URLs.
pub const PLURAL: &str = "auditors";
/// Name of the CustomResourceDefinition.
pub const CRD_NAME: &str = "auditors.lucid.computing";
const VERSION: &str = "v1";

/// Returns the resource as a dynamic kube API resource.
#[must_use]
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, KIND), PLURAL)
}
