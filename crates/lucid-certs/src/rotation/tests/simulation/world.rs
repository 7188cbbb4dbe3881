//! The Secret, targets, API servers with lagging views, clocks, and faults.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
    mem,
    time::{Duration, Instant, SystemTime},
};

use super::{
    Scenario, Wrong,
    random::Random,
    replica::{Leaf, Process},
};
use crate::{
    fingerprint::Fingerprint,
    rotation::{Ca, Request, Shared},
    validity::BACKDATE,
    validity::Validity,
};

pub(super) const SECOND: u64 = 1000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;

const TRACE: usize = 60;

/// Content of a target at one `resourceVersion`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) version: u64,
    pub(super) bundle: BTreeSet<Ca>,
    /// Time of the write, if it was by a client outside of the protocol.
    pub(super) outsider: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct Secret {
    pub(super) version: u64,
    pub(super) shared: Shared,
    /// `true` if the Secret lacks our label.
    pub(super) is_foreign: bool,
}

#[derive(Debug)]
pub(super) struct Replica {
    /// Offset of its wall clock in milliseconds.
    pub(super) skew: i64,
    pub(super) process: Process,
    /// Time of the last crash, stall or failed request.
    trouble: u64,
    /// Start and end of the last stall.
    held: (u64, u64),
    /// Time at which it became ready, and whether it was the only ready replica then.
    ready_since: Option<(u64, bool)>,
}

#[derive(Debug)]
enum Event {
    Step { replica: usize, token: u64 },
    Deliver { server: usize, target: u8, version: u64 },
    Fault,
    Late(Late),
}

/// A conditional write whose sender no longer waits for the response.
#[derive(Debug)]
pub(super) enum Late {
    Secret { replica: usize, version: Option<u64>, shared: Box<Shared> },
    Target { target: u8, version: u64, bundle: BTreeSet<Ca> },
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) wrong: Option<Wrong>,
    pub(super) random: Random,
    /// Monotonic time in milliseconds.
    pub(super) at: u64,
    origin: Instant,
    /// Offset of all wall clocks in milliseconds.
    jumped: i64,
    /// Events by time and serial number.
    queue: BTreeMap<(u64, u64), Event>,
    serial: u64,
    pub(super) secret: Option<Secret>,
    history: Vec<Shared>,
    pub(super) targets: BTreeMap<u8, Option<Object>>,
    objects: BTreeMap<u64, Option<Object>>,
    views: Vec<BTreeMap<u8, Option<Object>>>,
    delivered: BTreeMap<(usize, u8), u64>,
    pub(super) replicas: Vec<Replica>,
    /// Revoked CAs, with the time at which the successor started to sign.
    revoked: BTreeMap<Ca, u64>,
    /// Time of the last external change.
    outside: u64,
    /// Time of the last external change of the Secret.
    tampered: u64,
    /// Time until which the Secret lacks records that only replicas with memory can restore.
    records_missing_until: u64,
    trace: VecDeque<String>,
}

impl World {
    pub(super) fn new(seed: u64, scenario: Scenario, wrong: Option<Wrong>) -> Self {
        let mut random = Random(seed);
        let servers = 1 + random.below(3) as usize;
        let mut world = Self {
            wrong,
            at: 0,
            origin: Instant::now(),
            jumped: 0,
            queue: BTreeMap::new(),
            serial: 0,
            secret: None,
            history: Vec::new(),
            targets: BTreeMap::new(),
            objects: BTreeMap::new(),
            views: vec![BTreeMap::new(); servers],
            delivered: BTreeMap::new(),
            replicas: Vec::new(),
            revoked: BTreeMap::new(),
            outside: 0,
            tampered: 0,
            records_missing_until: 0,
            trace: VecDeque::new(),
            random,
            scenario,
        };
        for target in 0..1 + world.random.below(3) as u8 {
            world.write_target(target, Some(BTreeSet::new()), true);
        }
        for _ in 0..1 + world.random.below(4) {
            let skew = world.random.skew();
            world.replicas.push(Replica {
                skew,
                process: Process::default(),
                trouble: 0,
                held: (0, 0),
                ready_since: None,
            });
        }
        for replica in 0..world.replicas.len() {
            let delay = world.random.below(3 * SECOND);
            world.schedule(replica, delay);
        }
        world.push(world.scenario.fault_every, Event::Fault);
        world
    }

