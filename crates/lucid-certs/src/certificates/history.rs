//! History of observed target contents.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant, SystemTime},
};

use crate::{bundle::TrustBundle, fingerprint::Fingerprint, target::Reading};

/// Retention of unrequested certificates in the targets if the source does not know which CAs are in use.
const RETAIN: Duration = Duration::from_hours(24);

/// Instants since which every target was observed to trust a CA. Uses the monotonic clock: setting the wall
/// clock must not shorten the settle time.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrustedSince(BTreeMap<Fingerprint, Instant>);

/// CAs that the callers of a target trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trusted {
    /// The target has no callers.
    All,
    /// CAs that every slot holds.
    Only(BTreeSet<Fingerprint>),
}

impl TrustedSince {
    /// Records the targets' contents at `at`. `offered` counts even if no target can hold it.
    pub(crate) fn observe(
        &mut self,
        targets: &[Option<Trusted>],
        offered: impl IntoIterator<Item = Fingerprint>,
        at: Instant,
    ) {
        let mut authorities: BTreeSet<Fingerprint> = self.0.keys().copied().collect();
        authorities.extend(offered);
        for target in targets.iter().flatten() {
            if let Trusted::Only(trusted) = target {
                authorities.extend(trusted);
            }
        }

        // An unreadable target pauses tracking but does not reset it.
        let is_complete = targets.iter().all(Option::is_some);
        for authority in authorities {
            if !targets.iter().flatten().all(|target| target.trusts(&authority)) {
                self.0.remove(&authority);
            } else if is_complete {
                self.0.entry(authority).or_insert(at);
            }
        }
    }

    /// Returns how long each CA has been trusted at `at`. Empty while any target is unreadable; CAs missing
    /// from the targets are left out.
    pub(crate) fn durations(
        &self,
        targets: &[Option<Trusted>],
        at: Instant,
    ) -> BTreeMap<Fingerprint, Duration> {
        let Some(targets) = targets.iter().map(Option::as_ref).collect::<Option<Vec<_>>>() else {
            return BTreeMap::new();
        };
        let is_trusted = |authority: &Fingerprint| targets.iter().all(|target| target.trusts(authority));
        let trusted = self.0.iter().filter(|(authority, _)| is_trusted(authority));
        trusted.map(|(authority, since)| (*authority, at.saturating_duration_since(*since))).collect()
    }
}

impl Trusted {
    pub(super) fn of(reading: &Reading) -> Self {
        let Some(bundle) = reading.bundle() else {
            return if reading.slots.is_empty() { Self::All } else { Self::Only(BTreeSet::new()) };
        };
        Self::Only(bundle.fingerprints().filter(|authority| reading.trusts(authority)).collect())
    }

    fn trusts(&self, authority: &Fingerprint) -> bool {
        match self {
            Self::All => true,
            Self::Only(trusted) => trusted.contains(authority),
        }
    }
}

/// Unrequested certificates in the targets and when each was first observed.
#[derive(Debug, Default)]
pub(super) struct Retained(BTreeMap<Fingerprint, Instant>);

impl Retained {
    /// Returns `bundle` plus the unexpired certificates in the targets, `live`, that have been there for less than
    /// [`RETAIN`].
    pub(super) fn add_to(
        &mut self,
        bundle: &TrustBundle,
        live: Option<TrustBundle>,
        at: Instant,
        now: SystemTime,
    ) -> TrustBundle {
        let extra = live.and_then(|live| {
            live.filter(|fingerprint, validity| !bundle.contains(fingerprint) && !validity.is_over(now))
        });
        let Some(extra) = extra else {
            self.0.clear();
            return bundle.clone();
        };
        self.0.retain(|fingerprint, _| extra.contains(fingerprint));
        let kept = extra.filter(|fingerprint, _| {
            at.saturating_duration_since(*self.0.entry(*fingerprint).or_insert(at)) < RETAIN
        });
        kept.map_or_else(|| bundle.clone(), |kept| bundle.merge(&kept))
    }
}
