//! Conversion between the Secret and its values.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use lucid_text::with_causes;
use serde::{Deserialize, Serialize};

use crate::{
    bundle::TrustBundle,
    ca::{CertificateAuthority, SERVING_LIFETIME},
    fingerprint::Fingerprint,
    names::ServingNames,
    rotation::{Ca, Request, Shared, Step},
    serving::PairError,
    source::{Reason, SourceError},
    timing::Timing,
    validity::Validity,
};

/// Keys of a Secret of type `kubernetes.io/tls`; the third is a convention of cert-manager.
pub(super) const CERTIFICATE: &str = "tls.crt";
pub(super) const PRIVATE_KEY: &str = "tls.key";
pub(super) const TRUST_BUNDLE: &str = "ca.crt";
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_PRIVATE_KEY: &str = "next.key";
/// State that the certificates do not contain.
const ROTATION: &str = "rotation.json";

const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "lucid-certs");

#[derive(Debug, Clone)]
pub(crate) struct Contents {
    pub(crate) shared: Shared,
    signer: Arc<CertificateAuthority>,
    next: Option<Arc<CertificateAuthority>>,
    /// Certificates of all CAs in `shared`, except retired ones.
    certificates: TrustBundle,
}

/// Contents of a Secret, with damage to repair that does not prevent its use.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) contents: Contents,
    pub(crate) damage: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rotation {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    previous: BTreeMap<Fingerprint, PreviousCa>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    retired: BTreeMap<Fingerprint, RetiredCa>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rotate: Option<Request>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PreviousCa {
    retire_at: Timestamp,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RetiredCa {
    not_before: Timestamp,
    not_after: Timestamp,
}

impl Contents {
    /// Creates contents with a first CA. Other CAs in `trusted` may be in use and stay trusted until they
    /// drain.
    pub(crate) fn new(
        signer: CertificateAuthority,
        trusted: Option<&TrustBundle>,
        timing: &Timing,
        now: SystemTime,
    ) -> Self {
        let shared = Shared::new(Ca::of(&signer));
        let certificates = signer.trust_bundle();
        let contents = Self { shared, signer: Arc::new(signer), next: None, certificates };
        contents.adopting(trusted, timing, now)
    }

    /// Adds the CAs in `trusted`, which may be in use, as previous CAs.
    pub(crate) fn adopting(&self, trusted: Option<&TrustBundle>, timing: &Timing, now: SystemTime) -> Self {
        let others = trusted.into_iter().flat_map(TrustBundle::validities).map(Ca::from).collect();
        self.with(self.shared.adopting(&others, timing, now), [], trusted)
    }

    /// Returns contents in the state `shared`, with the keys and certificates of `self`, and additional ones.
    fn with<'a>(
        &'a self,
        shared: Shared,
        authorities: impl IntoIterator<Item = &'a Arc<CertificateAuthority>>,
        certificates: Option<&TrustBundle>,
    ) -> Self {
        let all: Vec<_> = [&self.signer].into_iter().chain(&self.next).chain(authorities).collect();
        let of = |ca: Ca| all.iter().find(|authority| Ca::of(authority) == ca).map(|it| Arc::clone(it));
        let known = certificates.into_iter().fold(self.certificates.clone(), |all, more| all.merge(more));
        Self {
            signer: of(shared.signer).unwrap_or_else(|| Arc::clone(&self.signer)),
            next: shared.next.and_then(of),
            certificates: all.iter().fold(known, |known, authority| known.merge(&authority.trust_bundle())),
            shared,
        }
    }

    /// Parses a Secret. Problems outside of the signer are reported as damage.
    pub(crate) fn read(
        secret: &Secret,
        names: Option<&ServingNames>,
        timing: &Timing,
        now: SystemTime,
    ) -> Result<Found, SourceError> {
        let signer = read_authority(secret, CERTIFICATE, PRIVATE_KEY, names)?;
        let mut damage = Vec::new();
        let next = if value(secret, NEXT_CERTIFICATE).is_some() || value(secret, NEXT_PRIVATE_KEY).is_some() {
            read_authority(secret, NEXT_CERTIFICATE, NEXT_PRIVATE_KEY, names)
                .map_err(|error| damage.push(format!("{NEXT_CERTIFICATE}: {error}")))
                .ok()
        } else {
            None
        };
        let rotation = match value(secret, ROTATION).map(serde_json::from_slice::<Rotation>) {
            None => Rotation::default(),
            Some(Ok(rotation)) => rotation,
            Some(Err(error)) => {
                damage.push(format!("{ROTATION}: {error}"));
                Rotation::default()
            }
        };
        let bundle = match value(secret, TRUST_BUNDLE).map(TrustBundle::from_pem) {
            None => None,
            Some(Ok(bundle)) => Some(bundle),
            Some(Err(error)) => {
                damage.push(format!("{TRUST_BUNDLE}: {}", with_causes(&error)));
                None
            }
        };

        let retired: BTreeSet<Ca> = rotation.retired.iter().map(Ca::from).collect();
        let own = next.iter().fold(signer.trust_bundle(), |own, next| own.merge(&next.trust_bundle()));
        let mut previous = BTreeMap::new();
        for ca in bundle.iter().flat_map(TrustBundle::validities).map(Ca::from) {
            let recorded = rotation.previous.get(&ca.fingerprint).map(|previous| previous.retire_at.into());
            let is_own = own.contains(&ca.fingerprint) && (recorded.is_none() || ca == Ca::of(&signer));
            if is_own || retired.contains(&ca) {
                continue;
            }
            if recorded.is_none() && is_ours(secret) {
                damage.push(format!("{TRUST_BUNDLE}: no retirement time recorded for {}", ca.fingerprint));
            }
            previous.insert(ca, recorded.unwrap_or(now + timing.drain));
        }
        let next_ca = next.as_ref().map(Ca::of);
        let request = rotation.rotate;
        let shared = Shared { signer: Ca::of(&signer), next: next_ca, previous, retired, request };
        let certificates = bundle.iter().fold(own, |all, bundle| all.merge(bundle));
        let contents = Self { shared, signer: Arc::new(signer), next: next.map(Arc::new), certificates };
        Ok(Found { contents, damage: (!damage.is_empty()).then(|| damage.join("; ")) })
    }

    /// Writes all contents into a Secret. Keeps its other keys, labels and annotations.
    pub(crate) fn write(&self, secret: &mut Secret) {
        mark(secret);
        let data = secret.data.get_or_insert_default();
        let mut put = |key: &str, text: Option<Vec<u8>>| match text {
            Some(text) => drop(data.insert(key.to_owned(), ByteString(text))),
            None => drop(data.remove(key)),
        };
        let certificate = |ca: &Arc<CertificateAuthority>| ca.trust_bundle().to_pem().into_bytes();
        let key = |ca: &Arc<CertificateAuthority>| ca.private_key_pem().as_bytes().to_vec();
        put(CERTIFICATE, Some(certificate(&self.signer)));
        put(PRIVATE_KEY, Some(key(&self.signer)));
        put(NEXT_CERTIFICATE, self.next.as_ref().map(certificate));
        put(NEXT_PRIVATE_KEY, self.next.as_ref().map(key));
        put(TRUST_BUNDLE, Some(self.bundle(&self.known()).to_pem().into_bytes()));
        put(ROTATION, serde_json::to_vec(&Rotation::of(&self.shared)).ok());
    }

    /// Returns the contents after a step. `new` is the CA that the step creates.
    pub(crate) fn after(
        &self,
        step: Step,
        new: Option<CertificateAuthority>,
        recorded: Option<&TrustBundle>,
        timing: &Timing,
        now: SystemTime,
    ) -> Self {
        let new = new.map(Arc::new);
        let ca = Ca::of(new.as_ref().unwrap_or(&self.signer));
        self.with(self.shared.after(step, ca, timing, now), &new, recorded)
    }

    pub(crate) fn with_memory(&self, memory: &Self, timing: &Timing, now: SystemTime) -> Self {
        let shared = self.shared.with_memory(&memory.shared, timing, now);
        self.with(shared, [&memory.signer].into_iter().chain(&memory.next), Some(&memory.certificates))
    }

    /// Adds the rotation records of a Secret whose CA is unusable: revoked CAs stay revoked, and no CA is
    /// trusted for longer than recorded.
    pub(crate) fn with_rotation_of(mut self, secret: &Secret, timing: &Timing, now: SystemTime) -> Self {
        let text = value(secret, ROTATION).unwrap_or_default();
        let Ok(rotation) = serde_json::from_slice::<Rotation>(text) else { return self };
        self.shared.retired.extend(rotation.retired.iter().map(Ca::from));
        let is_urgent = rotation.rotate.is_some_and(|rotate| rotate.urgent);
        let soon = is_urgent.then(|| now + timing.urgent_drain());
        let Shared { previous, retired, .. } = &mut self.shared;
        previous.retain(|ca, _| !retired.contains(ca));
        for (ca, retire_at) in previous {
            let recorded = rotation.previous.get(&ca.fingerprint);
            let ends = recorded.map(|recorded| recorded.retire_at.into()).into_iter().chain(soon);
            *retire_at = ends.fold(*retire_at, SystemTime::min);
        }
        self
    }

    pub(crate) fn with_request(&self, urgent: bool) -> Self {
        self.with(self.shared.requesting(urgent), [], None)
    }

    pub(crate) fn signer(&self) -> &Arc<CertificateAuthority> {
        &self.signer
    }

    pub(crate) fn bundle(&self, authorities: &BTreeSet<Ca>) -> TrustBundle {
        self.bundle_with(None, authorities)
    }

    /// As [`bundle`](Self::bundle), where `other` holds CAs that only this replica knows.
    pub(crate) fn bundle_with(&self, other: Option<&TrustBundle>, authorities: &BTreeSet<Ca>) -> TrustBundle {
        let named =
            |fingerprint: &Fingerprint, _| authorities.iter().any(|ca| ca.fingerprint == *fingerprint);
        let certificates = other.iter().fold(self.certificates.clone(), |all, other| all.merge(other));
        certificates.filter(named).unwrap_or_else(|| self.signer.trust_bundle())
    }

    fn known(&self) -> BTreeSet<Ca> {
        let Shared { signer, next, previous, .. } = &self.shared;
        [*signer].into_iter().chain(*next).chain(previous.keys().copied()).collect()
    }
}

impl Rotation {
    fn of(shared: &Shared) -> Self {
        // Times out of range are after the year 9999.
        let timestamp = |time: SystemTime| Timestamp::try_from(time).unwrap_or(Timestamp::MAX);
        let retired = |ca: &Ca| RetiredCa {
            not_before: timestamp(ca.validity.not_before),
            not_after: timestamp(ca.validity.not_after),
        };
        Self {
            previous: shared
                .previous
                .iter()
                .map(|(ca, retire_at)| (ca.fingerprint, PreviousCa { retire_at: timestamp(*retire_at) }))
                .collect(),
            retired: shared.retired.iter().map(|ca| (ca.fingerprint, retired(ca))).collect(),
            rotate: shared.request,
        }
    }
}

impl From<(Fingerprint, Validity)> for Ca {
    fn from((fingerprint, validity): (Fingerprint, Validity)) -> Self {
        Self { fingerprint, validity }
    }
}

impl From<(&Fingerprint, &RetiredCa)> for Ca {
    fn from((fingerprint, retired): (&Fingerprint, &RetiredCa)) -> Self {
        let validity =
            Validity { not_before: retired.not_before.into(), not_after: retired.not_after.into() };
        Self { fingerprint: *fingerprint, validity }
    }
}

/// Parses a CA from two keys. Accepts a CA outside its validity period; the rotation steps handle it.
fn read_authority(
    secret: &Secret,
    certificate_key: &'static str,
    private_key_key: &'static str,
    names: Option<&ServingNames>,
) -> Result<CertificateAuthority, SourceError> {
    let malformed = |problem: String| SourceError::new(Reason::Malformed, problem);
    let text = |key| value(secret, key).ok_or_else(|| malformed(format!("key {key} is missing")));
    let unusable = |error: PairError| {
        let key = match error {
            PairError::Key { .. } => private_key_key,
            PairError::Mismatch { .. } => "tls.crt with tls.key",
            _ => certificate_key,
        };
        malformed(format!("{key} holds no usable certificate authority: {}", with_causes(&error)))
    };
    let (certificate, private_key) = (text(certificate_key)?, text(private_key_key)?);
    TrustBundle::from_pem(certificate).map_err(|error| {
        malformed(format!("{certificate_key} holds no certificate: {}", with_causes(&error)))
    })?;
    let ca = CertificateAuthority::from_pem_at_any_time(certificate, private_key).map_err(unusable)?;
    if let Some(names) = names {
        let then = ca.validity().not_before;
        let leaf = ca.issue_for(SERVING_LIFETIME, names, then).map_err(unusable)?;
        leaf.verify_for(names, &ca.trust_bundle(), then).map_err(|error| {
            malformed(format!(
                "{certificate_key} holds a certificate authority that may not serve our names: {}",
                with_causes(&error)
            ))
        })?;
    }
    Ok(ca)
}

/// Returns all certificates that can be parsed, ignoring other damage.
pub(super) fn salvage(secret: &Secret) -> Option<TrustBundle> {
    [CERTIFICATE, NEXT_CERTIFICATE, TRUST_BUNDLE]
        .iter()
        .filter_map(|key| TrustBundle::from_pem(value(secret, key)?).ok())
        .reduce(|all, bundle| all.merge(&bundle))
}

pub(super) fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    Some(&secret.data.as_ref()?.get(key)?.0)
}

pub(super) fn mark(secret: &mut Secret) {
    let (label, manager) = MANAGED_BY;
    secret.metadata.labels.get_or_insert_default().insert(label.to_owned(), manager.to_owned());
}

pub(super) fn is_ours(secret: &Secret) -> bool {
    let (label, manager) = MANAGED_BY;
    secret.metadata.labels.as_ref().and_then(|labels| labels.get(label)).is_some_and(|value| value == manager)
}
