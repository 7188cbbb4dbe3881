//! What is wrong with an authority

use snafu::Snafu;
use x509_parser::error::X509Error;

use crate::{fingerprint::Fingerprint, pem::PemError, serving::PairError, validity::Validity};

/// Why a certificate authority was refused or could not sign
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum CaError {
    /// There is no certificate to read
    #[snafu(display("failed to read the CA certificate"))]
    CertificatePem {
        /// What is wrong with the text
        source: PemError,
    },
    /// The certificate does not parse
    #[snafu(display("failed to parse the CA certificate"))]
    Certificate {
        /// What is wrong with it
        #[snafu(source(from(X509Error, Box::from)))]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The certificate parses, but its subject cannot be used as an issuer
    #[snafu(display("failed to use the subject of the CA certificate as an issuer"))]
    Subject {
        /// What is wrong with it
        #[snafu(source(from(rcgen::Error, Box::from)))]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no private key to read
    #[snafu(display("failed to read the private key of the CA"))]
    PrivateKeyPem {
        /// What is wrong with the text
        source: PemError,
    },
    /// The private key does not parse or is of another kind
    #[snafu(display("failed to parse the private key of the CA: ECDSA, RSA and Ed25519 are accepted"))]
    PrivateKey {
        /// What is wrong with it
        #[snafu(source(from(rcgen::Error, Box::from)))]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Certificate and private key do not belong together
    #[snafu(display(
        "failed to match the private key with the CA certificate {fingerprint}: it belongs to another certificate"
    ))]
    KeyMismatch {
        /// SHA-256 of the certificate
        fingerprint: Fingerprint,
    },
    /// The certificate is one of a server or client
    #[snafu(display(
        "failed to use the certificate {fingerprint} as a CA: its basic constraints do not say CA:TRUE"
    ))]
    NotACa {
        /// SHA-256 of the certificate
        fingerprint: Fingerprint,
    },
    /// The certificate is one of a CA that may not sign certificates
    #[snafu(display("failed to use the CA certificate {fingerprint}: its key usage lacks keyCertSign"))]
    MayNotSign {
        /// SHA-256 of the certificate
        fingerprint: Fingerprint,
    },
    /// The certificate is one of a CA for something else than servers
    #[snafu(display(
        "failed to use the CA certificate {fingerprint}: its extended key usage lacks serverAuth, without which \
         clients take no server's certificate of it"
    ))]
    NotForServers {
        /// SHA-256 of the certificate
        fingerprint: Fingerprint,
    },
    /// The certificate is expired
    #[snafu(display(
        "failed to use the CA certificate {fingerprint}: expired, it was valid from {validity}"
    ))]
    Expired {
        /// SHA-256 of the certificate
        fingerprint: Fingerprint,
        /// From when to when it was valid
        validity: Validity,
    },
    /// The certificate is not valid yet, or our clock is behind
    #[snafu(display(
        "failed to use the CA certificate {fingerprint}: not valid yet, it is valid from {validity}"
    ))]
    NotYetValid {
        /// SHA-256 of the certificate
        fingerprint: Fingerprint,
        /// From when to when it is valid
        validity: Validity,
    },
    /// There was no randomness for a serial number
    #[snafu(display("failed to draw a serial number"))]
    Serial,
    /// A private key could not be made
    #[snafu(display("failed to generate a private key"))]
    GenerateKey {
        /// What the library says
        #[snafu(source(from(rcgen::Error, Box::from)))]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A certificate could not be signed
    #[snafu(display("failed to sign a certificate"))]
    Sign {
        /// What the library says
        #[snafu(source(from(rcgen::Error, Box::from)))]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A signed certificate cannot be served
    #[snafu(display("failed to use a serving certificate with rustls"))]
    Serve {
        /// What the library says
        #[snafu(source(from(PairError, Box::new)))]
        source: Box<PairError>,
    },
}
