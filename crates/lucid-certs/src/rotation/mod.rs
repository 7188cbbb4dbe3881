//! The CA rotation protocol as pure functions: no I/O, no clock, no keys.
//!
//! A replica reads the targets, then [`Shared`] from the Secret, and computes the next [`Step`]. Each step is
//! one compare-and-swap of the Secret: of several replicas that take the same step one succeeds, and the
//! others find it done. A replica can stop at any point, because any other can continue from the Secret. The
//! bundle for the targets depends on the Secret only ([`Shared::trusted`]).

#[cfg(test)]
mod tests;

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    mem,
    time::{Duration, Instant, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::{
    ca::CertificateAuthority, fingerprint::Fingerprint, source::Phase, timing::Timing, validity::Validity,
};

/// Time for other replicas to record the CA under which they serve, after a replica first saw a signer. Until then,
/// other certificates in the targets are kept.
const RECORD_PERIOD: Duration = Duration::from_secs(10);

/// A CA as seen by the protocol. Equality compares certificates only.
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

/// State that all replicas share in the Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) signer: Ca,
    /// The next signer, during a rotation.
    pub(crate) next: Option<Ca>,
    /// Former signers whose certificates may still be in service, with the time at which trust in them ends: expiry of
    /// the last certificate, plus a margin. Can include `next` if it signed before.
    pub(crate) previous: BTreeMap<Ca, SystemTime>,
    /// Former signers that must never be trusted again.
    pub(crate) retired: BTreeSet<Ca>,
    pub(crate) request: Option<Request>,
}

/// Request to replace the named signer. Fulfilled once another CA signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) signer: Fingerprint,
    /// `true` if trust in the signer and all former ones ends as soon as replicas had time to follow.
    pub(crate) urgent: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// Time for which every target was observed to trust each CA, by the monotonic clock.
    pub(crate) trusted_for: &'a BTreeMap<Fingerprint, Duration>,
    /// Issuer of the certificate in service.
    pub(crate) issuer: Option<Ca>,
    /// Time for which the replica has known each former signer to be superseded, by the monotonic clock.
    pub(crate) superseded_for: &'a BTreeMap<Fingerprint, Duration>,
}

/// Times at which a replica first saw the signer and that others were superseded, by the monotonic clock.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownSince {
    signer: Option<(Fingerprint, Instant)>,
    superseded: BTreeMap<Fingerprint, Instant>,
}

impl KnownSince {
    pub(crate) fn observe(&mut self, shared: &Shared, at: Instant) {
        let signer = shared.signer.fingerprint;
        self.signer = self.signer.filter(|(known, _)| *known == signer).or(Some((signer, at)));
        let previous = shared.previous.keys().map(|ca| ca.fingerprint).filter(|ca| *ca != signer);
        self.superseded = previous.map(|ca| (ca, self.superseded.get(&ca).copied().unwrap_or(at))).collect();
    }

    pub(crate) fn superseded_for(&self, at: Instant) -> BTreeMap<Fingerprint, Duration> {
        self.superseded.iter().map(|(ca, since)| (*ca, at.saturating_duration_since(*since))).collect()
    }

    /// Returns the rest of the [`RECORD_PERIOD`] at `at`.
    pub(crate) fn record_period(&self, at: Instant) -> Option<Duration> {
        let known = self.signer.map(|(_, since)| at.saturating_duration_since(since));
        RECORD_PERIOD.checked_sub(known.unwrap_or_default())
    }
}

/// Time at which a replica switches to a new signer; spread across replicas.
#[derive(Debug, Clone, Default)]
pub(crate) struct SwitchTime(Option<(Ca, Instant)>);

impl SwitchTime {
    /// Returns `true` if the replica should wait. `pause` is its time to wait for a signer that it did not know.
    pub(crate) fn waits(&mut self, signer: Ca, pause: Duration, now: Instant) -> bool {
        let known = self.0.filter(|(known, _)| *known == signer);
        let (_, at) = *self.0.insert(known.unwrap_or((signer, now + pause)));
        now < at
    }

