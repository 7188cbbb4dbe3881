//! Serving certificates and trust bundles for Kubernetes webhooks, renewed without losing a call.
//!
//! An API server calls an admission or conversion webhook over TLS and verifies the certificate that is shown to it
//! against the `caBundle` of the webhook's registration. So a webhook server has two things to keep good for years: the
//! certificate it serves, and what its callers trust. They are in two places and cannot be changed at once, and whoever
//! changes them in the wrong order loses calls; with `failurePolicy: Fail` each lost call is a pod that is not created.
//!
//! This crate does both inside the server, for any number of replicas, and without leader election. Where the
//! certificate comes from is a matter of configuration: made by the replicas themselves, by cert-manager, by OpenShift,
//! by OLM, or by hand with openssl.
//!
//! # A first example
//!
//! A server with an authority of its own, which its replicas share in a Secret, and whose trust reaches the
//! ValidatingWebhookConfiguration `my-webhook`:
//!
//! ```no_run
//! # #[cfg(feature = "kube")]
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use lucid_certs::{
//!     Certificates, SelfManaged, ServerTls, ServingNames,
//!     target::{ObjectTarget, TrustTarget, Webhooks},
//! };
//! use tokio::signal::unix::{SignalKind, signal};
//!
//! let client = kube::Client::try_default().await?;
//! let names = ServingNames::for_services("my-system", &["my-webhook"])?;
//!
//! let target = ObjectTarget::validating_webhooks(client.clone(), "my-certs", "my-webhook", Webhooks::All);
//! let targets: [Arc<dyn TrustTarget>; 1] = [Arc::new(target)];
//! let certificates = Certificates::new(names.clone()).with_targets(targets);
//!
//! let tls = ServerTls::new(certificates.resolver()).build()?; // for lucid-webhook, tokio-rustls, anything on rustls
//! let ready = certificates.ready(); // for the readiness probe
//!
//! let source = SelfManaged::new(client, "my-system", "my-webhook-ca", names, "my-operator".into());
//! let mut terminate = signal(SignalKind::terminate())?; // asked to end, it writes nothing any more
//! tokio::spawn(certificates.run(source, async move { drop(terminate.recv().await) }));
//! # drop((tls, ready));
//! # Ok(())
//! # }
//! ```
//!
//! With another source the rest stays as it is: [`source::Files`] for a mounted volume, [`source::SecretSource`] for a
//! Secret without one, each with presets such as [`Files::cert_manager`](source::Files::cert_manager).
//!
//! # Three parts
//!
//! - A [source](source::CertificateSource) has a certificate to offer, and says what is to be trusted.
//! - A [target](target::TrustTarget) is where callers look for what to trust: the `caBundle` fields of
//!   MutatingWebhookConfigurations, ValidatingWebhookConfigurations, CustomResourceDefinitions with conversion webhooks
//!   and APIServices, or a key of a ConfigMap.
//! - [`Certificates`] brings the two together: it writes the trust to the targets, reads it back, and only then swaps
//!   the certificate that the [resolver](ServingCertificateResolver) shows. It heals what others do to the targets,
//!   says whether callers accept what is served ([`Certificates::ready`]), and counts ([`metrics`]).
//!
//! For the objects of other operators, in clusters without a certificate manager, the [`injector`] honours cert-manager's
//! annotations.
//!
//! # The order that loses no call
//!
//! An API server makes a new client as soon as its watch brings a new `caBundle`, and verifies the certificate of every
//! connection that it opens from then on; it closes none for that. So a certificate under an authority that is in the
//! bundle already can be swapped at any time, and one under a new authority only after the bundle has both. When the
//! authority changes from A to B:
//!
//! ```text
//!              Secret                targets      served   goes on when
//! stable       signer A              {A}          A
//! 1 publish    signer A, next B      {A}          A        B is in the Secret
//! 2 trust      signer A, next B      {B, A}       A        every target was read back with B
//! 3 settle     signer A, next B      {B, A}       A        every target had B for a minute
//! 4 activate   signer B, before A    {B, A}       A, B     replicas follow one by one
//! 5 drain      signer B, before A    {B, A}       B        the last certificate of A is expired
//! 6 retire     signer B              {B}          B
//!
//!            publish, trust      activate                     retire
//! bundle   {A} ──┬─────────────── {B, A} ───────────────────────┬── {B} ──▶
//! served    A  ──┼─────────────────┬────────── B ───────────────┼─────────▶
//!                ├──── settle ─────┤├────────── drain ──────────┤
//! ```
//!
//! Nothing acknowledges that an API server has heard of a bundle: hence step 3. Nothing tells how many replicas there
//! are, and one may be cut off from the API server and still be called: hence step 5 waits for the end of the last
//! certificate that A can have issued.
//!
//! There is no leader. Every replica decides by itself what is due ([`Timing`] has the durations), and each step is one
//! change of the Secret under the `resourceVersion` that was read; of several replicas one wins, and the others go on from
//! what it wrote. A replica that ends anywhere leaves nothing that another could not go on from, because the Secret and the
//! targets are all that it went on from itself.
//!
//! Two rules make this safe with replicas that are slow, or know an old state:
//!
//! - **A bundle is written only where nobody wrote since it was read, and the Secret is read after that reading.** A
//!   replica that slept between the two finds its write refused; otherwise it would take B away while others serve under it.
//! - **A certificate goes into service only when this replica itself has seen every target trust its issuer for the time of
//!   step 3**, by a clock that nobody sets. It does not matter who changed the Secret, or how.
//!
//! They are tested as a simulation over years with crashes, clocks that jump and replicas that stand still, explored
//! exhaustively by a model checker, and measured against a real API server; with one of the rules broken, each of the three
//! finds lost calls.
//!
//! ## When there is no time
//!
//! - **The authority is lost** (the Secret deleted or overwritten): a replica that runs puts it back from memory. If none
//!   runs, there is nothing in service that could be lost: the next one makes a new authority, and what callers trust
//!   meanwhile stays for the time of step 5.
//! - **The authority is expired**, and so is all it issued: a new one signs at once.
//! - **The authority is compromised** ([`request_rotation`] with [`RotationRequest::Urgent`]): steps 1 to 4 as ever, then
//!   trust in everything before ends after [`Timing::urgent_drain`], four minutes. It costs the calls to replicas that are
//!   cut off from the API server for that long.
//!
//! # What is assumed
//!
//! API servers hear of a change within the time of step 3. Clocks differ by five minutes at most, for which certificates are
//! begun an hour in the past; a clock that jumps by hours renews what it has to, and ends no wait early. Replicas that share a
//! Secret are called by the same names. Who may write the Secret or the targets may also read what is sent to the webhook:
//! least rights are in the documentation of [`SelfManaged`] and of the [targets](target::ObjectTarget).
//!
//! # Features
//!
//! | feature | default | what |
//! |---|---|---|
//! | `files` | yes | [`source::Files`] and [`source::BundleFile`] |
//! | `kube` | yes | [`SelfManaged`], [`source::SecretSource`], the targets of the API server, the injector |
//! | `runtime` | with one of these | [`Certificates`], [`ClientCertificates`], the traits of sources and targets, [`metrics`] |
//!
//! Without features there are the parts: [`CertificateAuthority`] signs, [`ServingCertificate`] is what it signs,
//! [`TrustBundle`] what is trusted, [`ServingCertificateResolver`] and [`ServerTls`] serve. With `files` alone nothing knows
//! of Kubernetes.
//!
//! All cryptography is aws-lc-rs, handed to rustls explicitly: nothing depends on, or installs, a crypto provider of the
//! process. Keys are in no error, log line, event or `Debug` output. They are overwritten in memory when they are dropped:
//! those that this crate holds, the PEM that it makes of them, and what aws-lc uses to sign, which aws-lc overwrites itself.
//! Not overwritten are the bytes that a key was read from, which are the caller's, what `rustls-pemfile` needs to decode
//! them, and what kube holds of a Secret.

#![cfg_attr(
    not(all(feature = "files", feature = "kube")),
    allow(rustdoc::broken_intra_doc_links, reason = "the text above speaks of all parts")
)]

