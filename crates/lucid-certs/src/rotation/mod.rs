//! How replicas that share a certificate authority replace it, as values: no I/O, no clock, no keys
//!
//! A replica reads the targets, then [`Shared`] from the Secret, and asks for the next [`Step`]. Each step
//! is one change of the Secret by compare-and-swap, so of several replicas that take the same step one
//! does it and the others find it done; a replica that ends anywhere leaves a Secret from which any other
//! goes on. What is to be in the targets follows from the Secret alone ([`Shared::trusted`]).

mod timing;

#[cfg(test)]
mod model;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    mem,
    time::{Duration, Instant, SystemTime},
};

pub use timing::{Timing, TimingError};

use crate::{ca::CertificateAuthority, fingerprint::Fingerprint, metrics::Phase, validity::Validity};

/// An authority, as far as decisions need to know it. Two are the same when their certificates are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ca {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) validity: Validity,
}

impl PartialEq for Ca {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for Ca {}

impl PartialOrd for Ca {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ca {
    fn cmp(&self, other: &Self) -> Ordering {
        self.fingerprint.cmp(&other.fingerprint)
    }
}

impl Hash for Ca {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fingerprint.hash(state);
    }
}

/// What all replicas share, as it stands in the Secret
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Shared {
    /// Signs serving certificates
    pub(crate) signer: Ca,
    /// Will sign them
    pub(crate) next: Option<Ca>,
    /// Signed them, and some may still be in service. The next one can be among them, when it signed before.
    pub(crate) previous: BTreeSet<Previous>,
    /// Signed them, and must never be trusted again
    pub(crate) retired: BTreeSet<Ca>,
    /// Somebody wants another signer
    pub(crate) request: Option<Request>,
}

/// An authority that does not sign any more
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Previous {
    pub(crate) ca: Ca,
    /// When its last certificate is expired, with a margin
    pub(crate) retire_at: SystemTime,
}

/// Asks for another signer than the one it names; answered when that one signs no more
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) signer: Fingerprint,
    /// Whether trust in it, and in all before it, ends as soon as replicas had the time to follow
    pub(crate) urgent: bool,
}

/// What a replica has seen itself
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// For how long every target was seen to trust an authority, by a clock that nobody sets
    pub(crate) trusted_for: &'a BTreeMap<Fingerprint, Duration>,
    /// Who issued the certificate that this replica serves
    pub(crate) issuer: Option<Ca>,
    /// For how long it knows of an authority that it signs no more, by the same clock
    pub(crate) superseded_for: &'a BTreeMap<Fingerprint, Duration>,
}

/// Since when a replica knows of authorities that they sign no more
#[derive(Debug, Clone, Default)]
pub(crate) struct Superseded(BTreeMap<Fingerprint, Instant>);

impl Superseded {
    /// Takes note of what the Secret held at `at`.
    pub(crate) fn observe(&mut self, shared: &Shared, at: Instant) {
        let previous = shared.previous.iter().map(|previous| previous.ca).filter(|ca| *ca != shared.signer);
        self.0 =
            previous.map(|ca| (ca.fingerprint, self.0.get(&ca.fingerprint).copied().unwrap_or(at))).collect();
    }

    /// For how long, at `at`
    pub(crate) fn durations(&self, at: Instant) -> BTreeMap<Fingerprint, Duration> {
        self.0.iter().map(|(ca, since)| (*ca, at.saturating_duration_since(*since))).collect()
    }
}

/// A change of the Secret
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// 1. A new authority becomes the next one.
    Publish,
    /// 4. The next one signs.
    Activate,
    /// 6. What signed before is not trusted any more.
    Retire,
    /// A new authority signs at once: the signer is expired, and so is all it signed.
    Replace,
    /// The issuer of the certificate in service, of which nobody knows, is one of those before.
    HandOn(Ca),
    /// Nothing is to be changed.
    Rest,
}

impl Ca {
    pub(crate) fn of(authority: &CertificateAuthority) -> Self {
        Self { fingerprint: authority.fingerprint(), validity: authority.validity() }
    }

    /// Whether a new authority should be in its place: soon expired, or not valid yet because a clock was
    /// set back after it was made
    fn is_due(&self, timing: &Timing, now: SystemTime) -> bool {
        self.validity.is_over(now + timing.ca_renew_before) || now < self.validity.not_before
    }
}

impl Shared {
    /// An authority that nobody served under before
    pub(crate) fn new(signer: Ca) -> Self {
        Self { signer, next: None, previous: BTreeSet::new(), retired: BTreeSet::new(), request: None }
    }

