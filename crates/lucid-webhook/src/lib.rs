//! A server for Kubernetes admission webhooks, on [tower], hyper and rustls.
//!
//! It answers as kube-apiserver expects, also when something goes wrong: every AdmissionReview that parses gets
//! HTTP 200 and its uid back, whether the handler answers, fails, panics or takes too long; a patch that would not
//! apply never leaves; warnings and audit annotations are made acceptable before they are sent.
//!
//! # A first webhook
//!
//! ```
//! use std::sync::Arc;
//!
//! use lucid_webhook::{Changed, Object, Router, Server, Webhook};
//! use k8s_openapi::api::core::v1::Pod;
//!
//! async fn label(Object(mut pod): Object<Pod>) -> Changed<Pod> {
//!     pod.metadata.labels.get_or_insert_default().insert("seen".into(), "true".into());
//!     Changed(pod)
//! }
//!
//! async fn run(tls: Arc<rustls::ServerConfig>) -> Result<(), lucid_webhook::BindError> {
//!     let server = Server::bind(([0, 0, 0, 0], 8443).into()).await?;
//!     let router = Router::new().webhook("/label", Webhook::mutating("label.example.com", label));
//!     server.serve(tls, router, std::future::pending()).await;
//!     Ok(())
//! }
//! ```
//!
//! # What the API server does, and what follows
//!
//! - Its `?timeout=` is rounded up and includes dialling: [`AdmissionRequest::deadline`] is earlier, and a handler that
//!   misses it is answered for.
//! - It keeps idle connections for 90 s and does not repeat a POST: this server never closes an idle connection first,
//!   and on shutdown goes on serving for a while ([`Server::with_lame_duck`]).
//! - It refuses an answer with another uid, an empty patch, a patch from a validating webhook; and it rejects the
//!   user's request, whatever the failurePolicy, when a patch does not apply. All of that is checked here first.
//!
//! # HTTP
//!
//! | request | answer |
//! |---|---|
//! | empty body, no AdmissionReview, no `request`, no uid | 400 |
//! | Content-Type other than `application/json` | 415 |
//! | body above the limit ([`Router::with_body_limit`], 7 MiB) | 413, after the body was read |
//! | more in bodies at once than 96 MiB | 429 with `Retry-After: 1`, which the API server heeds |
//! | method other than POST, unknown path | 405, 404 |
//! | an AdmissionReview | 200 with an AdmissionReview that echoes the uid |
//!
//! The way of a request through the code: `server` → `router` → `exchange` (→ `body`, `review`) → handler → `answer`.

mod admin;
mod answer;
mod body;
#[cfg(feature = "client")]
pub mod client;
mod conversion;
mod exchange;
mod failure;
pub mod guard;
mod handler;
mod kind;
pub mod layers;
mod metrics;
mod patch;
pub mod registration;
mod response;
mod review;
mod router;
mod server;
mod side_effects;
#[cfg(feature = "testing")]
pub mod testing;
mod trace_parent;
mod webhook;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use admin::{AdminServer, Condition, Readiness};
pub use conversion::{
    ConversionAnswer, ConversionError, ConversionFn, ConversionOutcome, ConversionReviewError, Converted,
    Converter, ConverterBuilder, ConverterError,
};
pub use failure::{Failure, FailureAction, FailureFunction, UnknownFailureAction};
pub use handler::{
    Changed, Deadline, DryRun, FromRequest, Handler, HandlerService, IntoResponse, Object, OldObject,
    Options, Rejection, ServiceArgs, State,
};
pub use kind::WebhookKind;
pub use metrics::{Metrics, WebhookMetrics};
pub use patch::{
    AllowedPath, AllowedPaths, ApplyError, ChangeError, ForbiddenPath, InvalidAllowedPath, InvalidPatch,
    JsonPatch,
};
pub use response::AdmissionResponse;
pub use review::{
    AdmissionRequest, DecodeError, GroupVersionKind, GroupVersionResource, Operation, RawObject, ReviewError,
    UserInfo,
};
pub use router::{BoxError, Router};
pub use server::{BindError, ClientCertificates, ClientCertificatesError, PeerCertificate, Server, Tls};
pub use side_effects::SideEffects;
pub use trace_parent::TraceParent;
pub use webhook::Webhook;
