//! Clients of the cluster for handlers, and access reviews for the guard.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use lucid_webhook::client::{Clients, SubjectAccessReviews};
//! use lucid_webhook::guard::CachedAccessReview;
//! use lucid_webhook::{AdmissionRequest, SideEffects};
//!
//! # async fn example(request: AdmissionRequest) -> Result<(), kube::Error> {
//! let client = kube::Client::try_default().await?;
//! let review = CachedAccessReview::new(SubjectAccessReviews::new(client.clone()));
//! let clients = Clients::new(client);
//!
//! // As `Webhook::with_client` does for a handler that promises no side effects in a dry run:
//! let client = clients.for_request(SideEffects::NoneOnDryRun, request.dry_run);
//! # Ok(())
//! # }
//! ```

mod access_review;
mod apply;
mod dry_run;

use std::fmt;

use kube::Client;

use crate::handler::{FromRequest, Rejection};
use crate::review::AdmissionRequest;
use crate::side_effects::SideEffects;

pub use access_review::SubjectAccessReviews;
pub use apply::{WebhookConfiguration, apply};
pub use dry_run::{DryRunError, dry_run};

/// A client, and a variant that only writes as a dry run.
///
/// The side effects declared by the handler select between them: one that declares [`SideEffects::None`] cannot write
/// by mistake.
#[derive(Clone)]
pub struct Clients {
    real: Client,
    dry_run: Client,
}

impl Clients {
    /// Creates both from a regular client. Call it inside a tokio runtime, like kube's clients.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { dry_run: dry_run(&client), real: client }
    }

    /// Returns the client for a handler with these side effects, for a request that is or is not a dry run.
    #[must_use]
    pub fn for_request(&self, side_effects: SideEffects, dry_run: bool) -> Client {
        if side_effects.may_write(dry_run) { self.real.clone() } else { self.dry_run.clone() }
    }
}

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
    fn from_request(request: &AdmissionRequest, _: &S) -> Result<Self, Rejection> {
        let message = || "the handler takes a client, but the webhook has none".to_owned();
        request.extensions.get().cloned().ok_or_else(|| Rejection::Other { message: message() })
    }
}

impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterClient").finish_non_exhaustive()
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}
