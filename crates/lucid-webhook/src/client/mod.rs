//! Clients of the cluster for handlers.
//!
//! [`ClusterClient`] is the argument of a handler of a webhook built with
//! [`Webhook::with_client`](crate::Webhook::with_client).

pub(crate) mod access_review;
mod dry_run;

use std::fmt;
use std::sync::{Arc, OnceLock};

use kube::Client;

use crate::handler::{FromRequest, Rejection};
use crate::review::AdmissionRequest;
use dry_run::dry_run;

/// Argument of handlers: the client given by [`Webhook::with_client`](crate::Webhook::with_client).
///
/// ```
/// use k8s_openapi::api::core::v1::Namespace;
/// use kube::Api;
/// use lucid_webhook::client::ClusterClient;
/// use lucid_webhook::{AdmissionRequest, AdmissionResponse, Webhook};
///
/// async fn namespace_is_there(
///     request: AdmissionRequest,
///     ClusterClient(client): ClusterClient,
/// ) -> Result<AdmissionResponse, kube::Error> {
///     let namespaces = Api::<Namespace>::all(client);
///     Ok(match namespaces.get_opt(request.namespace.as_deref().unwrap_or_default()).await? {
///         Some(_) => AdmissionResponse::allow(),
///         None => AdmissionResponse::deny(404, "NotFound", "there is no such namespace"),
///     })
/// }
///
/// # fn example(client: kube::Client) {
/// let webhook = Webhook::validating("namespace.example.com", namespace_is_there).with_client(client);
/// # }
/// ```
#[derive(Clone)]
pub struct ClusterClient(pub Client);

impl<S> FromRequest<S> for ClusterClient {
    fn from_request(request: &Arc<AdmissionRequest>, _: &S) -> Result<Self, Rejection> {
        let message = || "the handler takes a client, but the webhook has none".to_owned();
        request.extensions.get().cloned().ok_or_else(|| Rejection::Other { message: message() })
    }
}

impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterClient").finish_non_exhaustive()
    }
}

pub(crate) struct Clients {
    writing: Client,
    /// Writes as a dry run. Created by the first call, because a client can only be created in a tokio runtime.
    dry_run: OnceLock<Client>,
}

impl Clients {
    pub(crate) const fn new(client: Client) -> Self {
        Self { writing: client, dry_run: OnceLock::new() }
    }

    pub(crate) fn of(&self, may_write: bool) -> Client {
        let dry_run = || self.dry_run.get_or_init(|| dry_run(&self.writing));
        if may_write { &self.writing } else { dry_run() }.clone()
    }
}
