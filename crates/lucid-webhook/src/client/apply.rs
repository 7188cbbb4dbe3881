//! Applies registrations to the cluster.

use std::fmt::Debug;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A `MutatingWebhookConfiguration` or a `ValidatingWebhookConfiguration`.
pub trait WebhookConfiguration:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + sealed::Sealed
{
}

impl WebhookConfiguration for MutatingWebhookConfiguration {}
impl WebhookConfiguration for ValidatingWebhookConfiguration {}

mod sealed {
    use super::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};

    pub trait Sealed {}

    impl Sealed for MutatingWebhookConfiguration {}
    impl Sealed for ValidatingWebhookConfiguration {}
}

/// Registers webhooks by server-side apply as `field_manager`, and returns the stored object.
///
/// Ownership of the fields in `configuration` is forced; other fields are left alone. Without a caBundle, that field is
/// left to cert-manager or another injector. If nothing differs, nothing is written.
///
/// # Errors
///
/// A [`kube::Error`] if the API server rejects the request or is unreachable.
pub async fn apply<K: WebhookConfiguration>(
    client: Client,
    configuration: &K,
    field_manager: &str,
) -> Result<K, kube::Error> {
    let params = PatchParams::apply(field_manager).force();
    Api::all(client).patch(&configuration.name_any(), &params, &Patch::Apply(configuration)).await
}
