//! A replica: the rounds of the driver with the self-managed source, one operation at a time.
//!
//! Between any two operations, other replicas may act, clocks may be set, and the replica may crash, which
//! discards all of its state. Decisions use the production functions.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::{Duration, Instant, SystemTime},
};

use super::{
    Wrong,
    world::{Late, Object, World, describe, millis, name},
};
use crate::{
    certificates::{
        history::{Trusted, TrustedSince},
        swap::{Candidate, Swap},
    },
    fingerprint::Fingerprint,
    rotation::{Ca, KnownSince, Seen, Shared, Step, SwitchTime},
    validity::BACKDATE,
    validity::Validity,
};

/// Delay before a replica becomes ready if it had to publish the bundle of its first certificate itself.
const FIRST_SETTLE: Duration = Duration::from_secs(2);
const TARGETS: std::ops::Range<u8> = 0..4;

/// Contents of the targets: `None` for an unreadable target, `Some(None)` for an absent one.
type Readings = BTreeMap<u8, Option<Option<Object>>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leaf {
    serial: u64,
    pub(super) issuer: Ca,
    pub(super) validity: Validity,
    renew_at: SystemTime,
}

#[derive(Debug, Clone)]
struct Offer {
    certificate: Option<Leaf>,
    trust: BTreeSet<Ca>,
    is_exact: bool,
    next_check: Duration,
}

/// In-memory state of a replica, lost in a crash.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) token: u64,
    pub(super) due: u64,
    /// `true` if something changed since the round began.
    pub(super) is_stale: bool,
    pc: Pc,
    trusted_since: TrustedSince,
    readings: Readings,
    /// The Secret as it was last read or written, with its version.
    pub(super) memory: Option<(Option<u64>, Shared)>,
    known_since: KnownSince,
    latest: Option<Leaf>,
    in_service: Option<Leaf>,
    switch: SwitchTime,
    pub(super) serving: Option<Leaf>,
    /// Certificate in service before `serving`.
    pub(super) before: Option<Leaf>,
    pub(super) swapped_at: u64,
    /// Versions of the objects that were read.
    pub(super) saw: BTreeSet<u64>,
    /// `true` if it started from a replaced Secret that no replica with memory had repaired yet.
    pub(super) started_without_records: bool,
    offer: Option<Offer>,
    proven: bool,
    pub(super) ready: bool,
    failures: u32,
}

#[derive(Debug, Default)]
enum Pc {
    #[default]
    Idle,
    Read {
        round: Round,
        left: Vec<u8>,
    },
    Get(Round),
    Step {
        round: Round,
        version: Option<u64>,
        shared: Shared,
        needs_repair: bool,
    },
    Offer {
        round: Round,
        shared: Shared,
        is_new: bool,
    },
    Write {
        round: Round,
        wanted: BTreeSet<Ca>,
        left: Vec<u8>,
    },
    Observe(Round),
    Swap(Round),
}

#[derive(Debug, Clone)]
struct Round {
    now: SystemTime,
    before: Readings,
    after: Readings,
    trusted_for: BTreeMap<Fingerprint, Duration>,
    /// Time at which the source was called.
    asked_at: Instant,
    is_fresh: bool,
    has_lost_race: bool,
    /// The Secret, for the fault that reads it before the targets.
    secret: Option<Option<(u64, Shared)>>,
}

impl Process {
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.pc, Pc::Idle)
    }

    fn observe(&mut self, readings: &Readings, at: Instant) {
        let offered: Vec<_> =
            self.offer.iter().flat_map(|offer| &offer.trust).map(|ca| ca.fingerprint).collect();
        self.trusted_since.observe(&trusted(readings), offered, at);
    }
}

impl World {
    fn process(&mut self, replica: usize) -> &mut Process {
        &mut self.replicas[replica].process
    }

    pub(super) fn step(&mut self, replica: usize) {
        let pc = mem::take(&mut self.process(replica).pc);
        let pc = self.next(replica, pc);
        if let Some(pc) = pc {
            self.process(replica).pc = pc;
            let latency = self.latency(replica);
            self.schedule(replica, latency);
        }
    }

