//! A kit for testing webhooks: reviews as kube-apiserver makes them, and a client that behaves like it.
//!
//! - [`Review`] builds an AdmissionReview. [`Review::into_request`] gives a handler's argument, so that a handler can be
//!   tested without a server.
//! - [`ApiServer`] calls webhooks, in process or over TLS, and does with the answer what kube-apiserver does:
//!   [`Outcome`] says what its user would get.
//! - [`round_trip`] tests that a conversion loses nothing, with objects that [`schema`] makes up from the resource's
//!   definition.
//!
//! ```
//! use lucid_webhook::testing::{ApiServer, Review};
//! use lucid_webhook::{AdmissionResponse, Router, Webhook};
//! use serde_json::json;
//!
//! async fn nobody() -> AdmissionResponse {
//!     AdmissionResponse::deny(403, "Forbidden", "not here")
//! }
//!
//! # async fn test() {
//! let router = Router::new().webhook("/validate", Webhook::validating("pods.example.com", nobody));
//! let webhook = ApiServer::in_process(router).validating("pods.example.com", "/validate");
//! let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}});
//! let rejection = webhook.review(&Review::create(&pod)).await.expect_rejected();
//! assert_eq!(rejection.code, 403);
//! assert_eq!(rejection.message, r#"admission webhook "pods.example.com" denied the request: not here"#);
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(test());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # How near to kube-apiserver
//!
//! The checks, their order, the retries and the texts follow the sources of kube-apiserver 1.37
//! (`apiserver/pkg/admission/plugin/webhook`, `client-go/rest`, `apiextensions-apiserver/pkg/apiserver/conversion`).
//! These differ:
//!
//! - Texts that come from Go's libraries, such as what is wrong with JSON or with a connection, are Rust's here.
//! - It knows no schemas: no defaults are set in objects, and a patched object has to be an object of the same
//!   `apiVersion` and `kind`, with `metadata` that are an object, but is not decoded further. [`Outcome::expect_object`] decodes it into a type.
//! - Reviews are of `admission.k8s.io/v1` and `apiextensions.k8s.io/v1`, not of `v1beta1`.
//! - It asks for no compression, and HTTP/2 is not offered, as for webhooks that are Services.
//! - A redirect is a failed call. The API server's client follows those that keep method and body (307, 308).
//! - An answer has to be JSON. The API server would read YAML as well.

mod api_server;
mod call;
mod checks;
mod conversion;
mod decode;
mod difference;
mod https;
mod outcome;
mod patch;
mod recorded;
mod resource;
mod review;
pub mod round_trip;
pub mod schema;

use std::sync::atomic::{AtomicU64, Ordering};

pub use api_server::{ApiServer, RegisteredWebhook};
pub use conversion::{ConversionFailed, ConversionWebhook};
pub use https::SetupError;
pub use outcome::{Cause, Dropped, Outcome, RejectedBy, Rejection};
pub use review::Review;

pub use crate::registration::FailurePolicy;

/// A uid that this process has not used yet, in the form of a UUID.
fn new_uid() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("00000000-0000-4000-8000-{:012x}", NEXT.fetch_add(1, Ordering::Relaxed))
}
