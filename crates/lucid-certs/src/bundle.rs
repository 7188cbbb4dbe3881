//! The certificates a client trusts

use std::{cmp::Reverse, collections::BTreeMap, time::SystemTime};

use rustls::pki_types::CertificateDer;
use snafu::{ResultExt, Snafu};
use x509_parser::error::X509Error;

use crate::{
    anchor::{Anchor, Purpose, Unfit},
    fingerprint::Fingerprint,
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
        #[snafu(source(from(X509Error, Box::from)))]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A set of CA certificates without duplicates and never empty: the value of a `caBundle` field.
///
/// The newest comes first, by the begin of its validity, and of several the one with the smaller
/// fingerprint: who writes the same set writes the same bytes.
///
/// An empty bundle would make an API server fall back to the roots of its host, and one of which nothing
/// parses fails each call, so neither can be made: every entry is a certificate that was read.
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
    entries: BTreeMap<(Reverse<SystemTime>, Fingerprint), Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    certificate: CertificateDer<'static>,
    validity: Validity,
}

impl TrustBundle {
    pub(crate) fn of(certificate: CertificateDer<'static>, validity: Validity) -> Self {
        let key = (Reverse(validity.not_before), Fingerprint::of(&certificate));
        Self { entries: BTreeMap::from([(key, Entry { certificate, validity })]) }
    }

    /// Reads a bundle as a `caBundle` or `ca.crt` holds it: PEM certificates one after another.
    ///
    /// # Errors
    ///
    /// When there is no certificate, or any of them does not parse.
    pub fn from_pem(pem: &[u8]) -> Result<Self, BundleError> {
        let mut bundle = Self { entries: BTreeMap::new() };
        for (index, certificate) in pem::parse_certificates(pem).context(PemSnafu)?.into_iter().enumerate() {
            let parsed = validity::parse(&certificate).context(CertificateSnafu { position: index + 1 })?;
            let validity = Validity::of(&parsed);
            bundle.entries.extend(Self::of(certificate, validity).entries);
        }
        Ok(bundle)
    }

    /// What of a text an API server trusts (Go's `x509.CertPool.AppendCertsFromPEM`): what does not parse is passed over.
    #[cfg(feature = "runtime")]
    pub(crate) fn from_pem_lossy(pem: &[u8]) -> Option<Self> {
        const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
        let text = String::from_utf8_lossy(pem);
        let sections = text.split(BEGIN).skip(1).map(|section| format!("{BEGIN}{section}"));
        sections
            .filter_map(|section| Self::from_pem(section.as_bytes()).ok())
            .reduce(|all, bundle| all.merge(&bundle))
    }

    /// The bundle as PEM, in order
    #[must_use]
    pub fn to_pem(&self) -> String {
        self.certificates().map(pem::encode_certificate).collect()
    }

    /// What is in this bundle, in `other`, or in both
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let mut merged = self.clone();
        merged.entries.extend(other.entries.clone());
        merged
    }

    /// Those of its certificates that `keep` accepts, or `None` when it accepts none
    #[must_use]
    pub fn filter(&self, mut keep: impl FnMut(&Fingerprint, Validity) -> bool) -> Option<Self> {
        let mut entries = self.entries.clone();
        entries.retain(|(_, fingerprint), entry| keep(fingerprint, entry.validity));
        (!entries.is_empty()).then_some(Self { entries })
    }

    /// Whether it holds the certificate with this fingerprint
    #[must_use]
    pub fn contains(&self, fingerprint: &Fingerprint) -> bool {
        self.fingerprints().any(|held| held == *fingerprint)
    }

    /// What is left when the expired certificates are taken out, or `None` when all are expired
    #[must_use]
    pub fn without_expired(&self, now: SystemTime) -> Option<Self> {
        self.filter(|_, validity| !validity.is_over(now))
    }

    /// The certificates, in order; there is at least one
    pub fn certificates(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.entries.values().map(|entry| &entry.certificate)
    }

    /// Of each certificate, in order
    pub fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        self.entries.keys().map(|(_, fingerprint)| *fingerprint)
    }

    /// Of each certificate, in order, with its validity
    pub fn validities(&self) -> impl Iterator<Item = (Fingerprint, Validity)> {
        self.entries.iter().map(|((_, fingerprint), entry)| (*fingerprint, entry.validity))
    }

    /// Those that vouch for servers at `now`, as Go sees it, or why each does not
    pub(crate) fn anchors(&self, now: SystemTime) -> Result<Vec<Anchor<'_>>, Vec<(Fingerprint, Unfit)>> {
        let (mut anchors, mut left_out) = (Vec::new(), Vec::new());
        for ((_, fingerprint), entry) in &self.entries {
            match Anchor::of(&entry.certificate, Purpose::Servers).and_then(|anchor| anchor.valid_at(now)) {
                Ok(anchor) => anchors.push(anchor),
                Err(unfit) => left_out.push((*fingerprint, unfit)),
            }
        }
        if anchors.is_empty() { Err(left_out) } else { Ok(anchors) }
    }
}