    fn next(&mut self, replica: usize, pc: Pc) -> Option<Pc> {
        let instant = self.instant();
        Some(match pc {
            Pc::Idle => {
                self.process(replica).is_stale = false;
                let mut left: Vec<_> = TARGETS.collect();
                let first = self.random.below(left.len() as u64) as usize;
                left.rotate_left(first);
                let secret = (self.wrong == Some(Wrong::SecretBeforeTargets))
                    .then(|| self.secret.clone().map(|secret| (secret.version, secret.shared)));
                let round = Round {
                    now: self.now(replica),
                    before: Readings::new(),
                    after: Readings::new(),
                    trusted_for: BTreeMap::new(),
                    asked_at: instant,
                    is_fresh: false,
                    has_lost_race: false,
                    secret,
                };
                Pc::Read { round, left }
            }
            Pc::Read { mut round, mut left } => match left.pop() {
                Some(target) => {
                    let reading =
                        (!self.fails(replica)).then(|| self.targets.get(&target).cloned().flatten());
                    if let Some(Some(object)) = &reading {
                        self.process(replica).saw.insert(object.version);
                    }
                    round.before.insert(target, reading);
                    Pc::Read { round, left }
                }
                None => {
                    let process = self.process(replica);
                    process.observe(&round.before, instant);
                    round.trusted_for = process.trusted_since.durations(&trusted(&round.before), instant);
                    round.asked_at = instant;
                    Pc::Get(round)
                }
            },
            Pc::Get(round) => self.get(replica, round),
            Pc::Step { round, version, shared, needs_repair } => {
                self.change(replica, round, version, shared, needs_repair)
            }
            Pc::Offer { round, shared, is_new } => {
                let offer = self.offer(replica, &round, &shared, is_new);
                self.publish(replica, round, Some(offer))
            }
            Pc::Write { mut round, wanted, mut left } => match left.pop() {
                Some(target) => {
                    let Some(Some(Some(object))) = round.before.get(&target) else {
                        return Some(Pc::Write { round, wanted, left });
                    };
                    if object.bundle != wanted {
                        let after = self.write(replica, target, object.version, &wanted);
                        match after {
                            Ok(after) => drop(round.after.insert(target, after)),
                            Err(Conflict) => round.has_lost_race = true,
                        }
                    }
                    Pc::Write { round, wanted, left }
                }
                None => Pc::Observe(round),
            },
            Pc::Observe(round) => {
                let process = self.process(replica);
                process.observe(&round.after, instant);
                process.readings = round.after.clone();
                Pc::Swap(round)
            }
            Pc::Swap(round) => {
                self.swap(replica, &round);
                return None;
            }
        })
    }

    fn get(&mut self, replica: usize, round: Round) -> Pc {
        if self.fails(replica) {
            return self.publish(replica, round, None);
        }
        let now = round.now;
        let found = match &round.secret {
            Some(secret) => secret.clone(),
            None => self.secret.clone().map(|secret| (secret.version, secret.shared)),
        };
        let timing = self.scenario.timing;
        let lacks_records = self.lacks_records();
        let memory = self.process(replica).memory.clone();
        let version = found.as_ref().map(|(version, _)| *version);
        if memory.is_none() {
            self.process(replica).started_without_records = lacks_records;
        }
        let is_foreign = self.secret.as_ref().is_some_and(|secret| secret.is_foreign);
        let live: BTreeSet<Ca> =
            round.before.values().flatten().flatten().flat_map(|object| object.bundle.clone()).collect();
        let (shared, needs_repair) = match (found, memory) {
            (None, None) => {
                let signer = self.generate(now);
                (Shared::new(signer).adopting(&live, &timing, now), true)
            }
            (None, Some((_, memory))) => {
                let mut shared = memory.adopting(&live, &timing, now);
                shared.request =
                    Some(crate::rotation::Request { signer: shared.signer.fingerprint, urgent: false });
                (shared, true)
            }
            (Some((found, _)), Some((version, memory))) if version == Some(found) => (memory, false),
            (Some((_, shared)), Some((_, memory))) => {
                if self.wrong == Some(Wrong::StaleMemory) && self.random.one_in(2) {
                    (memory, false)
                } else if memory.retired.contains(&shared.signer) {
                    (memory.adopting(&live, &timing, now), true)
                } else if self.wrong != Some(Wrong::NoRecordOfIssuer) && shared.lacks_records_of(&memory, now)
                {
                    (shared.with_memory(&memory, &timing, now).adopting(&live, &timing, now), true)
                } else {
                    (shared, false)
                }
            }
            (Some((_, shared)), None) if is_foreign => {
                let adopted = shared.adopting(&live, &timing, now);
                let needs_repair = adopted != shared;
                (adopted, needs_repair)
            }
            (Some((_, shared)), None) => (shared, false),
        };
        if !needs_repair {
            self.remember(replica, version, &shared);
        }
        Pc::Step { round, version, shared, needs_repair }
    }

