//! Externally issued certificates in PEM form.

use std::collections::BTreeMap;

use lucid_certs::{Fingerprint, TrustBundle};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// A certificate, its key, and a CA that issued nothing else.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) ca: String,
    pub(crate) fingerprint: Fingerprint,
}

impl Pair {
    /// Creates a pair for the first of the [names](super::names) that API servers call.
    pub(crate) fn new() -> Self {
        let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let leaf = CertificateParams::new(["lucid-operator.lucid-system.svc".to_owned()]).unwrap();
        let leaf = leaf.signed_by(&key, &Issuer::from_params(&ca, &ca_key)).unwrap();
        Self {
            certificate: leaf.pem(),
            key: key.serialize_pem(),
            ca: ca_pem,
            fingerprint: Fingerprint::of(leaf.der()),
        }
    }

    pub(crate) fn several<const N: usize>() -> [Self; N] {
        [(); N].map(|()| Self::new())
    }

    pub(crate) fn bundle(&self) -> TrustBundle {
        TrustBundle::from_pem(self.ca.as_bytes()).unwrap()
    }

    /// Returns the data of a Secret of type `kubernetes.io/tls`.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        [("tls.crt", &self.certificate), ("tls.key", &self.key), ("ca.crt", &self.ca)]
            .map(|(name, text)| (name.to_owned(), text.clone().into_bytes()))
            .into()
    }
}
