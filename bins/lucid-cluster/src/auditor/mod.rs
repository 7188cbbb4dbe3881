//! The custom resource `auditors.lucid.computing`: an auditor of the catalogue as an object of the API server.
//!
//! [`crd`] defines it, and [`read`] turns an object into the same auditor as an entry of an `auditors.yaml`. The name of the
//! object is the name of the auditor.

mod crd;
mod read;
mod schema;

pub use crd::crd;
pub use read::{AuditorError, read};

use kube::api::{ApiResource, GroupVersionKind};

/// The group of the resource.
pub const GROUP: &str = "lucid.computing";
/// The kind of the resource.
pub const KIND: &str = "Auditor";
/// The resource's name in URLs.
pub const PLURAL: &str = "auditors";
/// The name of the CustomResourceDefinition.
pub const CRD_NAME: &str = "auditors.lucid.computing";
/// The version of the resource.
const VERSION: &str = "v1";

/// The resource.
#[must_use]
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, KIND), PLURAL)
}