    fn change(
        &mut self,
        replica: usize,
        round: Round,
        version: Option<u64>,
        shared: Shared,
        needs_repair: bool,
    ) -> Pc {
        let timing = self.scenario.timing;
        let after = if needs_repair {
            shared
        } else {
            let instant = self.instant();
            let process = self.process(replica);
            let is_served =
                |leaf: &&Leaf| process.serving.as_ref().is_some_and(|serving| serving.serial == leaf.serial);
            if let Some(latest) = process.latest.as_ref().filter(is_served) {
                process.in_service = Some(latest.clone());
            }
            let issuer = process.in_service.as_ref().map(|leaf| leaf.issuer);
            let superseded_for = process.known_since.superseded_for(instant);
            let mut trusted_for = round.trusted_for.clone();
            if self.wrong == Some(Wrong::ActivateBeforeTrust) {
                trusted_for.extend(shared.next.map(|next| (next.fingerprint, timing.settle)));
            }
            if self.wrong == Some(Wrong::NoSettle) {
                trusted_for.values_mut().for_each(|trusted| *trusted = timing.settle);
            }
            let seen = Seen { trusted_for: &trusted_for, issuer, superseded_for: &superseded_for };
            let step = match shared.step(seen, &timing, round.now) {
                Step::RecordIssuer(_) if self.wrong == Some(Wrong::NoRecordOfIssuer) => Step::None,
                step => step,
            };
            if step == Step::None {
                let is_new = self.is_new(replica, round.asked_at);
                return Pc::Offer { round, shared, is_new };
            }
            let new = self.generate(round.now);
            let mut after = shared.after(step, new, &timing, round.now);
            if self.wrong == Some(Wrong::RetireAtOnce) && step == Step::Activate {
                after.previous.values_mut().for_each(|retire_at| *retire_at = SystemTime::UNIX_EPOCH);
            }
            self.note(|| format!("replica {replica} wants to {step:?}: {}", describe(&after)));
            after
        };
        let fails = self.fails(replica);
        let late = || Late::Secret { replica, version, shared: Box::new(after.clone()) };
        let written = if fails && !self.takes_effect(late) {
            None
        } else {
            self.put_secret(replica, version, after.clone())
        };
        match written {
            _ if fails => self.publish(replica, round, None),
            None if round.secret.is_some() => self.publish(replica, round, None),
            // Another replica won the race.
            None => Pc::Get(round),
            Some(version) => {
                self.remember(replica, Some(version), &after);
                Pc::Step { round, version: Some(version), shared: after, needs_repair: false }
            }
        }
    }

    fn is_new(&mut self, replica: usize, asked_at: Instant) -> bool {
        let period = self.process(replica).known_since.record_period(asked_at);
        self.wrong != Some(Wrong::NoRecordOfIssuer) && period.is_some_and(|period| !period.is_zero())
    }

    fn remember(&mut self, replica: usize, version: Option<u64>, shared: &Shared) {
        let instant = self.instant();
        let process = self.process(replica);
        process.known_since.observe(shared, instant);
        process.memory = Some((version, shared.clone()));
    }