    /// What this replica should change. Time in `seen` must have been taken before the Secret was read.
    pub(crate) fn step(&self, seen: Seen<'_>, timing: &Timing, now: SystemTime) -> Step {
        if let Some(issuer) = seen.issuer
            && !self.has_signed(&issuer)
            && !issuer.validity.is_over(now)
        {
            return Step::HandOn(issuer);
        }
        if self.retires_in(seen, timing, now).is_some_and(|wait| wait.is_zero()) {
            return Step::Retire;
        }
        let next = self.next.filter(|next| !next.is_due(timing, now));
        let expired = self.signer.validity.is_over(now);
        match next {
            Some(_) if expired => Step::Activate,
            Some(next) if is_settled(&next, seen, timing) => Step::Activate,
            Some(_) => Step::Rest,
            None if expired => Step::Replace,
            None if self.next.is_some() || self.is_signer_to_go(timing, now) => Step::Publish,
            None => Step::Rest,
        }
    }

    /// The Secret after a step, with `new` in the place of the authority that it makes
    pub(crate) fn after(&self, step: Step, new: Ca, timing: &Timing, now: SystemTime) -> Self {
        let mut after = self.clone();
        match step {
            Step::Publish => after.next = Some(new),
            Step::Activate => {
                if let Some(next) = after.next.take() {
                    after.supersede(next, timing, now);
                }
            }
            Step::Replace => {
                after.next = None;
                after.supersede(new, timing, now);
            }
            Step::Retire => {
                let (retired, previous) =
                    self.previous.iter().partition(|previous| previous.retire_at <= now);
                after.previous = previous;
                let retired: BTreeSet<Previous> = retired;
                let retired = retired.iter().map(|previous| previous.ca);
                after.retired.extend(retired.filter(|ca| self.signer != *ca && self.next != Some(*ca)));
            }
            Step::HandOn(ca) => {
                after.previous.insert(Previous { ca, retire_at: now + timing.drain });
            }
            Step::Rest => {}
        }
        // Of an expired one nobody needs to be warned.
        after.retired.retain(|ca| !ca.validity.is_over(now));
        after.previous.retain(|previous| !previous.ca.validity.is_over(now));
        let signer = after.signer.fingerprint;
        after.request = after.request.filter(|request| request.signer == signer);
        after
    }

    fn supersede(&mut self, signer: Ca, timing: &Timing, now: SystemTime) {
        let before = mem::replace(&mut self.signer, signer);
        self.previous.retain(|previous| previous.ca != signer);
        let request = self.request.take_if(|request| request.signer == before.fingerprint);
        let urgent = request.is_some_and(|request| request.urgent);
        self.previous.insert(Previous { ca: before, retire_at: now + timing.drain });
        if urgent {
            let soon = now + timing.urgent_drain();
            let sooner =
                |previous: &Previous| Previous { retire_at: previous.retire_at.min(soon), ..*previous };
            self.previous = self.previous.iter().map(sooner).collect();
        }
    }

    /// The same, with the wish for another signer. That it is urgent nobody takes back, and then what was to be the next
    /// one is not wanted either: its key lay beside the one that is compromised.
    pub(crate) fn requesting(&self, urgent: bool) -> Self {
        let mut all = self.clone();
        let signer = self.signer.fingerprint;
        let was_urgent = self.request.is_some_and(|request| request.signer == signer && request.urgent);
        all.request = Some(Request { signer, urgent: urgent || was_urgent });
        if urgent && !was_urgent {
            let next = all.next.take().filter(|next| !all.has_signed(next));
            all.retired.extend(next);
        }
        all
    }

    /// The same, where `others` may be in use by somebody, and stay trusted for a while
    pub(crate) fn adopting(&self, others: &BTreeSet<Ca>, timing: &Timing, now: SystemTime) -> Self {
        let retire_at = now + timing.drain;
        let others = others.iter().filter(|ca| !self.has_signed(ca) && !ca.validity.is_over(now));
        let mut all = self.clone();
        all.previous.extend(others.map(|ca| Previous { ca: *ca, retire_at }));
        all
    }

    /// Whether something is missing here that is still of consequence, which only somebody from outside can have taken
    /// away: a step leaves whom it supersedes among the previous, and these among the retired, until they expire.
    pub(crate) fn forgets(&self, memory: &Self, now: SystemTime) -> bool {
        let signed = memory.previous.iter().map(|previous| &previous.ca).chain([&memory.signer]);
        signed.filter(|ca| !ca.validity.is_over(now)).any(|ca| !self.has_signed(ca))
            || memory.retired.iter().any(|ca| !ca.validity.is_over(now) && !self.retired.contains(ca))
    }

