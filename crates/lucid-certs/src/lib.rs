//! Serving certificates and trust bundles for Kubernetes webhooks

pub mod pem;

mod bundle;
mod ca;
mod names;
mod serving;
mod tls;
mod validity;

#[cfg(feature = "kube")]
mod report;
#[cfg(feature = "kube")]
mod rotation;
#[cfg(feature = "kube")]
mod secret;
#[cfg(feature = "kube")]
mod self_managed;

pub use bundle::{BundleError, TrustBundle};
pub use ca::{BACKDATE, CA_LIFETIME, CA_RENEW_BEFORE, CaError, CertificateAuthority, SERVING_LIFETIME};
pub use names::{NamesError, ServingNames};
pub use serving::{ServingCertificate, VerifyError};
pub use tls::{ServingCertificateResolver, TlsError, server_config};
pub use validity::Validity;

#[cfg(feature = "kube")]
pub use rotation::RotationError;
#[cfg(feature = "kube")]
pub use secret::{CaOrigin, CaSecret, SecretError, Unusable};
#[cfg(feature = "kube")]
pub use self_managed::{PublishError, PublishTrust, SelfManaged, SelfManagedConfig, StartError};
