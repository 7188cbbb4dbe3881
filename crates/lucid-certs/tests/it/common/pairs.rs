//! External CAs and certificates in PEM form.

use std::{collections::BTreeMap, fs, path::Path};

use lucid_certs::{CertificateAuthority, Fingerprint, TrustBundle};
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SignatureAlgorithm,
};

use super::now;

/// Key algorithms of external issuers, besides RSA.
pub(crate) const ALGORITHMS: [&SignatureAlgorithm; 3] =
    [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519];

/// A CA with its key.
pub(crate) struct Ca {
    pub(crate) pem: String,
    pub(crate) key: String,
    pub(crate) issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    pub(crate) fn new(shape: impl FnOnce(&mut CertificateParams)) -> Self {
        Self::with(KeyPair::generate().unwrap(), None, shape)
    }

    /// Creates a CA signed by `issuer`, or self-signed.
    pub(crate) fn with(
        key: KeyPair,
        issuer: Option<&Self>,
        shape: impl FnOnce(&mut CertificateParams),
    ) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        shape(&mut params);
        let certificate = match issuer {
            Some(issuer) => params.signed_by(&key, &issuer.issuer),
            None => params.self_signed(&key),
        };
        Self { pem: certificate.unwrap().pem(), key: key.serialize_pem(), issuer: Issuer::new(params, key) }
    }

    pub(crate) fn bundle(&self) -> TrustBundle {
        TrustBundle::from_pem(self.pem.as_bytes()).unwrap()
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.bundle().validities().next().unwrap().0
    }

    pub(crate) fn authority(&self) -> Result<CertificateAuthority, lucid_certs::Error> {
        CertificateAuthority::from_pem(self.pem.as_bytes(), self.key.as_bytes(), now())
    }
}

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
        let ca = Ca::with(ca_key, None, |_| ());
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &ca.issuer).unwrap();
        Self {
            certificate: leaf.pem(),
            key: key.serialize_pem(),
            ca: ca.pem,
            ca_key: ca.key,
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