    pub(crate) fn due_in(&self, now: Instant) -> Option<Duration> {
        self.0.map(|(_, at)| at.saturating_duration_since(now))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Step 1: a new CA becomes `next`.
    Publish,
    /// Step 4: `next` becomes the signer.
    Activate,
    /// Step 6: former signers are no longer trusted.
    Retire,
    /// A new CA signs immediately, because the signer and all of its certificates have expired.
    Replace,
    /// Records the issuer of the certificate in service as a former signer, because the Secret lacks it.
    RecordIssuer(Ca),
    None,
}

impl Ca {
    pub(crate) fn of(authority: &CertificateAuthority) -> Self {
        Self { fingerprint: authority.fingerprint(), validity: authority.validity() }
    }

    /// Returns `true` if the CA has to be replaced: it expires soon, or it is not valid yet because the clock
    /// was set back.
    fn is_due(&self, timing: &Timing, now: SystemTime) -> bool {
        self.validity.is_over(now + timing.ca_renew_before) || now < self.validity.not_before
    }
}

impl Shared {
    pub(crate) fn new(signer: Ca) -> Self {
        Self { signer, next: None, previous: BTreeMap::new(), retired: BTreeSet::new(), request: None }
    }

    /// Returns the step that this replica should take. `seen` must be captured before the Secret is read.
    pub(crate) fn step(&self, seen: Seen<'_>, timing: &Timing, now: SystemTime) -> Step {
        if let Some(issuer) = seen.issuer
            && !self.has_signed(&issuer)
            && !issuer.validity.is_over(now)
        {
            return Step::RecordIssuer(issuer);
        }
        if self.retires_in(seen, timing, now).is_some_and(|wait| wait.is_zero()) {
            return Step::Retire;
        }
        let next = self.next.filter(|next| !next.is_due(timing, now));
        let expired = self.signer.validity.is_over(now);
        match next {
            Some(_) if expired => Step::Activate,
            Some(next) if is_settled(&next, seen, timing) => Step::Activate,
            Some(_) => Step::None,
            None if expired => Step::Replace,
            None if self.next.is_some() || self.is_signer_due(timing, now) => Step::Publish,
            None => Step::None,
        }
    }

