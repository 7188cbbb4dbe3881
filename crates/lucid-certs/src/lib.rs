//! Serving certificates and trust bundles for Kubernetes webhooks, rotated without failed calls.
//!
//! An API server calls an admission or conversion webhook over TLS and verifies the server's certificate
//! against the `caBundle` of the webhook registration. A webhook server therefore has to keep two things
//! current: the certificate it serves and the bundle its callers trust. They live in different places and
//! cannot change atomically. Changing them in the wrong order fails calls, and with `failurePolicy: Fail`
//! every failed call is a pod that is not created.
//!
//! This crate manages both inside the server, for any number of replicas and without leader election. The
//! certificate source is configurable: a CA that the replicas manage themselves, cert-manager, OpenShift's
//! service CA, OLM, or files created with openssl.
//!
//! # Example
//!
//! A server with a self-managed CA, which its replicas share in a Secret. The trust bundle is published to
//! the ValidatingWebhookConfiguration `my-webhook`:
//!
//! ```no_run
//! # #[cfg(feature = "kube")]
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use lucid_certs::target::ObjectTarget;
//! use lucid_certs::{Certificates, ServerTls, ServingNames};
//! use tokio::signal::unix::{SignalKind, signal};
//!
//! let client = kube::Client::try_default().await?;
//! let names = ServingNames::for_services("my-system", &["my-webhook"])?;
//!
//! let target = ObjectTarget::validating_webhooks(client.clone(), "my-certs", "my-webhook");
//! let certificates = Certificates::new(names).with_targets([target]);
//!
//! let tls = ServerTls::new(certificates.resolver()).build()?; // for lucid-webhook, tokio-rustls, anything on rustls
//! let ready = certificates.ready(); // for the readiness probe
//!
//! let authority = certificates.self_managed(client, "my-system", "my-webhook-ca")?;
//! let mut terminate = signal(SignalKind::terminate())?; // stops all writes
//! tokio::spawn(certificates.run(authority, async move { drop(terminate.recv().await) }));
//! # drop((tls, ready));
//! # Ok(())
//! # }
//! ```
//!
//! The [examples](https://github.com/lucid/lucid/tree/main/crates/lucid-certs/examples) are servers on axum-server,
//! hyper and tonic.
//!
//! The other sources are drop-in replacements: [`source::FileSource`] for a mounted volume and
//! [`source::SecretSource`] for a Secret that is not mounted. [`FileSource::in_directory`](source::FileSource::in_directory)
//! and [`SecretSource::new`](source::SecretSource::new) read the keys of cert-manager and OpenShift.
//!
//! # Components
//!
//! - A [source](source::CertificateSource) provides the certificate to serve and the bundle to trust.
//! - A [target](target::TrustTarget) is an object from which callers read the trust bundle: the `caBundle`
//!   fields of MutatingWebhookConfigurations, ValidatingWebhookConfigurations, CustomResourceDefinitions with
//!   conversion webhooks and APIServices, `ca.crt` of a ConfigMap, or a ClusterTrustBundle.
//! - [`Certificates`] drives both. It writes the bundle to the targets, reads it back, and only then swaps
//!   the certificate that the [resolver](ServingCertificateResolver) serves. It also reverts drift in the
//!   targets, reports [readiness](Certificates::ready) and exports [metrics](Certificates::with_metrics).
//!
//! For objects of other operators, in clusters without cert-manager, the [`injector`] implements
//! cert-manager's CA injection annotations.
//!
//! # Rotation order
//!
//! An API server creates a new client as soon as its watch delivers a new `caBundle`, and verifies every
//! connection that it opens from then on. It does not close existing connections. A certificate issued by a
//! CA that is already in the bundle can therefore be swapped in at any time. A certificate issued by a new CA
//! can be swapped in only after the bundle contains both CAs. A rotation from CA A to CA B takes six steps:
//!
//! ```text
//!              Secret                targets      served   continues when
//! stable       signer A              {A}          A
//! 1 publish    signer A, next B      {A}          A        B is in the Secret
//! 2 trust      signer A, next B      {B, A}       A        every target was read back with B
//! 3 settle     signer A, next B      {B, A}       A        every target had B for a minute
//! 4 activate   signer B, before A    {B, A}       A, B     replicas switch one by one
//! 5 drain      signer B, before A    {B, A}       B        the last certificate of A has expired
//! 6 retire     signer B              {B}          B
//!
//!            publish, trust      activate                     retire
//! bundle   {A} ──┬─────────────── {B, A} ───────────────────────┬── {B} ──▶
//! served    A  ──┼─────────────────┬────────── B ───────────────┼─────────▶
//!                ├──── settle ─────┤├────────── drain ──────────┤
//! ```
//!
//! API servers do not acknowledge a bundle, hence step 3. The number of replicas is unknown, and a replica
//! that cannot reach the API server may still receive calls, hence step 5 waits until the last certificate
//! that A can have issued has expired.
//!
//! There is no leader. Each replica decides on its own which step is due; [`Timing`] holds the durations.
//! Each step is a single update of the Secret, conditional on the `resourceVersion` that was read: one
//! replica succeeds and the others continue from its result. All state is in the Secret and the targets, so a
//! replica can stop at any point.
//!
//! Two rules keep this safe with slow or stale replicas:
//!
//! - **A bundle write is conditional on the target's `resourceVersion`, and the Secret is read after the
//!   target.** If a replica stalls between the two reads and the write, the API server rejects the write.
//!   Without this rule it could remove B while other replicas serve under it.
//! - **A replica serves a certificate only after it has itself observed every target trusting the issuer for
//!   the duration of step 3**, measured by a monotonic clock. It does not matter which replica changed the
//!   Secret.
//!
//! A randomized simulation covers years of operation with crashes, clock jumps, stalled replicas and late
//! writes. It detects failed calls when either rule is broken.
//!
//! ## Emergencies
//!
//! - **The CA is lost** (the Secret was deleted or overwritten): a running replica restores it from memory.
//!   If no replica is running, no certificate is in service, and the next replica generates a new CA.
//!   Certificates already in the targets stay trusted for the duration of step 5.
//! - **The CA has expired**, and with it every certificate that it issued: a new CA signs immediately.
//! - **The CA is compromised** ([`RotationRequest::Urgent`]): steps 1 to 4 run as
//!   usual, then trust in all earlier CAs ends after twice the sum of the settle time and the check interval of [`Timing`], four minutes by
//!   default, about five in all. Calls to
//!   replicas that cannot reach the API server for that long fail.
//!
//! # Assumptions
//!
//! - API servers observe a change within the duration of step 3.
//! - Clocks differ by at most five minutes; certificates are backdated by one hour. A clock that jumps by
//!   hours renews expired certificates and never shortens a wait.
//! - Replicas that share a Secret serve the same names.
//! - Write access to the Secret or the targets is as sensitive as the webhook's traffic. For the minimal RBAC
//!   permissions see [`SelfManaged`] and the [targets](target::ObjectTarget).
//!
//! # Features
//!
//! | feature | default | enables |
//! |---|---|---|
//! | `files` | no | [`source::FileSource`] and [`source::watch_bundle`] |
//! | `kube` | yes | [`SelfManaged`], [`source::SecretSource`], the Kubernetes targets, the injector |
//!
//! Without `kube`, the crate does not depend on Kubernetes.
//!
//! All cryptography uses aws-lc-rs, passed to rustls explicitly: the crate neither uses nor installs a
//! process-wide crypto provider. Private keys never appear in errors, logs, events or `Debug` output. Keys
//! held by this crate, PEM text created from them and the signing state of aws-lc are zeroed when dropped.
//! Not zeroed are the caller's input bytes, base64 decoding buffers and kube's copy of a Secret.
//!
//! # Failure
//!
//! A source that fails is retried; its last certificate stays in service, the log states the reason once, and
//! [readiness](Certificates::ready) turns false when callers would reject the certificate. A target that cannot be written delays the
//! next certificate, never the current one. Errors of options are returned before anything is written.
//!
//! # Stability
//!
//! Public items follow [Semantic Versioning](https://github.com/lucid/lucid/blob/main/docs/embedding.md#what-stays-and-what-may-change). All
//! crates of Lucid have one version.

