//! Trust bundles of clients.

use std::{cmp::Reverse, collections::BTreeMap, time::SystemTime};

use rustls::pki_types::CertificateDer;
use snafu::{ResultExt, Snafu};

use crate::{
    anchor::{Anchor, Purpose},
    error::Error,
    fingerprint::Fingerprint,
    pem,
    validity::Validity,
    x509::Certificate,
};

#[derive(Debug, Snafu)]
#[snafu(display("{problem}"))]
pub(crate) struct BundleError {
    problem: String,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// A non-empty set of CA certificates: the value of a `caBundle` field.
///
/// Certificates are sorted by `not_before`, newest first, then by fingerprint, so that equal sets have equal
/// bytes.
///
/// An empty or unparsable bundle cannot be constructed: with an empty one, an API server falls back to the
/// root CAs of its host; with an unparsable one, every call fails.
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

    /// Parses concatenated PEM certificates, as in a `caBundle` or `ca.crt`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no certificate, or if an API server would not parse one.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        let mut bundle = Self { entries: BTreeMap::new() };
        let certificates = pem::parse_certificates(pem).boxed();
        let certificates =
            certificates.context(BundleSnafu { problem: "failed to read the trust bundle" })?;
        for (index, certificate) in certificates.into_iter().enumerate() {
            let parsed = Certificate::parse(&certificate).boxed().with_context(|_| {
                let problem = format!("failed to read certificate {} of the trust bundle", index + 1);
                BundleSnafu { problem }
            })?;
            let validity = parsed.validity;
            bundle.entries.extend(Self::of(certificate, validity).entries);
        }
        Ok(bundle)
    }

    /// Parses the certificates that an API server trusts (Go's `x509.CertPool.AppendCertsFromPEM`): invalid
    /// sections are ignored.
    pub(crate) fn from_pem_lossy(pem: &[u8]) -> Option<Self> {
        let sections = pem::certificate_sections(pem).into_iter();
        sections.filter_map(|section| Self::from_pem(section).ok()).reduce(|all, bundle| all.merge(&bundle))
    }

    /// Returns the bundle as PEM, newest certificate first.
    #[must_use]
    pub fn to_pem(&self) -> String {
        self.certificates().map(pem::encode_certificate).collect()
    }

    /// Returns the union of both bundles.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let mut merged = self.clone();
        merged.entries.extend(other.entries.clone());
        merged
    }

    #[must_use]
    pub(crate) fn filter(&self, mut keep: impl FnMut(&Fingerprint, Validity) -> bool) -> Option<Self> {
        let mut entries = self.entries.clone();
        entries.retain(|(_, fingerprint), entry| keep(fingerprint, entry.validity));
        (!entries.is_empty()).then_some(Self { entries })
    }

    #[must_use]
    pub(crate) fn contains(&self, fingerprint: &Fingerprint) -> bool {
        self.fingerprints().any(|held| held == *fingerprint)
    }

    #[cfg(feature = "kube")]
    pub(crate) fn without_expired(&self, now: SystemTime) -> Option<Self> {
        self.filter(|_, validity| !validity.is_over(now))
    }

    /// Iterates over the certificates, newest first. There is at least one.
    pub fn certificates(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.entries.values().map(|entry| &entry.certificate)
    }

    /// Iterates over the fingerprints, newest certificate first.
    pub(crate) fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        self.entries.keys().map(|(_, fingerprint)| *fingerprint)
    }

    /// Iterates over fingerprints and validity periods, newest certificate first.
    pub fn validities(&self) -> impl Iterator<Item = (Fingerprint, Validity)> {
        self.entries.iter().map(|((_, fingerprint), entry)| (*fingerprint, entry.validity))
    }

    /// Returns the trust anchors for servers at `now`, as in Go, or the reason for each certificate if there
    /// are none.
    pub(crate) fn anchors(
        &self,
        now: SystemTime,
    ) -> Result<Vec<Anchor<'_>>, Vec<(Fingerprint, &'static str)>> {
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

#[cfg(all(test, feature = "kube"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{ca::CertificateAuthority, names::ServingNames};

    /// Go reads neither of the certificates if their sections are joined.
    #[test]
    fn bundles_of_targets_are_read_as_by_go() {
        let names = ServingNames::for_services("lucid-system", &["lucid-operator"]).unwrap();
        let [first, second] = [(); 2]
            .map(|()| CertificateAuthority::generate(&names, SystemTime::now()).unwrap().trust_bundle());
        let [one, two] = [&first, &second].map(TrustBundle::to_pem);
        let indented = format!("  {}", two.replace('\n', "\n  "));
        let trusted = two.replace("CERTIFICATE", "TRUSTED CERTIFICATE");
        let invalid = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (pem, expected) in [
            (one.clone() + &two, Some(first.merge(&second))),
            (one.trim_end().to_owned() + &two, None),
            (one.clone() + &indented, Some(first.clone())),
            (indented.trim_end().to_owned() + "\n" + &one, Some(first.clone())),
            (one.clone() + &trusted + &two, Some(first.merge(&second))),
            (invalid.to_owned() + &one, Some(first)),
            (format!("\u{feff}{one}{two}"), Some(second)),
            (one.replace('\n', "\r"), None),
            (one.replace('\n', "\\n"), None),
            (one.replace("-----\n", "----- # ours\n"), None),
            (String::new(), None),
        ] {
            assert_eq!(TrustBundle::from_pem_lossy(pem.as_bytes()), expected, "{pem}");
        }
    }

    #[test]
    fn expired_certificates_are_removed_but_never_all() {
        const DAY: Duration = Duration::from_hours(24);
        let names = ServingNames::for_services("lucid-system", &["lucid-operator"]).unwrap();
        let now = SystemTime::now();
        let generate = |at| CertificateAuthority::generate(&names, at).unwrap().trust_bundle();
        let (old, new) = (generate(now - 300 * DAY), generate(now));
        let both = new.merge(&old);

        assert_eq!(both.without_expired(now).unwrap(), both);
        assert_eq!(both.without_expired(now + 100 * DAY).unwrap(), new);
        assert_eq!(both.without_expired(now + 400 * DAY), None);
    }
}

impl From<BundleError> for Error {
    fn from(error: BundleError) -> Self {
        Self(Box::new(error))
    }
}
