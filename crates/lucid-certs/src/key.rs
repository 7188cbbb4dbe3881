//! Private keys: supported algorithms and zeroing.

use aws_lc_rs::{rand::SystemRandom, signature::Ed25519KeyPair};
use rcgen::{KeyPair, PublicKeyData, SignatureAlgorithm};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::{Zeroize, Zeroizing};

/// A serialized private key, zeroed on drop.
pub(crate) type PrivateKey = Zeroizing<PrivateKeyDer<'static>>;

/// Algorithms of generated keys.
///
/// kube-apiserver (Go's crypto/tls) accepts serving certificates and CAs of all three in TLS 1.2 and 1.3,
/// also in the FIPS 140-3 mode of Go 1.26. It also accepts externally issued RSA certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum KeyAlgorithm {
    /// ECDSA on P-256 with SHA-256.
    #[default]
    P256,
    /// ECDSA on P-384 with SHA-384.
    P384,
    /// Ed25519 (RFC 8032).
    Ed25519,
}

impl KeyAlgorithm {
    /// All algorithms.
    pub const ALL: [Self; 3] = [Self::P256, Self::P384, Self::Ed25519];

    pub(crate) fn generate(self) -> Result<SigningKey, rcgen::Error> {
        let key = match self {
            Self::P256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?,
            Self::P384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384)?,
            // rcgen would write version 2 of PKCS#8 (RFC 5958), which OpenSSL 3.0 does not read.
            Self::Ed25519 => Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new())
                .map_err(|_| rcgen::Error::RingUnspecified)?
                .as_ref()
                .try_into()?,
        };
        Ok(SigningKey(key))
    }
}

/// A key that signs certificates. rcgen keeps its serialized form and does not zero it.
pub(crate) struct SigningKey(KeyPair);

impl SigningKey {
    pub(crate) fn to_pkcs8(&self) -> PrivateKey {
        Zeroizing::new(PrivatePkcs8KeyDer::from(self.0.serialized_der().to_vec()).into())
    }
}

impl TryFrom<&PrivateKey> for SigningKey {
    type Error = rcgen::Error;

    fn try_from(key: &PrivateKey) -> Result<Self, Self::Error> {
        KeyPair::try_from(&**key).map(Self)
    }
}

impl PublicKeyData for SigningKey {
    fn der_bytes(&self) -> &[u8] {
        self.0.der_bytes()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.0.algorithm()
    }
}

impl rcgen::SigningKey for SigningKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.0.sign(message)
    }
}

impl Drop for SigningKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}
