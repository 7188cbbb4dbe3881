//! Applies registrations to the cluster.

use std::fmt::Debug;

use kube::api::{Patch, PatchParams};
use kube::core::ClusterResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Registers webhooks, or applies any other cluster-scoped object, by server-side apply as `field_manager`. Returns the
/// stored object.
///
/// Ownership of the fields in `configuration` is forced; other fields are left alone. Without a caBundle, that field is
/// left to cert-manager or another injector. If nothing differs, nothing is written.
///
/// # Errors
///
/// A [`kube::Error`] if the API server rejects the request or is unreachable.
pub async fn apply<K>(client: Client, configuration: &K, field_manager: &str) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    let params = PatchParams::apply(field_manager).force();
    Api::all(client).patch(&configuration.name_any(), &params, &Patch::Apply(configuration)).await
}