    fn offer(&mut self, replica: usize, round: &Round, shared: &Shared, is_new: bool) -> Offer {
        let timing = self.scenario.timing;
        let now = round.now;
        let instant = self.instant();
        let spread = self.random.below(1000) as f64 / 1000.0;
        let serial = self.serial();
        let process = self.process(replica);

        let is_good = |leaf: &Leaf| {
            now < leaf.renew_at && leaf.validity.contains(now) && !shared.retired.contains(&leaf.issuer)
        };
        let certificate = match process.latest.clone().filter(is_good) {
            Some(latest)
                if latest.issuer == shared.signer
                    || process.switch.waits(shared.signer, timing.settle.mul_f64(spread / 2.0), instant) =>
            {
                Some(latest)
            }
            _ if shared.signer.validity.contains(now) => {
                process.switch = SwitchTime::default();
                let Validity { not_before, not_after } = shared.signer.validity;
                let validity = Validity {
                    not_before: not_before.max(now - BACKDATE),
                    not_after: not_after.min(now + timing.leaf_lifetime),
                };
                let time = validity.not_after.duration_since(now).unwrap_or_default();
                let renew_at = now + time.mul_f64(2.0 / 3.0 + spread / 12.0);
                process.latest = Some(Leaf { serial, issuer: shared.signer, validity, renew_at });
                process.latest.clone()
            }
            _ => None,
        };
        let issuer = process.in_service.as_ref().map(|leaf| leaf.issuer);
        let superseded_for = process.known_since.superseded_for(instant);
        let seen = Seen { trusted_for: &round.trusted_for, issuer, superseded_for: &superseded_for };
        let renew = process.latest.as_ref().map(|it| it.renew_at.duration_since(now).unwrap_or_default());
        let due = [shared.due_in(seen, &timing, now), process.switch.due_in(instant), renew];
        Offer {
            certificate,
            trust: shared.trusted(issuer, now),
            is_exact: !is_new,
            next_check: due.into_iter().flatten().fold(timing.check_interval, Duration::min),
        }
    }

    fn publish(&mut self, replica: usize, mut round: Round, fresh: Option<Offer>) -> Pc {
        round.is_fresh = fresh.is_some();
        round.after = round.before.clone();
        let process = self.process(replica);
        if fresh.is_some() {
            process.offer = fresh;
        }
        let wanted = match &process.offer {
            None => {
                process.readings = round.before.clone();
                return Pc::Swap(round);
            }
            Some(offer) if offer.is_exact && !round.is_fresh => None,
            Some(offer) if offer.is_exact => Some(offer.trust.clone()),
            Some(offer) => {
                let live = round.before.values().flatten().flatten();
                let live = live.flat_map(|object| object.bundle.clone());
                Some(live.filter(|ca| !ca.validity.is_over(round.now)).chain(offer.trust.clone()).collect())
            }
        };
        match wanted {
            Some(wanted) => Pc::Write { round, wanted, left: TARGETS.rev().collect() },
            None => Pc::Observe(round),
        }
    }

    fn write(
        &mut self,
        replica: usize,
        target: u8,
        version: u64,
        wanted: &BTreeSet<Ca>,
    ) -> Result<Option<Option<Object>>, Conflict> {
        let fails = self.fails(replica);
        if fails && !self.takes_effect(|| Late::Target { target, version, bundle: wanted.clone() }) {
            return Ok(None);
        }
        self.note(|| format!("replica {replica} writes"));
        let is_same = self.update_target(target, version, wanted);
        match (fails, is_same) {
            (true, _) => Ok(None),
            (false, false) => Err(Conflict),
            (false, true) => Ok(Some(self.targets[&target].clone())),
        }
    }

