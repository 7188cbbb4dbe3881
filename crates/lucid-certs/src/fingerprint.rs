//! How a certificate is named in logs, metrics and state

use std::fmt;

use aws_lc_rs::digest;
use rustls::pki_types::CertificateDer;

/// SHA-256 over the DER of a certificate. Shown in lower-case hex, as
/// `openssl x509 -fingerprint -sha256` without colons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// That of a certificate
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let mut bytes = [0; 32];
        // SHA-256 has 32 bytes: both slices are of one length.
        bytes.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
        Self(bytes)
    }

    /// The digest itself
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Fingerprint {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}
