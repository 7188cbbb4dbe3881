//! A server for Kubernetes admission and conversion webhooks, on [tower], hyper and rustls.
//!
//! It answers as kube-apiserver expects, also when something goes wrong: every AdmissionReview that parses gets
//! HTTP 200 and its uid back, whether the handler answers, fails, panics or takes too long; a patch that would not
//! apply never leaves; warnings and audit annotations are made acceptable before they are sent.
//!
//! # A first webhook
//!
//! ```
//! use futures::FutureExt;
//! use k8s_openapi::api::core::v1::Pod;
//! use lucid_certs::source::Files;
//! use lucid_certs::{Certificates, ServerTls, ServingNames};
//! use lucid_webhook::{BoxError, Changed, Object, Router, Server, Webhook};
//! use tokio::signal::unix::{SignalKind, signal};
//!
//! async fn label(Object(mut pod): Object<Pod>) -> Changed<Pod> {
//!     pod.metadata.labels.get_or_insert_default().insert("seen".into(), "true".into());
//!     Changed(pod)
//! }
//!
//! async fn run() -> Result<(), BoxError> {
//!     let mut terminate = signal(SignalKind::terminate())?;
//!     let asked_to_end = async move { terminate.recv().await.unwrap_or_default() }.shared();
//!     let certificates = Certificates::new(ServingNames::for_services("default", &["label"])?);
//!     let tls = ServerTls::new(certificates.resolver()).build()?;
//!     tokio::spawn(certificates.run(Files::in_directory("/tls"), asked_to_end.clone()));
//!
//!     let server = Server::bind(([0, 0, 0, 0], 8443).into()).await?;
//!     let router = Router::new().webhook("/label", Webhook::mutating("label.example.com", label));
//!     server.serve(tls, router, asked_to_end).await;
//!     Ok(())
//! }
//! ```
//!
//! Complete programs, with the commands that make certificates and register them, are in the crate's `examples` folder.
//!
//! # What the API server does
//!
//! A webhook is a function in somebody else's request, and that somebody is strict. What this crate does follows from it:
//!
//! | kube-apiserver | this crate |
//! |---|---|
//! | says how long it waits in `?timeout=`, rounded up, dialling included | [`AdmissionRequest::deadline`] is 1.2 s earlier, or half of a short time; a handler that misses it is answered for |
//! | keeps idle connections for 90 s and does not repeat a POST | idle connections are kept for 120 s; on shutdown the server goes on for a while and asks clients to leave ([`Server::with_lame_duck`]) |
//! | repeats a call that was answered 429 with `Retry-After` | load is shed that way ([`Webhook::with_max_in_flight`], [`layers::ShedLayer`]), bodies beyond the memory for them too |
//! | refuses answers with another uid, with an empty patch, with a patch from a validating webhook | checked, and a failure of the handler, before anything is sent |
//! | rejects the user's request when a patch does not apply, whatever the failurePolicy | the patch is applied here first |
//! | turns the code of a denial below 400 into 400, says "without explanation" where there is neither message nor reason | [`AdmissionResponse::deny`] asks for code, reason and message |
//! | drops a warning with a control character, cuts all of them above 4,096 characters | they are cut to fit; what does not fit is counted in a last warning, and in the metrics |
//! | drops audit annotations whose key is no name | logged and counted |
//! | calls mutating webhooks twice when a later one changes the object (`IfNeeded`) | feature `testing` has `assert_idempotent` |
//!
//! # Handlers
//!
//! A [`Handler`] is an async function. Its arguments are taken out of the request: [`Object`], [`OldObject`] and
//! [`Options`] of any type that can be deserialised, `Option`s of these, the [`RawObject`], [`UserInfo`], [`Operation`],
//! [`Deadline`], [`DryRun`], the shared [`State`], the whole [`AdmissionRequest`], and types that implement
//! [`FromRequest`]. It returns an [`AdmissionResponse`], a [`JsonPatch`], the object as it should be ([`Changed`]), or a
//! `Result` of one of them. Any [`tower::Service`] from request to response is a handler as well.
//!
//! Objects stay JSON text inside the request's body until a handler decodes them, and only what its type has is decoded.
//! Types may borrow from that text:
//!
//! ```
//! use std::borrow::Cow;
//!
//! use lucid_webhook::{AdmissionResponse, DecodeError, RawObject};
//!
//! #[derive(serde::Deserialize)]
//! struct Pod<'a> {
//!     #[serde(borrow)]
//!     spec: Spec<'a>,
//! }
//! #[derive(serde::Deserialize)]
//! struct Spec<'a> {
//!     #[serde(borrow, rename = "nodeName")]
//!     node_name: Option<Cow<'a, str>>,
//! }
//!
//! async fn scheduler_decides(object: RawObject) -> Result<AdmissionResponse, DecodeError> {
//!     let pod: Pod<'_> = object.view()?;
//!     Ok(match pod.spec.node_name {
//!         Some(node) => AdmissionResponse::deny(422, "Invalid", format!("spec.nodeName is {node}: it has to be empty")),
//!         None => AdmissionResponse::allow(),
//!     })
//! }
//! ```
//!
//! # Patches
//!
//! [`Changed`] and [`JsonPatch::of_change`] compare what the handler made of the object with what it was given: fields
//! that its type does not know stay, list elements are recognised by their keys, and one container that is put before the
//! others is one `add`. [`JsonPatch::diff`] compares two values, [`JsonPatch::from_operations`] takes the operations of
//! RFC 6902.
//!
//! # Failure
//!
//! A handler that returns an error, panics or misses the deadline is answered for by a [`FailureAction`]: the request is
//! refused with the reason ([`Webhook::with_failure_action`]), passes with a warning, passes, or a function answers. The
//! `failurePolicy` of the registration is about something else, a webhook that cannot be asked.
//!
//! # Permissions
//!
//! A webhook can damage what it should never have touched. A [`guard`] keeps it to the objects that are selected, that
//! consent, and that a service account may change; [`AllowedPaths`] keeps its patches to some fields. `kube-system` is
//! excluded unless named. [`guard::Permissions`] is all of that as configuration for the cluster's administrator.
//!
//! # Certificates
//!
//! The certificate has to be for `<service>.<namespace>.svc`, and the authority that signed it is the caBundle of the
//! registration. The crate `lucid-certs` sees to both. Its `Certificates` serve what a source has, and follow its renewal while
//! connections stand:
//!
//! - `source::Files`, as above: with cert-manager, mount the Secret of a `Certificate` and annotate the configurations with
//!   `cert-manager.io/inject-ca-from` ([`registration::Configurations::with_annotation`]). `source::SecretSource` needs no volume.
//! - `SelfManaged`: an authority of the webhook's own, which all replicas share, published to the registration and rotated.
//!
//! Handshakes fail until there is a first certificate, and the log says why there is none: await
//! `Certificates::first_certificate` before [`Server::serve`] to let connections wait instead. `Certificates::ready` is for a
//! [`Condition`] of the [`Readiness`]. A server that is registered by URL has `ServingNames::for_hosts`.
//!
//! [`Server::serve`] takes any [`rustls::ServerConfig`] as well, or a `watch::Receiver` of one that changes ([`Tls`]);
//! the crypto provider of this crate is aws-lc-rs.
//!
//! A configuration may ask callers for certificates, which handlers see as [`PeerCertificate`]; the API server only has one
//! when it was configured to. `lucid-certs` makes such a configuration, with client CAs that can be replaced:
//!
//! ```
//! use std::error::Error;
//!
//! use lucid_certs::{Certificates, ClientCertificates, ServerTls};
//! use lucid_webhook::{Router, Server};
//!
//! async fn run(server: Server, router: Router, certificates: &Certificates) -> Result<(), Box<dyn Error>> {
//!     let clients = ClientCertificates::required(&tokio::fs::read("/client-ca/ca.crt").await?)?
//!         .with_allowed_names(["kube-apiserver"]);
//!     // With each clients.replace(...), connections of the former CAs are asked to end.
//!     let tls = ServerTls::new(certificates.resolver()).with_clients(&clients).watch()?;
//!     server.serve(tls, router, std::future::pending()).await;
//!     Ok(())
//! }
//! ```
//!
//! # Registration
//!
//! What a webhook is called for is part of it ([`Webhook::with_registration`]), and [`registration`] makes the
//! `MutatingWebhookConfiguration` and the `ValidatingWebhookConfiguration` of a router. A handler that claims to have no
//! side effects gets a client that only ever writes as a dry run (`Webhook::with_client`, feature `client`).
//!
//! # Conversion
//!
//! [`Converter`] converts the objects of a CustomResourceDefinition between its versions, by way of one of them, the hub:
//!
//! ```
//! use lucid_webhook::{Converter, Router};
//! use serde_json::Value;
//!
//! /// What is absent stays so, and other fields stay as they are.
//! fn renamed(mut object: Value, from: &str, to: &str) -> Value {
//!     if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
//!         && let Some(value) = spec.remove(from)
//!     {
//!         spec.insert(to.to_owned(), value);
//!     }
//!     object
//! }
//! let up = |v1: Value| renamed(v1, "size", "replicas");
//! let down = |v2: Value| renamed(v2, "replicas", "size");
//!
//! let converter = Converter::dynamic("example.com", "Thing", "v2").spoke_dynamic("v1", up, down).build_for(["v1", "v2"])?;
//! let router = Router::new().convert("/convert", converter);
//! # Ok::<(), lucid_webhook::ConverterError>(())
//! ```
//!
//! Versions may be types as well ([`Converter::hub`]), and `build` checks that every version of the definition has a path.
//!
//! # Testing
//!
//! The feature `testing` has builders of reviews, for handlers without a server; a client that calls a router, or a server
//! over TLS, as kube-apiserver does and rejects what it rejects; and property tests that a conversion loses nothing.
//!
//! # Deployment
//!
//! - Two replicas or more, a PodDisruptionBudget, and `failurePolicy: Fail` only for what must not pass unseen.
//! - [`AdminServer`] serves `/healthz`, `/readyz` and `/metrics` on a port of their own: probes of the webhook's port would
//!   be TLS handshakes that end early. [`Readiness`] holds what has to be there first. Pass it to
//!   [`Server::with_readiness`] as well: the API server keeps its connections to a replica that is not ready any more.
//! - On SIGTERM, complete the `shutdown` futures of [`Server::serve`] and of `Certificates::run`, and make readiness fail; a
//!   [`Condition`] that follows `Certificates::ready` does so when `run` ends. The server goes on for 5 s, while the endpoint
//!   is removed, and waits up to 20 s for what is in flight: `terminationGracePeriodSeconds` of 30 will do.
//! - `timeoutSeconds` of 5 to 10: the user waits as long for every request.
//! - [`Metrics`] count by outcome; alert on `errored`, `panicked`, `timed_out` and `shed`.
//! - Spans (see [`layers::TraceLayer`]) carry uid, kind, namespace, name, operation, dry-run and outcome.
//!
//! # Features
//!
//! None is on by default.
//! - `client`: clients for handlers, reviews of service accounts' rights by the cluster, registration by server-side apply.
//! - `testing`: see above.
//! - `opentelemetry`: spans continue the API server's trace for `tracing-opentelemetry`.
//!
//! k8s-openapi has to be told for which version of Kubernetes: a program enables one of its features, such as `v1_36`.
//!
//! # HTTP
//!
//! | request | answer |
//! |---|---|
//! | empty body, no AdmissionReview, no `request`, no uid | 400 |
//! | Content-Type other than `application/json` | 415 |
//! | body above the limit ([`Router::with_body_limit`], 7 MiB; [`Router::with_conversion_limit`], 64 MiB) | 413, after the body was read, if that is not too much |
//! | more in bodies and their answers at once than 96 MiB, of conversions than 256 MiB; more requests than [`Webhook::with_max_in_flight`] | 429 with `Retry-After: 1`, which the API server heeds |
//! | body that stands still for 5 s, or takes more than 20 s, 30 s for a conversion | 408 |
//! | head above 64 KiB | 431 |
//! | method other than POST, unknown path | 405, 404 |
//! | an AdmissionReview or ConversionReview | 200 with one that echoes the uid |
//!
//! All but 431 and 200 are a `Status` of `v1`, whose message kube-apiserver shows to its user.
//!
//! The way of a request through the code: `server` → `router` → `exchange` (→ `body`, `review`) → the `layers` around the
//! handler → `answer`.

mod admin;
mod answer;
mod body;
mod budget;
#[cfg(feature = "client")]
pub mod client;
mod conversion;
mod excerpt;
mod exchange;
mod failure;
pub mod guard;
mod handler;
mod json;
mod kind;
pub mod layers;
mod metrics;
mod names;
mod offload;
mod patch;
pub mod registration;
mod reply;
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
    Options, Rejection, ServiceArgs, State, WithState,
};
pub use kind::WebhookKind;
pub use metrics::{Metrics, WebhookMetrics};
pub use patch::{
    AllowedPath, AllowedPaths, ApplyError, ChangeError, ForbiddenPath, InvalidAllowedPath, InvalidPatch,
    JsonPatch,
};
pub use response::{AdmissionResponse, Cause, Denial};
pub use review::{
    AdmissionRequest, DecodeError, GroupVersionKind, GroupVersionResource, Operation, RawObject, ReviewError,
    UserInfo,
};
pub use router::{BoxError, Router};
pub use server::{BindError, PeerCertificate, RequestBody, Server, Tls};
pub use side_effects::SideEffects;
pub use trace_parent::TraceParent;
pub use webhook::Webhook;
