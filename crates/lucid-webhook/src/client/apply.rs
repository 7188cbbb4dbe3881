//! Writing registrations to the cluster.

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

/// Registers webhooks by server-side apply, in the name of `field_manager`, and returns what is stored then.
///
/// Fields that `configuration` has are taken over from whoever owns them; others are left alone. One without a caBundle
/// leaves that field to cert-manager or another injector. When nothing differs, nothing is written.
///
/// # Errors
///
/// When the API server refuses it, or cannot be reached.
pub async fn apply<K: WebhookConfiguration>(
    client: Client,
    configuration: &K,
    field_manager: &str,
) -> Result<K, kube::Error> {
    let params = PatchParams::apply(field_manager).force();
    Api::all(client).patch(&configuration.name_any(), &params, &Patch::Apply(configuration)).await
}
