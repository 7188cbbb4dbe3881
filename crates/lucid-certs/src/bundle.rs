//! The certificates a client trusts

use std::{cmp::Reverse, mem, time::SystemTime};

use rustls::pki_types::{CertificateDer, TrustAnchor};
use snafu::{ResultExt, Snafu};
use x509_parser::error::X509Error;

use crate::{
    ca::{CA_OVERLAP, CertificateAuthority},
    pem::{self, PemError},
    validity::{self, Validity},
};

/// Why a trust bundle was refused
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum BundleError {
    /// The text holds no certificates
    #[snafu(display("failed to read the trust bundle"))]
    Pem {
        /// What is wrong with it
        source: PemError,
    },
    /// One of its entries is not a certificate
    #[snafu(display("failed to read certificate {position} of the trust bundle"))]
    Certificate {
        /// Which one, counted from 1
        position: usize,
        /// What is wrong with it
        source: X509Error,
    },
}

/// A set of CA certificates in a stable order, without duplicates and never empty: the value of a
/// `caBundle` field.
///
/// An empty bundle would make an API server fall back to the roots of its host, and one that does
/// not parse fails each call, so neither can be made: every entry is a certificate that was read.
///
/// ```
/// # use std::time::SystemTime;
/// # use lucid_certs::{CertificateAuthority, ServingNames, TrustBundle};
/// # let names = ServingNames::for_services("lucid-system", &["lucid-operator"])?;
/// # let now = SystemTime::now();
/// let current = CertificateAuthority::generate(&names, now)?.trust_bundle();
/// let next = CertificateAuthority::generate(&names, now)?.trust_bundle();
///
/// let both = next.merge(&current);
/// assert_eq!(both.merge(&current), both);
/// assert_eq!(TrustBundle::from_pem(both.to_pem().as_bytes())?, both);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustBundle {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    certificate: CertificateDer<'static>,
    validity: Validity,
}

impl TrustBundle {
    pub(crate) fn of(certificate: CertificateDer<'static>, validity: Validity) -> Self {
        Self { entries: vec![Entry { certificate, validity }] }
    }

    /// Reads a bundle as a `caBundle` or `ca.crt` holds it: PEM certificates one after another.
    ///
    /// # Errors
    ///
    /// When there is no certificate, or any of them does not parse.
    pub fn from_pem(pem: &[u8]) -> Result<Self, BundleError> {
        let mut bundle = Self { entries: Vec::new() };
        for (index, certificate) in pem::parse_certificates(pem).context(PemSnafu)?.into_iter().enumerate() {
            let parsed = validity::parse(&certificate).context(CertificateSnafu { position: index + 1 })?;
            let validity = Validity::of(&parsed);
            bundle.push(Entry { certificate, validity });
        }
        Ok(bundle)
    }

    /// The bundle as PEM, in order
    #[must_use]
    pub fn to_pem(&self) -> String {
        self.certificates().map(pem::encode_certificate).collect()
    }

    /// This bundle followed by what `other` has besides. Put the newest first: then the order is the
    /// same on every replica.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let mut merged = self.clone();
        for entry in &other.entries {
            merged.push(entry.clone());
        }
        merged
    }

    /// What is left when the expired certificates are taken out, or `None` when all are expired
    #[must_use]
    pub fn without_expired(&self, now: SystemTime) -> Option<Self> {
        let entries: Vec<_> =
            self.entries.iter().filter(|entry| !entry.validity.is_over(now)).cloned().collect();
        (!entries.is_empty()).then_some(Self { entries })
    }

    /// What of this bundle is to be trusted besides `ca`, the authority in force: of the other
    /// certificates, newest first, each whose successor was made less than [`CA_OVERLAP`] ago, unless it
    /// is expired. So each retires in its turn, however fast the authorities follow one another.
    #[must_use]
    pub fn superseded_by(&self, ca: &CertificateAuthority, now: SystemTime) -> Option<Self> {
        let in_force = ca.trust_bundle();
        let mut entries: Vec<_> =
            self.entries.iter().filter(|entry| !in_force.entries.contains(entry)).cloned().collect();
        entries.sort_by_key(|entry| Reverse(entry.validity.not_before));
        let mut successor = ca.validity();
        entries.retain(|entry| {
            let successor = mem::replace(&mut successor, entry.validity);
            successor.age(now) < CA_OVERLAP && !entry.validity.is_over(now)
        });
        (!entries.is_empty()).then_some(Self { entries })
    }

    /// The certificates, in order; there is at least one
    pub fn certificates(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.entries.iter().map(|entry| &entry.certificate)
    }

    /// SHA-256 of each certificate in lower-case hex, for logs
    pub fn fingerprints(&self) -> impl Iterator<Item = String> {
        self.certificates().map(validity::fingerprint)
    }

    /// The anchors a verifier may use at `now`. The validity is looked at here, because
    /// rustls-webpki takes an anchor as it is, while Go refuses one out of its validity.
    pub(crate) fn anchors(&self, now: SystemTime) -> Vec<TrustAnchor<'_>> {
        self.entries
            .iter()
            .filter(|entry| entry.validity.contains(now))
            .filter_map(|entry| webpki::anchor_from_trusted_cert(&entry.certificate).ok())
            .collect()
    }

    fn push(&mut self, entry: Entry) {
        if !self.entries.contains(&entry) {
            self.entries.push(entry);
        }
    }
}
