//! Private keys, zeroed on drop.

use rcgen::{KeyPair, PublicKeyData, SignatureAlgorithm};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::{Zeroize, Zeroizing};

/// A serialized private key, zeroed on drop.
pub(crate) type PrivateKey = Zeroizing<PrivateKeyDer<'static>>;

/// A key that signs certificates. rcgen keeps its serialized form and does not zero it.
pub(crate) struct SigningKey(KeyPair);

impl SigningKey {
    /// Generates an ECDSA key on P-256, which kube-apiserver (Go's crypto/tls) accepts in TLS 1.2 and 1.3, also in
    /// the FIPS 140-3 mode of Go 1.26.
    pub(crate) fn generate() -> Result<Self, rcgen::Error> {
        KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map(Self)
    }

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