    /// Runs until the system is stable after the end of faults, or a violation is found.
    pub(super) fn run(&mut self) -> Result<(), String> {
        let timing = self.scenario.timing;
        let to_calm = 4 * (timing.settle + timing.check_interval) + Duration::from_mins(5);
        let calm = self.scenario.faults_end + millis(to_calm);
        let to_end = timing.ca_renew_before.max(timing.drain) + timing.drain + timing.leaf_lifetime;
        let end = calm + 2 * millis(to_end);
        let mut is_calm = false;
        while let Some(((at, _), event)) = self.queue.pop_first() {
            if !is_calm && at > calm {
                is_calm = true;
                let cut: Vec<_> =
                    (0..self.replicas.len()).filter(|it| !self.replicas[*it].process.ready).collect();
                if !cut.is_empty() {
                    return Err(self.report(&format!(
                        "replicas {cut:?} are not ready although faults ended {to_calm:?} ago"
                    )));
                }
            }
            if at > end {
                return Err(self.report("the system did not come to rest with one authority"));
            }
            self.at = at;
            match event {
                Event::Step { replica, token } => {
                    if self.replicas[replica].process.token == token {
                        self.step(replica);
                    }
                }
                Event::Deliver { server, target, version } => {
                    let object = self.objects[&version].clone();
                    self.views[server].insert(target, object);
                }
                Event::Fault => self.fault(),
                Event::Late(Late::Secret { replica, version, shared }) => {
                    self.put_secret(replica, version, *shared);
                }
                Event::Late(Late::Target { target, version, bundle }) => {
                    self.update_target(target, version, &bundle);
                }
            }
            if let Some(violation) = self.check() {
                return Err(self.report(&violation));
            }
            if is_calm && self.is_at_rest() {
                return Ok(());
            }
        }
        Err(self.report("nothing happens any more"))
    }

    fn is_at_rest(&self) -> bool {
        let Some(secret) = &self.secret else { return false };
        let Shared { signer, next, previous, .. } = &secret.shared;
        let one = BTreeSet::from([*signer]);
        next.is_none()
            && previous.is_empty()
            && self.targets.values().flatten().all(|object| object.bundle == one)
            && self.replicas.iter().all(|replica| {
                replica.process.ready
                    && replica.process.serving.as_ref().is_some_and(|leaf| leaf.issuer == *signer)
            })
    }

    pub(super) fn wall(&self) -> SystemTime {
        let now = 50 * 365 * 24 * HOUR as i64 + self.at as i64 + self.jumped;
        SystemTime::UNIX_EPOCH + Duration::from_millis(now as u64)
    }

    pub(super) fn now(&self, replica: usize) -> SystemTime {
        let skew = self.replicas[replica].skew;
        let by = Duration::from_millis(skew.unsigned_abs());
        if skew < 0 { self.wall() - by } else { self.wall() + by }
    }

    pub(super) fn instant(&self) -> Instant {
        self.origin + Duration::from_millis(self.at)
    }

    fn push(&mut self, delay: u64, event: Event) {
        let serial = self.serial();
        self.queue.insert((self.at + delay, serial), event);
    }

    pub(super) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Schedules the next step of a replica after `delay`; cancels an earlier one.
    pub(super) fn schedule(&mut self, replica: usize, delay: u64) {
        let token = self.serial();
        let process = &mut self.replicas[replica].process;
        process.token = token;
        process.due = self.at + delay;
        self.push(delay, Event::Step { replica, token });
    }

    pub(super) fn latency(&mut self, replica: usize) -> u64 {
        if self.is_faulty() && self.random.one_in(self.scenario.crash_one_in) {
            self.crash(replica);
        }
        if self.is_faulty() && self.random.one_in(self.scenario.pause_one_in) {
            let settle = millis(self.scenario.timing.settle);
            let longest = [10 * SECOND, settle, 3 * settle, HOUR, 12 * 24 * HOUR];
            let longest = longest[self.random.below(5) as usize];
            let pause = self.random.below(longest);
            self.replicas[replica].trouble = self.at + pause;
            self.replicas[replica].held = (self.at, self.at + pause);
            self.note(|| format!("replica {replica} is held up for {:?}", Duration::from_millis(pause)));
            return pause.min(self.scenario.faults_end.saturating_sub(self.at));
        }
        match self.random.below(10) {
            0 => self.random.below(2 * SECOND),
            _ => 5 + self.random.below(100),
        }
    }