    fn swap(&mut self, replica: usize, round: &Round) {
        let timing = self.scenario.timing;
        let (at, instant) = (self.at, self.instant());
        let wrong = self.wrong;
        let now = round.now;
        let is_stale = self.replicas[replica].process.is_stale;
        let process = self.process(replica);
        let settle = if wrong == Some(Wrong::NoSettle) { Duration::ZERO } else { timing.settle };
        let trusted_for = process.trusted_since.durations(&trusted(&process.readings), instant);
        let mut wait = timing.check_interval;
        let mut swapped = None;
        if let Some(candidate) = process.offer.as_ref().and_then(|offer| offer.certificate.clone()) {
            let swap = match &process.serving {
                None => Swap::Now,
                Some(serving) if serving.serial == candidate.serial => Swap::None,
                Some(_) if wrong == Some(Wrong::ServeAtOnce) => Swap::Now,
                Some(serving) => Swap::of(Candidate {
                    is_accepted: accepted(&candidate, &process.readings, now),
                    settled_in: settled_in(&candidate, &process.readings, &trusted_for, settle),
                    is_other_rejected: rejected(serving, &process.readings, now),
                    is_other_over: serving.validity.is_over(now),
                }),
            };
            match swap {
                Swap::None => {}
                Swap::Wait(more) => wait = wait.min(more),
                Swap::Now => {
                    if process.serving.is_none() {
                        process.proven = accepted(&candidate, &round.before, now);
                    }
                    swapped = Some(candidate.clone());
                    process.swapped_at = at;
                    process.before = process.serving.replace(candidate);
                }
            }
        }
        let is_accepted = process.serving.as_ref().is_some_and(|it| accepted(it, &process.readings, now));
        if is_accepted && !process.proven {
            let settle = settle.min(FIRST_SETTLE);
            process.proven = process.serving.as_ref().is_some_and(|serving| {
                let settled = settled_in(serving, &process.readings, &trusted_for, settle);
                if settled.is_some_and(|wait| !wait.is_zero()) {
                    wait = wait.min(settle);
                }
                settled.is_some_and(|wait| wait.is_zero())
            });
        }
        let ready = is_accepted && process.proven;
        let is_complete = process.readings.values().all(Option::is_some);
        if round.is_fresh && is_complete {
            process.failures = 0;
            let next_check = process.offer.as_ref().map_or(timing.check_interval, |offer| offer.next_check);
            wait = wait.min(next_check);
        } else {
            process.failures += 1;
            let retry = Duration::from_millis(500) * 2u32.pow(process.failures.min(8) - 1);
            wait = wait.min(retry.min(Duration::from_secs(30)));
        }
        if round.has_lost_race || is_stale {
            wait = Duration::from_millis(50);
        }
        let was_ready = process.ready;
        if let Some(leaf) = swapped {
            self.note(|| format!("replica {replica} serves under {}", name(&leaf.issuer)));
        }
        if was_ready != ready {
            self.note(|| format!("replica {replica} is ready: {ready}"));
            self.note_ready(replica, ready);
        }
        self.schedule(replica, millis(wait).max(50));
    }
}

struct Conflict;

fn trusted(readings: &Readings) -> Vec<Option<Trusted>> {
    let of = |object: &Option<Object>| match object {
        None => Trusted::All,
        Some(object) => Trusted::Only(object.bundle.iter().map(|ca| ca.fingerprint).collect()),
    };
    readings.values().map(|reading| reading.as_ref().map(of)).collect()
}

fn accepts(object: &Option<Object>, leaf: &Leaf, now: SystemTime) -> bool {
    object.as_ref().is_none_or(|object| {
        object.bundle.contains(&leaf.issuer)
            && leaf.issuer.validity.contains(now)
            && leaf.validity.contains(now)
    })
}

fn accepted(leaf: &Leaf, readings: &Readings, now: SystemTime) -> bool {
    leaf.validity.contains(now)
        && readings.values().all(|reading| reading.as_ref().is_some_and(|object| accepts(object, leaf, now)))
}

fn rejected(leaf: &Leaf, readings: &Readings, now: SystemTime) -> bool {
    !leaf.validity.contains(now) || readings.values().flatten().any(|object| !accepts(object, leaf, now))
}

fn settled_in(
    leaf: &Leaf,
    readings: &Readings,
    trusted_for: &BTreeMap<Fingerprint, Duration>,
    settle: Duration,
) -> Option<Duration> {
    if readings.values().flatten().flatten().all(|object| object.bundle.is_empty()) {
        return Some(Duration::ZERO);
    }
    trusted_for.get(&leaf.issuer.fingerprint).map(|trusted| settle.saturating_sub(*trusted))
}
