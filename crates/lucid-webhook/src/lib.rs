//! A server for Kubernetes admission and conversion webhooks, built on [tower], hyper and rustls.
//!
//! It responds as kube-apiserver expects, also when something fails. Every AdmissionReview that parses gets HTTP 200
//! and its uid back, whether the handler succeeds, fails, panics or times out. Patches are applied to the object before
//! they are sent. Warnings and audit annotations are adjusted to the limits of the API server.
//!
//! # A first webhook
//!
//! ```toml
//! [dependencies]
//! lucid-webhook = { version = "0.1", features = ["operator"] }
//! # Requires a Kubernetes version, which libraries leave to programs.
//! k8s-openapi = { version = "0.29", features = ["v1_36"] }
//! # The default features of kube add ring, a second cryptographic library.
//! kube = { version = "5", default-features = false, features = ["client", "rustls-tls", "aws-lc-rs"] }
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::Pod;
//! use lucid_webhook::operator::Operator;
//! use lucid_webhook::{BoxError, Changed, Object, Operation, Router, Webhook, shutdown_signal};
//!
//! async fn label(Object(mut pod): Object<Pod>) -> Changed<Pod> {
//!     pod.metadata.labels.get_or_insert_default().insert("seen".into(), "true".into());
//!     Changed::new(pod)
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), BoxError> {
//!     let webhook = Webhook::defaulting("label.example.com", [Operation::Create], label);
//!     let router = Router::new().webhook("/label", webhook);
//!     let client = kube::Client::try_default().await?;
//!     Operator::new("label", "label-system", router).run(client, shutdown_signal()?).await
//! }
//! ```
//!
//! `cargo generate --git https://github.com/lucid/lucid template` writes a project with defaulting, validation, conversion,
//! manifests and tests.
//!
//! [`operator::Operator`] serves the webhook by a certificate authority of its own and registers it. Without the
//! feature, connect a [`Server`] and [certificates](#certificates). The crate's `examples` folder has complete
//! programs, with the commands that create and register certificates.
//!
//! # Behavior of the API server
//!
//! | kube-apiserver | this crate |
//! |---|---|
//! | sends its timeout in `?timeout=`, rounded up and including the time to connect | [`AdmissionRequest::deadline`] is 1.2 s earlier, or half of a short timeout; a handler that misses it counts as failed |
//! | keeps idle connections for 90 s and does not retry a POST | idle connections are kept for 120 s; during shutdown the server keeps accepting requests and asks clients to disconnect ([`Server::with_lame_duck`]) |
//! | retries a call that was answered with 429 and `Retry-After` | overload is answered that way ([`Webhook::with_max_in_flight`], memory for bodies) |
//! | rejects responses with a wrong uid, with an empty patch, or with a patch from a validating webhook | responses are checked before they are sent; a violation is a failure of the handler |
//! | rejects the user's request when a patch does not apply, regardless of the failurePolicy | patches are applied here first |
//! | raises the code of a denial below 400 to 400, and says "without explanation" if there is neither message nor reason | [`AdmissionResponse::deny`] requires a code, a reason and a message |
//! | drops warnings with control characters, and truncates all of them above 4,096 characters in total | warnings are shortened to fit; dropped ones are counted in a last warning and in the metrics |
//! | drops audit annotations whose key is not a valid name | they are logged and counted |
//! | calls mutating webhooks again when a later one changes the object (`IfNeeded`) | so does `lucid-webhook-test`, which has `assert_idempotent` |
//!
//! # Handlers
//!
//! A [`Handler`] is an async function. Its arguments are extracted from the request: [`Object`] and [`OldObject`] of
//! any type that can be deserialized, `Option`s of these, the [`RawObject`], [`UserInfo`], [`Operation`], the shared
//! [`State`], the whole [`AdmissionRequest`] (with deadline, options and `dry_run`), and types that
//! implement [`FromRequest`]. It returns an [`AdmissionResponse`], a [`JsonPatch`], the changed object ([`Changed`]),
//! [`FieldErrors`], or a `Result` of one of them. Any [`tower::Service`] from request to response is a handler as well.
//!
//! Webhooks for objects of one type state it once: [`Webhook::defaulting`] takes a handler that changes the object, and
//! [`Webhook::validator`] a [`Validator`], with a method for each operation. The rule of the registration derives from
//! the type. [`Webhook::mutating`] and [`Webhook::validating`] are for handlers of anything else.
//!
//! Objects stay JSON text inside the request's body until a handler decodes them. Only the fields of the target type
//! are decoded. Types may borrow from the text:
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
//!     let pod: Pod<'_> = object.decode()?;
//!     Ok(match pod.spec.node_name {
//!         Some(node) => AdmissionResponse::deny(422, "Invalid", format!("spec.nodeName is {node}: it has to be empty")),
//!         None => AdmissionResponse::allow(),
//!     })
//! }
//! ```
//!
//! # Field errors
//!
//! [`FieldErrors`] deny an object as the API server denies invalid objects of built-in types. kubectl prints them in
//! the same way: `The Deployment "web" is invalid: spec.replicas: Invalid value: 9: must be at most 3`. Denials because
//! an object does not decode have the path of the field as their cause.
//!
//! # Patches
//!
//! [`Changed`] and [`JsonPatch::of_change`] compare the object returned by the handler with the original. Fields
//! unknown to its type are kept. List elements are matched by their keys, so inserting a container is a single `add`.
//! [`JsonPatch::from_operations`] takes RFC 6902 operations.
//!
//! # Failure
//!
//! If a handler returns an error, panics or misses the deadline, its [`FailureAction`] applies: refuse the request with
//! the reason, allow it with a warning, allow it silently, or call a function ([`Webhook::with_failure_action`]). The
//! `failurePolicy` of the registration covers a different case: the API server cannot reach the webhook.
//!
//! # Permissions
//!
//! A [`guard`] restricts a webhook to objects that are selected, that consent, and that a service account may change.
//! [`AllowedPaths`] restricts its patches to some fields. `kube-system` is excluded unless it is named explicitly.
//! [`guard::Permissions`] is the corresponding configuration for cluster administrators.
//!
//! # Certificates
//!
//! The serving certificate needs the DNS name `<service>.<namespace>.svc`, and the caBundle of the registration needs
//! the CA that signed it. The crate [lucid-certs](https://docs.rs/lucid-certs) provides both. Its `Certificates` serve the certificate of a source,
//! and pick up renewals without closing connections:
//!
//! - `source::FileSource` (feature `files`): with cert-manager, mount the Secret of a `Certificate` and annotate the
//!   configurations with `cert-manager.io/inject-ca-from` ([`registration::Configurations::with_annotation`]).
//!   `source::SecretSource` needs no volume.
//! - `SelfManaged`: a CA owned by the webhook and shared by all replicas. It is published to the registration and
//!   rotated.
//!
//! ```
//! use lucid_certs::source::FileSource;
//! use lucid_certs::{Certificates, ServerTls, ServingNames};
//! use lucid_webhook::{BoxError, Router, Server, shutdown_signal};
//!
//! async fn run(router: Router) -> Result<(), BoxError> {
//!     let shutdown = shutdown_signal()?;
//!     let certificates = Certificates::new(ServingNames::for_services("default", &["label"])?);
//!     let tls = ServerTls::new(certificates.resolver()).build()?;
//!     tokio::spawn(certificates.run(FileSource::in_directory("/tls"), shutdown.clone()));
//!
//!     let server = Server::bind(([0, 0, 0, 0], 8443).into()).await?;
//!     server.serve(tls, router, shutdown).await;
//!     Ok(())
//! }
//! ```
//!
//! Handshakes fail until the first certificate is available, and the log states the reason. To make connections wait
//! instead, await `Certificates::first_certificate` before [`Server::serve`]. `Certificates::ready` can drive a
//! [`Condition`] of the [`Readiness`]. For a server registered by URL, use `ServingNames::for_hosts`.
//!
//! [`Server::serve`] also accepts any [`rustls::ServerConfig`], or a `watch::Receiver` of one ([`Tls`]). This crate
//! uses aws-lc-rs as its crypto provider.
//!
//! A configuration may request client certificates, which handlers receive as [`PeerCertificate`]. The API server
//! presents one only if it is configured to. `lucid-certs` builds such a configuration, with replaceable client CAs:
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
//!     // clients.replace(...) gracefully closes connections that were authenticated with the previous CAs.
//!     let tls = ServerTls::new(certificates.resolver()).with_clients(&clients).watch()?;
//!     server.serve(tls, router, std::future::pending()).await;
//!     Ok(())
//! }
//! ```
//!
//! # Registration
//!
//! A webhook includes its registration, i.e. the requests that it receives ([`Webhook::with_registration`]). From a
//! router, [`registration`] builds the `MutatingWebhookConfiguration` and the `ValidatingWebhookConfiguration`. A
//! handler that declares no side effects gets a client that only writes as a dry run (`Webhook::with_client`, feature
//! `client`).
//!
//! # kube and axum
//!
//! Async functions from `kube::core::admission::AdmissionRequest<T>` to kube's `AdmissionResponse` are handlers.
//! `TryFrom` converts between [`AdmissionRequest`] and kube's `AdmissionRequest<T>` and `AdmissionReview<T>`. A
//! [`Router`] is a service that axum can mount. Mount it as the fallback: below a prefix, the paths of the registration
//! would lack that prefix.
//!
//! ```
//! use kube::core::DynamicObject;
//! use kube::core::admission::{AdmissionRequest, AdmissionResponse};
//! use lucid_webhook::{Router, Webhook};
//!
//! async fn no_guests(request: AdmissionRequest<DynamicObject>) -> AdmissionResponse {
//!     let response = AdmissionResponse::from(&request);
//!     match request.user_info.username.as_deref() {
//!         Some("guest") => response.deny("no guests"),
//!         _ => response,
//!     }
//! }
//!
//! let webhooks = Router::new().webhook("/validate", Webhook::validating("guests.example.com", no_guests));
//! let app: axum::Router = axum::Router::new().fallback_service(webhooks);
//! ```
//!
//! # Conversion
//!
//! [`Converter`] converts the objects of a CustomResourceDefinition between its versions through one of them, the hub:
//!
//! ```
//! use lucid_webhook::{Converter, Router};
//! use serde_json::Value;
//!
//! /// Absent fields stay absent, and other fields are kept.
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
//! Versions may be types as well ([`Converter::hub`]). `build` checks that every version of the definition has a path.
//!
//! # Testing
//!
//! The crate `lucid-webhook-test` has builders of reviews, to test handlers without a server; a client that calls the
//! webhooks of a router as kube-apiserver does, by their registrations, and validates responses; and property tests
//! that a conversion is lossless.
//!
//! # Deployment
//!
//! - Run two replicas or more with a PodDisruptionBudget, and use `failurePolicy: Fail` only for objects that must not
//!   bypass the webhook.
//! - [`AdminServer`] serves `/healthz`, `/readyz` and `/metrics` on a separate port. Probes of the webhook port would
//!   show up as aborted TLS handshakes. [`Readiness`] holds the conditions. Pass it to [`Server::with_readiness`] as
//!   well: the API server keeps its connections to a replica that is no longer ready.
//! - On SIGTERM, complete the `shutdown` futures of [`Server::serve`] and of `Certificates::run`, and make readiness
//!   fail. A [`Condition`] that follows `Certificates::ready` becomes false when `run` ends. The server keeps accepting
//!   requests for 5 s, while the endpoint is removed, and waits up to 20 s for requests in flight. A
//!   `terminationGracePeriodSeconds` of 30 is sufficient. [`operator`] lists all steps of start and shutdown.
//! - Set `timeoutSeconds` to 5 to 10: it bounds the delay of every matching user request.
//! - [`Router::with_metrics`] counts requests by outcome. Alert on `errored`, `panicked`, `timed_out` and `shed`.
//! - Each request to a webhook runs in a span `admission` of level INFO and target `lucid_webhook::respond`, with
//!   fields `webhook`, `uid`, `group`, `version`, `kind`, `namespace`, `name`, `operation`, `dry_run` and `outcome`,
//!   and `trace_id` and `parent_id` if the API server sent a `traceparent`.
//!
//! # Features
//!
//! None is enabled by default.
//! - `client`: clients for handlers, and for SubjectAccessReviews of [permissions](guard).
//! - `operator`: [`operator::Registration`], which heals, and [`operator::Operator`], a whole program; adds
//!   `lucid-certs`.
//! - `opentelemetry`: spans continue the API server's trace for `tracing-opentelemetry`.
//!
//! k8s-openapi requires a Kubernetes version: the program enables one of its features, such as `v1_36`.
//!
//! # HTTP
//!
//! | request | response |
//! |---|---|
//! | empty body, not an AdmissionReview, no `request`, no uid | 400 |
//! | no client certificate although [`Router::with_client_certificates`] requires one | 403 |
//! | Content-Type other than `application/json` | 415 |
//! | body above the limit ([`Router::with_body_limit`], 7 MiB; [`Router::with_conversion_limit`], 64 MiB) | 413, after the rest of the body was read, up to a limit |
//! | bodies and responses in memory above 96 MiB, or 256 MiB for conversions; more requests than [`Webhook::with_max_in_flight`] | 429 with `Retry-After: 1`, which the API server honors |
//! | body that stalls for 5 s, or takes longer than 20 s (30 s for a conversion) | 408 |
//! | headers above 16 KiB | 431 |
//! | any request within three seconds after readiness was lost (`Server::with_readiness`) | 503 with `Retry-After` |
//! | method other than POST, unknown path | 405, 404 |
//! | an AdmissionReview or ConversionReview | 200 with a review that echoes the uid |
//!
//! Responses other than 200 and 431 are a `v1` `Status`, whose message kube-apiserver shows to the user.
//!
//! A request passes through `server` → `router` → `exchange` (→ `body`, `review`) → `respond` (→ `guard`, the handler,
//! `check`) → `reply`.
//!
//! # Stability
//!
//! Public items follow [Semantic Versioning](https://github.com/lucid/lucid/blob/main/docs/embedding.md#what-stays-and-what-may-change). All
//! crates of Lucid have one version.

mod admin;
mod bearer;
mod body;
mod budget;
mod check;
#[cfg(feature = "client")]
pub mod client;
mod conversion;
mod deadline;
mod exchange;
mod failure;
mod field_errors;
pub mod guard;
mod handler;
mod kind;
mod kube_admission;
mod metrics;
mod offload;
#[cfg(feature = "operator")]
pub mod operator;
mod patch;
mod peer_certificate;
mod raw_object;
mod readiness;
pub mod registration;
mod reply;
mod respond;
mod response;
mod review;
mod route;
mod router;
mod server;
mod shutdown;
mod trace_parent;
mod webhook;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use admin::AdminServer;
pub use bearer::TokenFile;
pub use conversion::{ConversionError, ConversionFn, Converted, Converter, ConverterBuilder, ConverterError};
pub use failure::{Failure, FailureAction};
pub use field_errors::{FieldErrors, FieldPath};
pub use handler::{
    Changed, FromRequest, Handler, IntoResponse, Object, ObjectHandler, OldObject, Rejection, ServiceArgs,
    State, Validator, WithState,
};
pub use kind::WebhookKind;
pub use patch::{AllowedPaths, JsonPatch, PatchError};
pub use peer_certificate::PeerCertificate;
pub use raw_object::{DecodeError, RawObject};
pub use readiness::{Condition, Readiness};
pub use response::AdmissionResponse;
pub use review::{AdmissionRequest, Operation, ReviewError, UserInfo};
pub use router::Router;
pub use server::{RequestBody, Server, Tls};
pub use shutdown::shutdown_signal;
pub use tower::BoxError;
pub use webhook::Webhook;