    pub(super) fn fails(&mut self, replica: usize) -> bool {
        let fails = self.is_faulty() && self.random.one_in(self.scenario.error_one_in);
        if fails {
            self.replicas[replica].trouble = self.at;
        }
        fails
    }

    /// Returns `true` if a write without a response takes effect immediately. Otherwise it takes effect later or
    /// never.
    pub(super) fn takes_effect(&mut self, write: impl FnOnce() -> Late) -> bool {
        match self.random.below(3) {
            0 => return true,
            1 => {
                let delay = self.random.below(MINUTE);
                self.push(delay, Event::Late(write()));
            }
            _ => {}
        }
        false
    }

    /// Writes the target if its version is still `version`.
    pub(super) fn update_target(&mut self, target: u8, version: u64, bundle: &BTreeSet<Ca>) -> bool {
        let is_unconditional = self.wrong == Some(Wrong::UnconditionalWrites);
        let object = self.targets.get(&target).and_then(Option::as_ref);
        let is_same = object.is_some_and(|object| object.version == version || is_unconditional);
        if is_same {
            self.write_target(target, Some(bundle.clone()), false);
        }
        is_same
    }

    /// Returns `true` if the Secret was replaced and no replica with memory has repaired it.
    pub(super) fn lacks_records(&self) -> bool {
        self.at < self.records_missing_until
    }

    pub(super) fn is_faulty(&self) -> bool {
        self.at < self.scenario.faults_end
    }