    /// The same, with what `memory`, another reading of the Secret, knew besides
    pub(crate) fn with_memory(&self, memory: &Self, timing: &Timing, now: SystemTime) -> Self {
        let mut all = self.clone();
        all.retired.extend(memory.retired.iter().filter(|ca| !ca.validity.is_over(now)));
        let retired = &all.retired;
        all.next = all.next.filter(|next| !retired.contains(next));
        all.previous.retain(|previous| !retired.contains(&previous.ca));
        let known = memory.previous.iter().filter(|previous| !all.has_signed(&previous.ca));
        let known: Vec<_> = known.filter(|previous| !previous.ca.validity.is_over(now)).copied().collect();
        all.previous.extend(known);
        if memory.signer == self.signer {
            all.next = all.next.or(memory.next);
            // Nobody takes a wish to revoke back.
            if let Some(request) = memory.request.filter(|request| request.signer == self.signer.fingerprint)
            {
                all = all.requesting(request.urgent);
            }
        } else if !all.has_signed(&memory.signer) && !memory.signer.validity.is_over(now) {
            // Callers need time to hear of a signer, from wherever it comes.
            let found = mem::replace(&mut all.signer, memory.signer);
            all.next = Some(found);
            all.previous.insert(Previous { ca: found, retire_at: now + timing.drain });
        }
        all.adopting(&BTreeSet::from([memory.signer]), timing, now)
    }

    /// What every target is to hold. Never empty, and never without the issuer of what this replica serves,
    /// unless that is retired.
    pub(crate) fn trusted(&self, issuer: Option<Ca>, now: SystemTime) -> BTreeSet<Ca> {
        let issuer = issuer.filter(|issuer| !self.retired.contains(issuer));
        let others =
            self.next.into_iter().chain(self.previous.iter().map(|previous| previous.ca)).chain(issuer);
        let mut trusted: BTreeSet<_> = others.filter(|ca| !ca.validity.is_over(now)).collect();
        trusted.insert(self.signer);
        trusted
    }

    /// Whether every replica hears from the Secret that there may be certificates of this authority
    pub(crate) fn has_signed(&self, ca: &Ca) -> bool {
        self.signer == *ca
            || self.previous.iter().any(|previous| previous.ca == *ca)
            || self.retired.contains(ca)
    }

    /// Where the rotation stands
    pub(crate) fn phase(&self, seen: Seen<'_>, timing: &Timing, now: SystemTime) -> Phase {
        let urgent =
            self.request.is_some_and(|request| request.urgent && request.signer == self.signer.fingerprint);
        if urgent || self.signer.validity.is_over(now) {
            return Phase::Emergency;
        }
        match self.next {
            Some(next) if is_settled(&next, seen, timing) => Phase::Activate,
            Some(next) if seen.trusted_for.contains_key(&next.fingerprint) => Phase::Settle,
            Some(_) => Phase::Trust,
            None if self.is_signer_to_go(timing, now) => Phase::Publish,
            None if self.previous.iter().any(|previous| previous.retire_at <= now) => Phase::Retire,
            None if !self.previous.is_empty() => Phase::Drain,
            None => Phase::Stable,
        }
    }

    /// How long until the next step can be due by time alone, `None` when that is far away
    pub(crate) fn due_in(&self, seen: Seen<'_>, timing: &Timing, now: SystemTime) -> Option<Duration> {
        let settled = self
            .next
            .and_then(|next| Some(timing.settle.saturating_sub(*seen.trusted_for.get(&next.fingerprint)?)));
        settled.into_iter().chain(self.retires_in(seen, timing, now)).min()
    }

    /// How long until trust in some authority ends. The others had to have the time to follow, which a wall clock alone
    /// does not tell: it may be set, and differs from theirs.
    fn retires_in(&self, seen: Seen<'_>, timing: &Timing, now: SystemTime) -> Option<Duration> {
        let first = self.previous.iter().map(|previous| previous.retire_at).min()?;
        let superseded_for = |ca: Ca| seen.superseded_for.get(&ca.fingerprint).copied().unwrap_or_default();
        let due = self.previous.iter().filter(|previous| previous.retire_at <= first.max(now));
        let followed =
            due.map(|previous| timing.urgent_drain().saturating_sub(superseded_for(previous.ca))).max();
        Some(first.duration_since(now).unwrap_or_default().max(followed.unwrap_or_default()))
    }

    fn is_signer_to_go(&self, timing: &Timing, now: SystemTime) -> bool {
        self.signer.is_due(timing, now)
            || self.request.is_some_and(|request| request.signer == self.signer.fingerprint)
    }
}

fn is_settled(ca: &Ca, seen: Seen<'_>, timing: &Timing) -> bool {
    seen.trusted_for.get(&ca.fingerprint).is_some_and(|trusted| *trusted >= timing.settle)
}
