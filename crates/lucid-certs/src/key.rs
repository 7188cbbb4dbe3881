//! Private keys: which kinds are made, and that they do not stay behind in memory

use std::{fmt, str::FromStr};

use rcgen::{KeyPair, PublicKeyData, SignatureAlgorithm};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use snafu::Snafu;
use zeroize::{Zeroize, Zeroizing};

/// A private key as it is stored, which is overwritten when it is dropped
pub(crate) type PrivateKey = Zeroizing<PrivateKeyDer<'static>>;

/// The kinds of keys that are made.
///
/// kube-apiserver (Go's crypto/tls) accepts leafs and authorities of all three in TLS 1.2 and 1.3, and RSA from
/// elsewhere. One that runs in FIPS mode may refuse Ed25519. P-256 is the fastest to sign with.
///
/// ```
/// use lucid_certs::KeyAlgorithm;
///
/// assert_eq!("p384".parse::<KeyAlgorithm>()?, KeyAlgorithm::P384);
/// assert_eq!(KeyAlgorithm::default().to_string(), "p256");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum KeyAlgorithm {
    /// ECDSA on P-256 with SHA-256
    #[default]
    P256,
    /// ECDSA on P-384 with SHA-384
    P384,
    /// Ed25519
    Ed25519,
}

/// A configuration names another kind of key
#[derive(Debug, Snafu, PartialEq, Eq)]
#[snafu(display("failed to accept {name:?} as a key algorithm: p256, p384 and ed25519 are accepted"))]
pub struct UnknownKeyAlgorithm {
    name: String,
}

impl KeyAlgorithm {
    /// All of them
    pub const ALL: [Self; 3] = [Self::P256, Self::P384, Self::Ed25519];

    fn as_str(self) -> &'static str {
        match self {
            Self::P256 => "p256",
            Self::P384 => "p384",
            Self::Ed25519 => "ed25519",
        }
    }

    pub(crate) fn generate(self) -> Result<SigningKey, rcgen::Error> {
        KeyPair::generate_for(match self {
            Self::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            Self::P384 => &rcgen::PKCS_ECDSA_P384_SHA384,
            Self::Ed25519 => &rcgen::PKCS_ED25519,
        })
        .map(SigningKey)
    }
}

impl fmt::Display for KeyAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for KeyAlgorithm {
    type Err = UnknownKeyAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == name);
        found.ok_or_else(|| UnknownKeyAlgorithm { name: name.to_owned() })
    }
}

/// A key that signs certificates. rcgen keeps its serialised form, and does not overwrite it by itself.
pub(crate) struct SigningKey(KeyPair);

impl SigningKey {
    /// Its PKCS#8
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
