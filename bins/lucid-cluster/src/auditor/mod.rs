//! The custom resource `auditors.lucid.computing`: an auditor of the catalogue as an object of the API server.
//!
//! [`crd`] defines it in two versions, [`converter`] takes objects from one to the other, and [`read`] makes of one what an
//! entry of an `auditors.yaml` makes: for a plan it is the same where an auditor comes from. The object's name is the
//! auditor's.

mod convert;
mod crd;
mod read;
mod schema;

pub use convert::{ENV_ORDER, converter};
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
/// Where the operator converts its objects.
pub const CONVERT_PATH: &str = "/convert";

/// The version that is stored, with the container's fields in `spec.container`.
const V1: &str = "v1";
/// The version that is written like an entry of an `auditors.yaml`.
const V1ALPHA1: &str = "v1alpha1";

/// The resource in the version that is stored: to read it nothing is converted, so it can be read before anybody serves
/// conversions.
#[must_use]
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, V1, KIND), PLURAL)
}