    /// Returns the state after a step. `new` is the CA that the step creates.
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
                after.previous.retain(|_, retire_at| *retire_at > now);
                let retired = self.previous.keys().filter(|ca| !after.previous.contains_key(ca));
                after.retired.extend(retired.filter(|ca| self.signer != **ca && self.next != Some(**ca)));
            }
            Step::RecordIssuer(ca) => {
                after.previous.insert(ca, now + timing.drain);
            }
            Step::None => {}
        }
        // Expired CAs need no record.
        after.retired.retain(|ca| !ca.validity.is_over(now));
        after.previous.retain(|ca, _| !ca.validity.is_over(now));
        let signer = after.signer.fingerprint;
        after.request = after.request.filter(|request| request.signer == signer);
        after
    }

    fn supersede(&mut self, signer: Ca, timing: &Timing, now: SystemTime) {
        let before = mem::replace(&mut self.signer, signer);
        self.previous.remove(&signer);
        let request = self.request.take_if(|request| request.signer == before.fingerprint);
        self.previous.insert(before, now + timing.drain);
        if request.is_some_and(|request| request.urgent) {
            let soon = now + timing.urgent_drain();
            self.previous.values_mut().for_each(|retire_at| *retire_at = soon.min(*retire_at));
        }
    }

    /// Adds a rotation request. An urgent request is never downgraded. It also drops `next`, whose key was
    /// stored beside the compromised one.
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

    /// Adds `others`, which may be in use, as former signers.
    pub(crate) fn adopting(&self, others: &BTreeSet<Ca>, timing: &Timing, now: SystemTime) -> Self {
        let retire_at = now + timing.drain;
        let others = others.iter().filter(|ca| !self.has_signed(ca) && !ca.validity.is_over(now));
        let mut all = self.clone();
        all.previous.extend(others.map(|ca| (*ca, retire_at)));
        all
    }

    /// Returns `true` if a relevant record of `memory` is missing. Steps never remove one: they keep
    /// superseded signers in `previous`, and these in `retired`, until they expire. Only an external change
    /// can.
    pub(crate) fn lacks_records_of(&self, memory: &Self, now: SystemTime) -> bool {
        let signed = memory.previous.keys().chain([&memory.signer]);
        signed.filter(|ca| !ca.validity.is_over(now)).any(|ca| !self.has_signed(ca))
            || memory.retired.iter().any(|ca| !ca.validity.is_over(now) && !self.retired.contains(ca))
    }

    /// Merges the state with `memory`, an earlier reading of the Secret.
    pub(crate) fn with_memory(&self, memory: &Self, timing: &Timing, now: SystemTime) -> Self {
        let mut all = self.clone();
        all.retired.extend(memory.retired.iter().filter(|ca| !ca.validity.is_over(now)));
        let retired = &all.retired;
        all.next = all.next.filter(|next| !retired.contains(next));
        all.previous.retain(|ca, _| !retired.contains(ca));
        for (ca, retire_at) in &memory.previous {
            if !all.has_signed(ca) && !ca.validity.is_over(now) {
                all.previous.insert(*ca, *retire_at);
            }
        }
        if memory.signer == self.signer {
            all.next = all.next.or(memory.next);
            // Urgent requests are never lost.
            if let Some(request) = memory.request.filter(|request| request.signer == self.signer.fingerprint)
            {
                all = all.requesting(request.urgent);
            }
        } else if !all.has_signed(&memory.signer) && !memory.signer.validity.is_over(now) {
            // Callers need time to observe a new signer, whatever its origin.
            let found = mem::replace(&mut all.signer, memory.signer);
            all.next = Some(found);
            all.previous.insert(found, now + timing.drain);
        }
        all.adopting(&BTreeSet::from([memory.signer]), timing, now)
    }

    /// Returns the CAs that every target has to hold: always the signer, and the issuer of the certificate in
    /// service unless it is retired.
    pub(crate) fn trusted(&self, issuer: Option<Ca>, now: SystemTime) -> BTreeSet<Ca> {
        let issuer = issuer.filter(|issuer| !self.retired.contains(issuer));
        let others = self.previous.keys().copied().chain(self.next).chain(issuer);
        let mut trusted: BTreeSet<_> = others.filter(|ca| !ca.validity.is_over(now)).collect();
        trusted.insert(self.signer);
        trusted
    }

    pub(crate) fn has_signed(&self, ca: &Ca) -> bool {
        self.signer == *ca || self.previous.contains_key(ca) || self.retired.contains(ca)
    }

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
            None if self.is_signer_due(timing, now) => Phase::Publish,
            None if self.previous.values().any(|retire_at| *retire_at <= now) => Phase::Retire,
            None if !self.previous.is_empty() => Phase::Drain,
            None => Phase::Stable,
        }
    }

    /// Returns the time until the next step can become due by time alone, or `None` if it is far away.
    pub(crate) fn due_in(&self, seen: Seen<'_>, timing: &Timing, now: SystemTime) -> Option<Duration> {
        let settled = self
            .next
            .and_then(|next| Some(timing.settle.saturating_sub(*seen.trusted_for.get(&next.fingerprint)?)));
        settled.into_iter().chain(self.retires_in(seen, timing, now)).min()
    }

    /// Returns the time until the next CA retires. Also waits until other replicas had time to follow, by the
    /// monotonic clock: wall clocks may be set and differ between replicas.
    fn retires_in(&self, seen: Seen<'_>, timing: &Timing, now: SystemTime) -> Option<Duration> {
        let first = *self.previous.values().min()?;
        let superseded_for = |ca: &Ca| seen.superseded_for.get(&ca.fingerprint).copied().unwrap_or_default();
        let due = self.previous.iter().filter(|(_, retire_at)| **retire_at <= first.max(now));
        let followed = due.map(|(ca, _)| timing.urgent_drain().saturating_sub(superseded_for(ca))).max();
        Some(first.duration_since(now).unwrap_or_default().max(followed.unwrap_or_default()))
    }

    fn is_signer_due(&self, timing: &Timing, now: SystemTime) -> bool {
        self.signer.is_due(timing, now)
            || self.request.is_some_and(|request| request.signer == self.signer.fingerprint)
    }
}

fn is_settled(ca: &Ca, seen: Seen<'_>, timing: &Timing) -> bool {
    seen.trusted_for.get(&ca.fingerprint).is_some_and(|trusted| *trusted >= timing.settle)
}