    pub(super) fn generate(&mut self, now: SystemTime) -> Ca {
        let serial = self.serial();
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&serial.to_be_bytes());
        let validity =
            Validity { not_before: now - BACKDATE, not_after: now + self.scenario.timing.ca_lifetime };
        Ca { fingerprint: Fingerprint::from(bytes), validity }
    }

    /// Writes the Secret if its version is still `version`.
    pub(super) fn put_secret(&mut self, replica: usize, version: Option<u64>, shared: Shared) -> Option<u64> {
        let started_without_records = self.replicas[replica].process.started_without_records;
        if self.secret.as_ref().map(|secret| secret.version) != version {
            return None;
        }
        if let Some(Secret { shared: before, .. }) = &self.secret
            && before.signer != shared.signer
            && before.request.is_some_and(|request| request.urgent)
        {
            for ca in shared.previous.keys() {
                self.revoked.entry(*ca).or_insert(self.at);
            }
        }
        debug_assert!(!shared.retired.contains(&shared.signer));
        self.note(|| format!("Secret: {}", describe(&shared)));
        if self.records_missing_until == u64::MAX {
            // A writer without memory may have introduced a signer that API servers still have to observe.
            let settle = millis(self.scenario.timing.settle);
            self.records_missing_until = if started_without_records { self.at + settle } else { self.at };
        }
        Some(self.replace_secret(Some(shared)))
    }

    fn replace_secret(&mut self, shared: Option<Shared>) -> u64 {
        let version = self.serial();
        self.secret = shared.map(|shared| {
            self.history.push(shared.clone());
            if self.history.len() > 8 {
                self.history.remove(0);
            }
            Secret { version, shared, is_foreign: false }
        });
        self.wake();
        version
    }

    pub(super) fn write_target(&mut self, target: u8, bundle: Option<BTreeSet<Ca>>, outside: bool) {
        let version = self.serial();
        self.note(|| format!("target {target}: {}", bundle.as_ref().map_or("absent".into(), names)));
        let outsider = outside.then_some(self.at);
        let object = bundle.map(|bundle| Object { version, bundle, outsider });
        self.targets.insert(target, object.clone());
        self.objects.insert(version, object);
        let longest = millis(self.scenario.timing.settle) * 9 / 10;
        for server in 0..self.views.len() {
            let lag =
                if self.random.one_in(2) { self.random.below(SECOND) } else { self.random.below(longest) };
            // Watches deliver changes in order.
            let last = self.delivered.entry((server, target)).or_default();
            *last = (self.at + lag).max(*last);
            let delay = *last - self.at;
            self.push(delay, Event::Deliver { server, target, version });
        }
        self.wake();
    }

    fn wake(&mut self) {
        for replica in 0..self.replicas.len() {
            let delay = 5 + self.random.below(500);
            if self.is_faulty() && self.random.one_in(10) {
                // The watch is disconnected.
                continue;
            }
            let process = &mut self.replicas[replica].process;
            process.is_stale = true;
            if process.is_idle() && process.due > self.at + delay {
                self.schedule(replica, delay);
            }
        }
    }

    pub(super) fn crash(&mut self, replica: usize) {
        self.note(|| format!("replica {replica} starts again"));
        let skew = self.random.skew();
        let at = self.at;
        let it = &mut self.replicas[replica];
        let memory = it.process.memory.take();
        it.skew = skew;
        it.trouble = at;
        it.process = Process::default();
        if self.wrong == Some(Wrong::StaleMemory) {
            self.replicas[replica].process.memory = memory;
        }
        self.note_ready(replica, false);
    }

    pub(super) fn note_ready(&mut self, replica: usize, ready: bool) {
        let is_first = self.replicas.iter().all(|replica| !replica.process.ready);
        let at = self.at;
        let it = &mut self.replicas[replica];
        if it.process.ready != ready || !ready {
            it.ready_since = ready.then_some((at, is_first));
            it.process.ready = ready;
        }
    }

    fn fault(&mut self) {
        if !self.is_faulty() {
            return;
        }
        let delay = 1 + self.random.below(2 * self.scenario.fault_every);
        self.push(delay, Event::Fault);
        let kinds = self.scenario.kinds;
        let kind = kinds[self.random.below(kinds.len() as u64) as usize];
        if !matches!(kind, Fault::Jump | Fault::Crash | Fault::Rotate { .. }) {
            self.outside = self.at;
        }
        match kind {
            Fault::Crash => {
                let replica = self.random.below(self.replicas.len() as u64) as usize;
                self.crash(replica);
                let delay = self.random.below(5 * SECOND);
                self.schedule(replica, delay);
            }
            Fault::Rotate { urgent } => {
                if let Some(Secret { shared, .. }) = self.secret.clone() {
                    let request = Some(Request { signer: shared.signer.fingerprint, urgent });
                    self.note(|| format!("rotation requested, urgent: {urgent}"));
                    self.replace_secret(Some(Shared { request, ..shared }));
                }
            }
            Fault::Jump => {
                let longest = self.scenario.longest_jump;
                let to = self.random.below(2 * longest) as i64 - longest as i64;
                let by = to - mem::replace(&mut self.jumped, to);
                let by = Duration::from_millis(by.unsigned_abs());
                self.note(|| format!("all clocks jump by {by:?}, to {to} ms of what is right"));
            }
            Fault::Target => {
                let target = self.random.below(4) as u8;
                let bundle = match self.targets.get(&target) {
                    Some(Some(_)) if self.random.one_in(3) => None,
                    _ => Some(BTreeSet::new()),
                };
                self.note(|| "from outside:".to_owned());
                self.write_target(target, bundle, true);
            }
            Fault::OldTarget => {
                let target = self.random.below(4) as u8;
                let shared = &self.history[self.random.below(self.history.len() as u64) as usize];
                let bundle = BTreeSet::from([shared.signer]);
                self.note(|| "from outside:".to_owned());
                self.write_target(target, Some(bundle), true);
            }
            Fault::Delete => self.tamper("deleted", None),
            Fault::Foreign => {
                let ca = self.generate(self.wall());
                self.tamper("from outside", Some(Shared::new(ca)));
                self.secret.iter_mut().for_each(|secret| secret.is_foreign = true);
            }
            Fault::Restore => {
                let shared = self.history[self.random.below(self.history.len() as u64) as usize].clone();
                self.tamper("from a backup", Some(shared));
            }
        }
    }

    fn tamper(&mut self, how: &str, shared: Option<Shared>) {
        self.note(|| format!("Secret {how}: {}", shared.as_ref().map_or_else(String::new, describe)));
        self.tampered = self.at;
        self.records_missing_until = u64::MAX;
        self.replace_secret(shared);
    }

    /// Checks the invariant: each target, and each API server's view of it, trusts the certificate of every ready
    /// replica. Returns a violation.
    fn check(&self) -> Option<String> {
        let margin = Duration::from_mins(5);
        let views = self.views.iter().enumerate().map(|(server, view)| (Some(server), view));
        let views: Vec<_> = [(None, &self.targets)].into_iter().chain(views).collect();
        for (index, replica) in self.replicas.iter().enumerate() {
            let Some(leaf) = replica.process.serving.as_ref().filter(|_| replica.process.ready) else {
                continue;
            };
            let (wall, issuer) = (self.wall(), leaf.issuer);
            let is_over = leaf.validity.is_over(wall) || issuer.validity.is_over(wall + margin);
            if is_over || self.is_excused(replica, leaf) {
                continue;
            }
            for (server, view) in &views {
                let mut objects = view.iter().filter_map(|(target, object)| Some((target, object.as_ref()?)));
                if let Some((target, object)) =
                    objects.find(|(_, object)| self.is_refused(replica, leaf, object))
                {
                    let holder = server.map(|server| format!(" as API server {server} knows it"));
                    return Some(format!(
                        "replica {index} serves under {} while target {target}{} holds {}",
                        name(&issuer),
                        holder.unwrap_or_default(),
                        names(&object.bundle)
                    ));
                }
            }
        }
        None
    }

    fn is_excused(&self, replica: &Replica, leaf: &Leaf) -> bool {
        let settle = millis(self.scenario.timing.settle);
        // No replica was ready before, so no call fails that would have succeeded.
        let is_first =
            replica.ready_since.is_some_and(|(since, is_first)| is_first && self.at < since + settle);
        // The CA was revoked, and the replica could not switch in time.
        let drain = millis(self.scenario.timing.urgent_drain());
        let is_late = self.revoked.get(&leaf.issuer).is_some_and(|revoked| {
            let last = replica.trouble.max(self.outside);
            last + drain >= *revoked
        });
        // The Secret was replaced while the replica could not record its issuer.
        let (from, until) = replica.held;
        let is_unheard =
            self.at <= until + MINUTE && self.tampered + MINUTE >= from && self.tampered <= until;
        let started_without_records = replica.process.started_without_records
            && replica.ready_since.is_some_and(|(since, _)| self.at < since + settle);
        is_first || is_late || is_unheard || started_without_records
    }

    fn is_refused(&self, replica: &Replica, leaf: &Leaf, object: &Object) -> bool {
        if object.bundle.contains(&leaf.issuer) {
            return false;
        }
        // External writes do not violate the protocol, unless the replica saw one and then replaced a
        // certificate that was accepted there.
        let Some(written) = object.outsider else { return true };
        let process = &replica.process;
        process.saw.contains(&object.version)
            && process.swapped_at > written
            && process.before.as_ref().is_some_and(|before| {
                object.bundle.contains(&before.issuer) && !before.validity.is_over(self.wall())
            })
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.trace.len() >= TRACE {
            self.trace.pop_front();
        }
        let at = Duration::from_millis(self.at);
        self.trace.push_back(format!("{at:>12.3?} {}", what()));
    }

    fn report(&self, problem: &str) -> String {
        let mut report = format!("{problem}\n");
        for line in self.trace.iter() {
            let _ = writeln!(report, "  {line}");
        }
        let at = Duration::from_millis(self.at);
        let _ = writeln!(report, "  {at:>12.3?} {problem}");
        report
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    Crash,
    Rotate {
        urgent: bool,
    },
    Jump,
    /// The target is created, removed or overwritten without a bundle.
    Target,
    OldTarget,
    Delete,
    Foreign,
    Restore,
}

pub(super) fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

pub(super) fn name(ca: &Ca) -> String {
    let bytes = ca.fingerprint.as_bytes();
    format!("#{}", u64::from_be_bytes(std::array::from_fn(|it| bytes[it])))
}

pub(super) fn names(bundle: &BTreeSet<Ca>) -> String {
    format!("[{}]", bundle.iter().map(name).collect::<Vec<_>>().join(" "))
}

pub(super) fn describe(shared: &Shared) -> String {
    let previous = shared.previous.keys().copied().collect();
    format!(
        "signer {}, next {}, previous {}, retired {}, request {:?}",
        name(&shared.signer),
        shared.next.as_ref().map_or("none".to_owned(), name),
        names(&previous),
        names(&shared.retired),
        shared.request.map(|request| request.urgent),
    )
}
