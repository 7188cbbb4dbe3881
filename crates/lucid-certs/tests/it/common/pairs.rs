//! Externally issued certificates in PEM form.

use std::{collections::BTreeMap, fs, path::Path};

use lucid_certs::{Fingerprint, TrustBundle};
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SignatureAlgorithm,
};

/// Key algorithms of external issuers, besides RSA.
pub(crate) const ALGORITHMS: [&SignatureAlgorithm; 3] =
    [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519];

/// A certificate, its key, and a CA that issued nothing else.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) ca: String,
    pub(crate) ca_key: String,
    pub(crate) fingerprint: Fingerprint,
}

impl Pair {
    /// Creates a pair for the first of the [names](super::names) that API servers call.
    pub(crate) fn new() -> Self {
        Self::with(&PKCS_ECDSA_P256_SHA256, &["lucid-operator.lucid-system.svc"])
    }

    pub(crate) fn with(algorithm: &'static SignatureAlgorithm, names: &[&str]) -> Self {
        let [ca_key, key] = [(); 2].map(|()| KeyPair::generate_for(algorithm).unwrap());
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let leaf = CertificateParams::new(names).unwrap();
        let leaf = leaf.signed_by(&key, &Issuer::from_params(&ca, &ca_key)).unwrap();
        Self {
            certificate: leaf.pem(),
            key: key.serialize_pem(),
            ca: ca_pem,
            ca_key: ca_key.serialize_pem(),
            fingerprint: Fingerprint::of(leaf.der()),
        }
    }

    pub(crate) fn several<const N: usize>() -> [Self; N] {
        [(); N].map(|()| Self::new())
    }

    pub(crate) fn bundle(&self) -> TrustBundle {
        TrustBundle::from_pem(self.ca.as_bytes()).unwrap()
    }

    /// Writes `tls.crt`, `tls.key` and `ca.crt`.
    pub(crate) fn write(&self, folder: &Path) {
        for (name, content) in self.files() {
            fs::write(folder.join(name), content).unwrap();
        }
    }

    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        [("tls.crt", &self.certificate), ("tls.key", &self.key), ("ca.crt", &self.ca)]
            .map(|(name, text)| (name.to_owned(), text.clone().into_bytes()))
            .into()
    }
}