pub mod pem;

mod anchor;
mod bundle;
mod ca;
mod fingerprint;
mod key;
mod names;
mod serving;
mod tls;
mod validity;

#[cfg(feature = "kube")]
pub mod injector;
#[cfg(feature = "runtime")]
pub mod metrics;
#[cfg(feature = "runtime")]
pub mod source;
#[cfg(feature = "runtime")]
pub mod target;

#[cfg(feature = "runtime")]
mod certificates;
#[cfg(feature = "kube")]
mod rotation;
#[cfg(feature = "kube")]
mod self_managed;
#[cfg(feature = "kube")]
mod unlogged;
#[cfg(feature = "kube")]
mod watch;

pub use bundle::{BundleError, TrustBundle};
pub use ca::{
    BACKDATE, CA_LIFETIME, CaError, CaParams, CertificateAuthority, LeafParams, PemPair, SERVING_LIFETIME,
};
pub use fingerprint::Fingerprint;
pub use key::{KeyAlgorithm, UnknownKeyAlgorithm};
pub use names::{NamesError, ServingNames};
pub use serving::{PairError, ServingCertificate, VerifyError, verify_shown};
#[cfg(feature = "runtime")]
pub use tls::{ClientCertificates, ClientCertificatesError};
pub use tls::{ServerTls, ServingCertificateResolver, TlsError, TlsVersion, UnknownTlsVersion};
pub use validity::Validity;

#[cfg(feature = "runtime")]
pub use certificates::Certificates;
#[cfg(feature = "kube")]
pub use rotation::{Timing, TimingError};
#[cfg(feature = "kube")]
pub use self_managed::{
    CaStatus, CaSummary, RequestError, RotationRequest, SelfManaged, request_rotation, status,
};

/// An error and its causes in one line, without what a message repeats of its cause
#[cfg(feature = "runtime")]
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |line, cause| {
        let cause = cause.to_string();
        if line.contains(&cause) { line } else { format!("{line}: {cause}") }
    })
}

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
