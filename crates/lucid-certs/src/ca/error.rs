//! Errors of certificate authorities.

use snafu::Snafu;

use crate::{fingerprint::Fingerprint, validity::Validity};

/// Reason why a CA was rejected or could not sign.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum CaError {
    /// The text holds no certificate, or one that does not parse.
    #[snafu(display("{problem}"))]
    Certificate {
        /// Failed operation.
        problem: &'static str,
        /// PEM or parser error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The text does not hold exactly one private key of a supported algorithm.
    #[snafu(display("{problem}"))]
    PrivateKey {
        /// Failed operation and accepted input.
        problem: &'static str,
        /// PEM or parser error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The private key does not match the certificate.
    #[snafu(display(
        "failed to match the private key with the CA certificate {fingerprint}: it belongs to another certificate"
    ))]
    KeyMismatch {
        /// SHA-256 of the certificate.
        fingerprint: Fingerprint,
    },
    /// The certificate may not issue serving certificates.
    #[snafu(display("failed to use the CA certificate {fingerprint}: {problem}"))]
    Unfit {
        /// SHA-256 of the certificate.
        fingerprint: Fingerprint,
        /// Extension that forbids it.
        problem: &'static str,
    },
    /// The certificate has expired.
    #[snafu(display(
        "failed to use the CA certificate {fingerprint}: expired, it was valid from {validity}"
    ))]
    Expired {
        /// SHA-256 of the certificate.
        fingerprint: Fingerprint,
        /// Validity period.
        validity: Validity,
    },
    /// The certificate is not valid yet, or the local clock is behind.
    #[snafu(display(
        "failed to use the CA certificate {fingerprint}: not valid yet, it is valid from {validity}"
    ))]
    NotYetValid {
        /// SHA-256 of the certificate.
        fingerprint: Fingerprint,
        /// Validity period.
        validity: Validity,
    },
    /// A key or certificate could not be generated.
    #[snafu(display("{problem}"))]
    Generate {
        /// Failed operation.
        problem: &'static str,
        /// Error of the cryptographic library.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
