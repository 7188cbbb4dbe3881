//! Errors of certificate authorities.

use snafu::Snafu;
use x509_parser::error::X509Error;

use crate::{fingerprint::Fingerprint, pem::PemError, serving::PairError, validity::Validity};

/// Reason why a CA was rejected or could not sign.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum CaError {
    /// The text holds no certificate.
    #[snafu(display("failed to read the CA certificate"))]
    CertificatePem {
        /// PEM problem.
        source: PemError,
    },
    /// The certificate does not parse.
    #[snafu(display("failed to parse the CA certificate"))]
    Certificate {
        /// Parser error.
        #[snafu(source(from(X509Error, Box::from)))]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The subject of the certificate cannot be used as an issuer.
    #[snafu(display("failed to use the subject of the CA certificate as an issuer"))]
    Subject {
        /// Error of rcgen.
        #[snafu(source(from(rcgen::Error, Box::from)))]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The text does not hold exactly one private key.
    #[snafu(display("failed to read the private key of the CA"))]
    PrivateKeyPem {
        /// PEM problem.
        source: PemError,
    },
    /// The private key does not parse or its algorithm is not supported.
    #[snafu(display("failed to parse the private key of the CA: ECDSA, RSA and Ed25519 are accepted"))]
    PrivateKey {
        /// Error of rcgen.
        #[snafu(source(from(rcgen::Error, Box::from)))]
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
    /// The certificate is not a CA.
    #[snafu(display(
        "failed to use the certificate {fingerprint} as a CA: its basic constraints do not say CA:TRUE"
    ))]
    NotACa {
        /// SHA-256 of the certificate.
        fingerprint: Fingerprint,
    },
    /// The key usage of the CA does not include certificate signing.
    #[snafu(display("failed to use the CA certificate {fingerprint}: its key usage lacks keyCertSign"))]
    MayNotSign {
        /// SHA-256 of the certificate.
        fingerprint: Fingerprint,
    },
    /// The extended key usage of the CA does not include server authentication.
    #[snafu(display(
        "failed to use the CA certificate {fingerprint}: its extended key usage lacks serverAuth, without which \
         clients take no server's certificate of it"
    ))]
    NotForServers {
        /// SHA-256 of the certificate.
        fingerprint: Fingerprint,
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
    /// The random number generator failed.
    #[snafu(display("failed to draw a serial number"))]
    Serial,
    /// Key generation failed.
    #[snafu(display("failed to generate a private key"))]
    GenerateKey {
        /// Error of rcgen.
        #[snafu(source(from(rcgen::Error, Box::from)))]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Signing failed.
    #[snafu(display("failed to sign a certificate"))]
    Sign {
        /// Error of rcgen.
        #[snafu(source(from(rcgen::Error, Box::from)))]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The issued certificate cannot be served.
    #[snafu(display("failed to use a serving certificate with rustls"))]
    Serve {
        /// Error of the serving certificate.
        #[snafu(source(from(PairError, Box::new)))]
        source: Box<PairError>,
    },
}
