//! Serving certificates and trust bundles for Kubernetes webhooks.
//!
//! An API server calls an admission or conversion webhook over TLS and verifies the certificate that
//! is shown to it against the `caBundle` of the webhook's registration. Somebody has to make that
//! certificate, bring its authority into the `caBundle`, and renew both while calls go on. This crate
//! does so inside the webhook server itself, for any number of replicas, without a certificate
//! manager and without leader election.
//!
//! # A first example
//!
//! [`SelfManaged`] does everything. What it needs from you is a [`PublishTrust`] that writes a bundle
//! to where your callers look for it:
//!
//! ```no_run
//! # #[cfg(feature = "kube")]
//! # mod example {
//! use lucid_certs::{
//!     PublishError, PublishTrust, SelfManaged, SelfManagedConfig, ServingNames, TrustBundle, server_config,
//! };
//! use kube::{
//!     Api, Client,
//!     api::{Patch, PatchParams},
//! };
//! use k8s_openapi::{ByteString, api::admissionregistration::v1::ValidatingWebhookConfiguration};
//!
//! struct Webhook(Client);
//!
//! impl PublishTrust for Webhook {
//!     async fn publish(&self, bundle: &TrustBundle) -> Result<(), PublishError> {
//!         let registration = serde_json::json!({
//!             "apiVersion": "admissionregistration.k8s.io/v1",
//!             "kind": "ValidatingWebhookConfiguration",
//!             "metadata": { "name": "my-webhook" },
//!             "webhooks": [{
//!                 "name": "pods.example.com",
//!                 "clientConfig": { "caBundle": ByteString(bundle.to_pem().into_bytes()) },
//!             }],
//!         });
//!         Api::<ValidatingWebhookConfiguration>::all(self.0.clone())
//!             .patch("my-webhook", &PatchParams::apply("my-operator"), &Patch::Apply(registration))
//!             .await?;
//!         Ok(())
//!     }
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::try_default().await?;
//! let names = ServingNames::for_services("my-system", &["my-webhook"])?;
//! let config = SelfManagedConfig::new(client.clone(), "my-system", "my-webhook-ca", names, "my-operator".into());
//! let certificates = SelfManaged::start(config, Webhook(client)).await?;
//!
//! let tls = server_config(certificates.resolver())?; // for tokio-rustls, or anything on rustls
//! let ready = certificates.ready(); // for the readiness probe
//! tokio::spawn(certificates.run(async { drop(tokio::signal::ctrl_c().await) }));
//! # drop((tls, ready));
//! # Ok(())
//! # }
//! # }
//! ```
//!
//! Without the API server, the parts work by themselves: [`CertificateAuthority`] signs,
//! [`TrustBundle`] holds what is trusted, [`ServingCertificateResolver`] serves.
//!
//! # The order that loses no call
//!
//! A certificate and the bundle that vouches for it are in two places, and cannot be changed at once.
//! An API server takes a new `caBundle` into use as soon as its watch brings it, and verifies the
//! certificate of every connection it opens from then on. So when the authority changes, from A to B:
//!
//! 1. the bundle {B, A} is published; the leaf in service is still of A;
//! 2. API servers get two seconds to hear of it, for nothing acknowledges it;
//! 3. a leaf of B is issued, verified against the published bundle, and swapped in for new handshakes;
//! 4. after ten minutes, in which the other replicas do the same, {B} is published alone.
//!
//! In the other order, or with {B} alone in step 1, every call in between would fail. One rule covers
//! all of it, also when a step fails and is tried again: **a leaf goes into service only when it
//! verifies against the bundle that was published last, and no bundle is published that lacks the
//! authority of the leaf in service** (unless that authority is expired). A leaf that is merely renewed
//! is of an authority that is in the bundle already.
//!
//! All replicas write the same targets, so each must know which authorities the others may serve under.
//! They tell one another through `ca.crt` of the Secret: B first, then A. Who makes B writes there what it
//! knows of, and who adopts B adds what it knows of and finds missing. During the ten minutes, everybody
//! who reads the Secret publishes all of it; after them, nobody does, though it still stands there. A
//! replica that starts reads the Secret a second time when the authority is only seconds old, because
//! those that run may not have added theirs yet; and one that cannot read the Secret publishes nothing.
//!
//! Two cases are beyond this. A replica that is cut off from the API server for longer than ten minutes
//! serves under A until it is back. And when somebody puts an authority into the Secret that is older
//! than ten minutes, such as from a backup, those that run follow in the order above, but one that
//! starts in the two seconds before they serve under it knows nothing of A.
//!
//! # Layout
//!
//! Pure, with time as an argument: [`ServingNames`], [`CertificateAuthority`], [`ServingCertificate`],
//! [`TrustBundle`], [`pem`] (the only place that knows the PEM library), and the decisions above.
//! With the feature `kube` (on by default) the shell around it: [`CaSecret`], the authority in a
//! Secret, and [`SelfManaged`], which watches it.
//!
//! All cryptography is aws-lc-rs, handed to rustls explicitly: nothing depends on, or installs, a
//! crypto provider of the process. Keys are in no error, log line, event or `Debug` output.

#![cfg_attr(
    not(feature = "kube"),
    allow(rustdoc::broken_intra_doc_links, reason = "the text above speaks of both halves")
)]

pub mod pem;

mod bundle;
mod ca;
mod fingerprint;
mod names;
mod serving;
mod tls;
mod validity;

#[cfg(feature = "runtime")]
pub mod source;
#[cfg(feature = "runtime")]
pub mod target;

#[cfg(feature = "kube")]
pub mod injector;
#[cfg(feature = "kube")]
mod report;
#[cfg(feature = "kube")]
mod republish;
#[cfg(feature = "kube")]
mod rotation;
#[cfg(feature = "kube")]
mod secret;
#[cfg(feature = "kube")]
mod self_managed;

pub use bundle::{BundleError, TrustBundle};
pub use ca::{
    BACKDATE, CA_LIFETIME, CA_OVERLAP, CA_RENEW_BEFORE, CaError, CertificateAuthority, SERVING_LIFETIME,
};
pub use fingerprint::Fingerprint;
pub use names::{NamesError, ServingNames};
pub use serving::{PairError, ServingCertificate, VerifyError};
pub use tls::{ServingCertificateResolver, TlsError, server_config};
pub use validity::Validity;

#[cfg(feature = "kube")]
pub use republish::Republish;
#[cfg(feature = "kube")]
pub use rotation::RotationError;
#[cfg(feature = "kube")]
pub use secret::{CaOrigin, CaSecret, SecretError, SharedCa, Unusable};
#[cfg(feature = "kube")]
pub use self_managed::{PublishError, PublishTrust, SelfManaged, SelfManagedConfig, StartError};

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