#![cfg_attr(
    not(all(feature = "files", feature = "kube")),
    allow(rustdoc::broken_intra_doc_links, reason = "the crate documentation covers all features")
)]

mod anchor;
mod bundle;
mod ca;
mod error;
mod fingerprint;
mod key;
mod last_problem;
mod names;
mod pem;
mod serving;
mod timing;
mod tls;
mod validity;

#[cfg(feature = "kube")]
pub mod injector;
mod metrics;
pub mod source;
pub mod target;

mod certificates;
#[cfg(feature = "kube")]
mod events;
#[cfg(feature = "kube")]
mod redacted;
#[cfg(feature = "kube")]
mod rotation;
#[cfg(feature = "kube")]
mod self_managed;
#[cfg(feature = "kube")]
mod watch;
mod x509;

pub use bundle::TrustBundle;
pub use ca::CertificateAuthority;
pub use error::Error;
pub use fingerprint::Fingerprint;
pub use names::ServingNames;
pub use pem::certificates_from_pem;
pub use serving::ServingCertificate;
pub use timing::Timing;
pub use tls::{ClientCertificates, ServerTls, ServingCertificateResolver, TlsVersion};
pub use validity::Validity;

pub use certificates::Certificates;
#[cfg(feature = "kube")]
pub use self_managed::{CaStatus, RotationRequest, SelfManaged};

/// Compiles the README's examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
