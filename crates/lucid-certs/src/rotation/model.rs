//! Model checking of the rotation protocol over all interleavings of its operations.
//!
//! The model has three replicas, two targets and an API server that observes each target with an arbitrary
//! delay. A replica may crash between any two operations, and its request may take effect at any time after
//! it stopped waiting for the response. Steps, resulting states and swap decisions use the production
//! functions; time is abstracted:
//!
//! - A CA is *settled* for a replica when the API server has observed all writes that the replica saw when it
//!   first found all targets trusting the CA. The delay of the API server is shorter than the settle time.
//! - A CA is *drained* at some time after another one signs. All of its certificates are expired from then
//!   on, including those that a slow replica still issues, because issue times are taken at the start of a
//!   round.
//! - A starting replica is ready as soon as the targets accept its certificate: the delay of the API server
//!   may exceed the two seconds that real replicas wait.
//!
//! One API server suffices: a violation shows at a single one, and more of them only make replicas wait
//! longer. Replicas are symmetric, so states that are permutations of each other are merged.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    hash::Hash,
    thread::LocalKey,
    time::{Duration, SystemTime},
};

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::{Ca, Previous, Request, Seen, Shared, Step, Timing};
use crate::{
    certificates::swap::{Candidate, Swap},
    fingerprint::Fingerprint,
    validity::Validity,
};

const REPLICAS: usize = 3;
const TARGETS: usize = 2;
/// Number of CAs that a run may need.
const AUTHORITIES: usize = 3;

/// A set of CA numbers, as a bit mask.
type Set = u8;

fn one(authority: u8) -> Set {
    1 << authority
}

/// Compact form of [`Shared`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Secret {
    signer: u8,
    next: Option<u8>,
    previous: Set,
    retired: Set,
    is_asked: bool,
}

/// A value read, and whether it is unchanged since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Read<T> {
    found: T,
    is_current: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Pc {
    Idle,
    /// Number of targets read so far.
    Reading {
        read: u8,
        before: [Read<Set>; TARGETS],
    },
    /// The Secret has been read.
    Deciding {
        before: [Read<Set>; TARGETS],
        settled: Set,
        secret: Read<Secret>,
    },
    /// The next target to write.
    Writing {
        target: u8,
        before: [Read<Set>; TARGETS],
        after: [Option<Set>; TARGETS],
        wanted: Set,
    },
    /// Only the swap is left, which other replicas can observe.
    Swapping {
        after: [Option<Set>; TARGETS],
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Replica {
    pc: Pc,
    serving: Option<u8>,
    is_ready: bool,
    latest: Option<u8>,
    /// CAs that all targets were observed to trust, with the number of changes per target that the API server
    /// had not observed then.
    seen: [Option<[u8; TARGETS]>; AUTHORITIES],
    /// Earlier state of the Secret, for faults that reuse it.
    memory: Option<Secret>,
}

/// A pending request whose sender stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Late {
    Target { target: u8, bundle: Set, is_current: bool },
    Secret { secret: Secret, is_current: bool },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    secret: Secret,
    targets: [Set; TARGETS],
    views: [Set; TARGETS],
    /// Changes that the API server has not observed yet.
    changes: [Vec<Set>; TARGETS],
    /// CAs whose certificates have all expired.
    drained: Set,
    late: Option<Late>,
    replicas: [Replica; REPLICAS],
    rotations: u8,
    crashes: u8,
    lost_answers: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Performs the next operation of a replica.
    Go(usize),
    /// As `Go`, with an immediate switch to a new signer.
    Follow(usize),
    Crash(usize),
    /// The replica stops waiting for its request, which may take effect later.
    GiveUp(usize),
    Arrive,
    Deliver(usize),
    Drain(u8),
    AskForRotation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    ActivateBeforeTrust,
    NoSettle,
    RetireAtOnce,
    UnconditionalWrites,
    SecretBeforeTargets,
    StaleMemory,
}

#[derive(Debug, Clone, Copy)]
struct Protocol {
    wrong: Option<Wrong>,
    /// Number of rotation requests.
    rotations: u8,
    /// Number of crashes.
    crashes: u8,
    /// Number of lost responses.
    lost_answers: u8,
    /// `true` if other operations may happen between the reads of the two targets.
    are_reads_apart: bool,
    /// `true` to start when the certificates of a former CA have just expired.
    is_draining: bool,
}

const NEW: Replica = Replica {
    pc: Pc::Idle,
    serving: None,
    is_ready: false,
    latest: None,
    seen: [None; AUTHORITIES],
    memory: None,
};

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 365 * 50)
}

fn ca(authority: u8) -> Ca {
    let hours = Duration::from_hours;
    let validity = Validity { not_before: now() - hours(24), not_after: now() + 365 * hours(24) };
    Ca { fingerprint: Fingerprint::from([authority; 32]), validity }
}

fn number(ca: &Ca) -> u8 {
    ca.fingerprint.as_bytes()[0]
}

fn members(set: Set) -> impl Iterator<Item = u8> {
    (0..AUTHORITIES as u8).filter(move |it| set & one(*it) != 0)
}

fn set<'a>(authorities: impl IntoIterator<Item = &'a Ca>) -> Set {
    authorities.into_iter().fold(0, |set, it| set | one(number(it)))
}

impl Secret {
    fn shared(&self, drained: Set) -> Shared {
        let hour = Duration::from_hours(1);
        let retire_at = |it| if drained & one(it) != 0 { now() - hour } else { now() + hour };
        let previous = members(self.previous).map(|it| Previous { ca: ca(it), retire_at: retire_at(it) });
        let signer = ca(self.signer);
        let request = self.is_asked.then_some(Request { signer: signer.fingerprint, urgent: false });
        Shared {
            signer,
            next: self.next.map(ca),
            previous: previous.collect(),
            retired: members(self.retired).map(ca).collect(),
            request,
        }
    }

    fn of(shared: &Shared) -> Self {
        Self {
            signer: number(&shared.signer),
            next: shared.next.as_ref().map(number),
            previous: set(shared.previous.iter().map(|previous| &previous.ca)),
            retired: set(&shared.retired),
            is_asked: shared.request.is_some(),
        }
    }

    fn all(&self) -> Set {
        self.previous | self.retired | one(self.signer) | self.next.map_or(0, one)
    }
}

impl Replica {
    /// Records the contents of the targets.
    fn observe(&mut self, targets: [Option<Set>; TARGETS], changes: &[Vec<Set>; TARGETS]) {
        let is_complete = targets.iter().all(Option::is_some);
        for (authority, seen) in (0..).zip(&mut self.seen) {
            if targets.iter().flatten().any(|bundle| bundle & one(authority) == 0) {
                *seen = None;
            } else if is_complete && seen.is_none() {
                *seen = Some(std::array::from_fn(|target| changes[target].len() as u8));
            }
        }
    }

    /// Returns the CAs that the API server has observed in all targets.
    fn settled(&self, targets: [Option<Set>; TARGETS], wrong: Option<Wrong>) -> Set {
        let Some(all) = targets.into_iter().reduce(|all, it| Some(all? & it?)).flatten() else { return 0 };
        let is_settled = |it: &u8| {
            self.seen[*it as usize].is_some_and(|left| left == [0; TARGETS] || wrong == Some(Wrong::NoSettle))
        };
        members(all).filter(is_settled).fold(0, |set, it| set | one(it))
    }
}

impl State {
    fn write_target(&mut self, target: usize, bundle: Set) {
        self.targets[target] = bundle;
        self.changes[target].push(bundle);
        for replica in &mut self.replicas {
            match &mut replica.pc {
                Pc::Reading { before, .. } | Pc::Deciding { before, .. } | Pc::Writing { before, .. } => {
                    before[target].is_current = false;
                }
                Pc::Idle | Pc::Swapping { .. } => {}
            }
        }
        if let Some(Late::Target { target: late, is_current, .. }) = &mut self.late
            && *late as usize == target
        {
            *is_current = false;
        }
    }

    fn write_secret(&mut self, secret: Secret) {
        self.secret = secret;
        for replica in &mut self.replicas {
            if let Pc::Deciding { secret, .. } = &mut replica.pc {
                secret.is_current = false;
            }
        }
        if let Some(Late::Secret { is_current, .. }) = &mut self.late {
            *is_current = false;
        }
    }
}

type Asked = (Secret, Option<u8>, Set, Set, u8);

thread_local! {
    // Memoized: the same inputs occur millions of times.
    static STEPS: RefCell<HashMap<Asked, Option<Secret>>> = RefCell::default();
    static TRUSTED: RefCell<HashMap<(Secret, Option<u8>), Set>> = RefCell::default();
}

fn remembered<K: Copy + Eq + Hash, V: Copy>(
    answers: &'static LocalKey<RefCell<HashMap<K, V>>>,
    asked: K,
    answer: impl FnOnce(K) -> V,
) -> V {
    answers.with_borrow_mut(|answers| *answers.entry(asked).or_insert_with(|| answer(asked)))
}

impl Protocol {
    /// Number of the first signer.
    fn first(&self) -> u8 {
        u8::from(self.is_draining)
    }

    fn step(&self, state: &State, secret: &Secret, replica: &Replica, settled: Set) -> Option<Secret> {
        let drained = match self.wrong {
            Some(Wrong::RetireAtOnce) => Set::MAX,
            _ => state.drained,
        };
        let settled = match (self.wrong, secret.next) {
            (Some(Wrong::ActivateBeforeTrust), Some(next)) => settled | one(next),
            _ => settled,
        };
        let new = (state.secret.all() | secret.all()).trailing_ones() as u8;
        remembered(&STEPS, (*secret, replica.serving, settled, drained, new), |_| {
            let timing = Timing::default();
            let trusted_for: BTreeMap<_, _> =
                members(settled).map(|it| (ca(it).fingerprint, timing.settle)).collect();
            let issuer = replica.serving.map(ca);
            let superseded_for: BTreeMap<_, _> =
                members(Set::MAX).map(|it| (ca(it).fingerprint, Duration::MAX)).collect();
            let seen = Seen { trusted_for: &trusted_for, issuer, superseded_for: &superseded_for };
            let shared = secret.shared(drained);
            let step = shared.step(seen, &timing, now());
            (step != Step::Rest).then(|| Secret::of(&shared.after(step, ca(new), &timing, now())))
        })
    }

    /// Continues after reading the Secret. Steps that other replicas cannot observe are merged into one.
    fn decide(
        &self,
        state: &mut State,
        index: usize,
        before: [Read<Set>; TARGETS],
        settled: Set,
        secret: Read<Secret>,
        follow: bool,
    ) {
        match self.step(state, &secret.found, &state.replicas[index], settled) {
            Some(_) => state.replicas[index].pc = Pc::Deciding { before, settled, secret },
            None => self.rest(state, index, before, secret.found, follow),
        }
    }

    /// Continues when the Secret needs no update.
    fn rest(
        &self,
        state: &mut State,
        index: usize,
        before: [Read<Set>; TARGETS],
        secret: Secret,
        follow: bool,
    ) {
        let drained = state.drained;
        let replica = &mut state.replicas[index];
        let is_good = |leaf: &u8| drained & one(*leaf) == 0 && secret.retired & one(*leaf) == 0;
        replica.latest = match replica.latest.filter(is_good) {
            Some(latest) if !follow => Some(latest),
            _ => Some(secret.signer),
        };
        let wanted = remembered(&TRUSTED, (secret, replica.serving), |(secret, serving)| {
            set(&secret.shared(0).trusted(serving.map(ca), now()))
        });
        let after = before.map(|reading| Some(reading.found));
        replica.pc = Pc::Writing { target: 0, before, after, wanted };
        self.skip(state, index);
    }

    /// Skips targets that hold the wanted bundle.
    fn skip(&self, state: &mut State, index: usize) {
        let State { replicas, changes, drained, .. } = state;
        let (replica, drained) = (&mut replicas[index], *drained);
        if let Pc::Writing { target, before, after, wanted } = &mut replica.pc {
            while (*target as usize) < TARGETS && before[*target as usize].found == *wanted {
                *target += 1;
            }
            if *target as usize == TARGETS {
                let after = *after;
                replica.observe(after, changes);
                let is_served = replica.serving == replica.latest;
                let accepted = replica.serving.is_some_and(|it| {
                    drained & one(it) == 0
                        && after.iter().all(|bundle| bundle.is_some_and(|bundle| bundle & one(it) != 0))
                });
                let is_same = is_served && accepted == replica.is_ready;
                replica.pc = if is_same { Pc::Idle } else { Pc::Swapping { after } };
            }
        }
    }

    fn go(&self, state: &mut State, index: usize, follow: bool) -> Option<()> {
        let replica = state.replicas[index];
        match replica.pc {
            Pc::Idle => {
                let nothing = Read { found: 0, is_current: false };
                let mut before = [nothing; TARGETS];
                before[0] = Read { found: state.targets[0], is_current: true };
                state.replicas[index].pc = Pc::Reading { read: 1, before };
                if self.wrong == Some(Wrong::SecretBeforeTargets) {
                    state.replicas[index].memory = Some(state.secret);
                }
                if !self.are_reads_apart {
                    return self.go(state, index, follow);
                }
            }
            Pc::Reading { read, mut before } if (read as usize) < TARGETS => {
                before[read as usize] = Read { found: state.targets[read as usize], is_current: true };
                let State { replicas, changes, .. } = state;
                let replica = &mut replicas[index];
                replica.pc = Pc::Reading { read: read + 1, before };
                if read as usize + 1 == TARGETS {
                    replica.observe(before.map(|reading| Some(reading.found)), changes);
                }
            }
            Pc::Reading { before, .. } => {
                let settled = replica.settled(before.map(|reading| Some(reading.found)), self.wrong);
                let is_stale = matches!(self.wrong, Some(Wrong::SecretBeforeTargets))
                    || (follow && self.wrong == Some(Wrong::StaleMemory));
                let found = replica.memory.filter(|_| is_stale).unwrap_or(state.secret);
                let secret = Read { found, is_current: found == state.secret };
                if self.wrong == Some(Wrong::StaleMemory) {
                    state.replicas[index].memory = Some(found);
                }
                self.decide(state, index, before, settled, secret, follow);
            }
            Pc::Deciding { before, settled, secret } => {
                match self.step(state, &secret.found, &replica, settled) {
                    None => self.rest(state, index, before, secret.found, follow),
                    Some(after) if secret.is_current => {
                        state.write_secret(after);
                        let secret = Read { found: after, is_current: true };
                        self.decide(state, index, before, settled, secret, follow);
                    }
                    // Another replica won the race.
                    Some(_) if self.wrong == Some(Wrong::SecretBeforeTargets) => {
                        state.replicas[index].pc = Pc::Idle
                    }
                    Some(_) => {
                        if self.wrong == Some(Wrong::StaleMemory) {
                            state.replicas[index].memory = None;
                        }
                        state.replicas[index].pc = Pc::Reading { read: TARGETS as u8, before };
                    }
                }
            }
            Pc::Writing { target, before, mut after, wanted } => {
                let at = target as usize;
                if before[at].is_current || self.wrong == Some(Wrong::UnconditionalWrites) {
                    state.write_target(at, wanted);
                    after[at] = Some(wanted);
                }
                state.replicas[index].pc = Pc::Writing { target: target + 1, before, after, wanted };
                self.skip(state, index);
            }
            Pc::Swapping { after } => {
                let settled = replica.settled(after, self.wrong);
                let drained = state.drained;
                let accepts = |leaf: u8| move |bundle: &Set| bundle & one(leaf) != 0;
                let is_live = |leaf: u8| drained & one(leaf) == 0;
                let accepted =
                    |leaf: u8| is_live(leaf) && after.iter().all(|it| it.as_ref().is_some_and(accepts(leaf)));
                let replica = &mut state.replicas[index];
                let candidate = replica.latest?;
                let swap = match replica.serving {
                    None => Swap::Now,
                    Some(serving) if serving == candidate => Swap::None,
                    Some(serving) => Swap::of(Candidate {
                        is_accepted: accepted(candidate),
                        settled_in: (settled & one(candidate) != 0).then_some(Duration::ZERO),
                        is_other_rejected: !is_live(serving) || !after.iter().flatten().all(accepts(serving)),
                        is_other_over: !is_live(serving),
                    }),
                };
                if swap == Swap::Now {
                    replica.serving = Some(candidate);
                }
                replica.is_ready = replica.serving.is_some_and(accepted);
                replica.pc = Pc::Idle;
            }
        }
        Some(())
    }

    /// Returns the next request of a replica.
    fn request(&self, state: &State, index: usize) -> Option<Late> {
        let replica = &state.replicas[index];
        match replica.pc {
            Pc::Deciding { settled, secret, .. } => {
                let after = self.step(state, &secret.found, replica, settled)?;
                Some(Late::Secret { secret: after, is_current: secret.is_current })
            }
            Pc::Writing { target, before, wanted, .. } => {
                let is_current = before[target as usize].is_current;
                Some(Late::Target { target, bundle: wanted, is_current })
            }
            _ => None,
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let signer = self.first();
        let drained = if self.is_draining { one(0) } else { 0 };
        let bundle = one(signer) | drained;
        let mut running = Replica { serving: Some(signer), latest: Some(signer), is_ready: true, ..NEW };
        running.seen[signer as usize] = Some([0; TARGETS]);
        vec![State {
            secret: Secret { signer, next: None, previous: drained, retired: 0, is_asked: false },
            targets: [bundle; TARGETS],
            views: [bundle; TARGETS],
            changes: Default::default(),
            drained,
            late: None,
            replicas: [running; REPLICAS],
            rotations: self.rotations,
            crashes: self.crashes,
            lost_answers: self.lost_answers,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, replica) in state.replicas.iter().enumerate() {
            if index > 0 && *replica == state.replicas[index - 1] {
                continue;
            }
            actions.push(Action::Go(index));
            let can_follow = match replica.pc {
                Pc::Reading { read, .. } => read as usize == TARGETS,
                Pc::Deciding { .. } => true,
                _ => false,
            } && replica.latest.is_some();
            if can_follow {
                actions.push(Action::Follow(index));
            }
            if state.crashes > 0 && *replica != NEW {
                actions.push(Action::Crash(index));
            }
            if state.lost_answers > 0 && state.late.is_none() && self.request(state, index).is_some() {
                actions.push(Action::GiveUp(index));
            }
        }
        if state.late.is_some() {
            actions.push(Action::Arrive);
        }
        actions.extend((0..TARGETS).filter(|it| !state.changes[*it].is_empty()).map(Action::Deliver));
        actions.extend(members(state.secret.previous & !state.drained).map(Action::Drain));
        if state.rotations > 0 && !state.secret.is_asked {
            actions.push(Action::AskForRotation);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Go(index) => self.go(&mut state, index, false)?,
            Action::Follow(index) => self.go(&mut state, index, true)?,
            Action::Crash(index) => {
                state.crashes -= 1;
                state.replicas[index] = NEW;
            }
            Action::GiveUp(index) => {
                state.lost_answers -= 1;
                state.late = self.request(&state, index);
                match &mut state.replicas[index].pc {
                    Pc::Writing { target, after, .. } => {
                        after[*target as usize] = None;
                        *target += 1;
                    }
                    // The source returned an error.
                    pc => *pc = Pc::Idle,
                }
                self.skip(&mut state, index);
            }
            Action::Arrive => match state.late.take()? {
                Late::Target { target, bundle, is_current: true } => {
                    state.write_target(target as usize, bundle)
                }
                Late::Secret { secret, is_current: true } => state.write_secret(secret),
                _ => {}
            },
            Action::Deliver(target) => {
                state.views[target] = state.changes[target].remove(0);
                for seen in state.replicas.iter_mut().flat_map(|replica| replica.seen.iter_mut().flatten()) {
                    seen[target] = seen[target].saturating_sub(1);
                }
            }
            Action::Drain(authority) => state.drained |= one(authority),
            Action::AskForRotation => {
                state.rotations -= 1;
                state.write_secret(Secret { is_asked: true, ..state.secret });
            }
        }
        for replica in &mut state.replicas {
            // No decision depends on them any more.
            members(state.drained).for_each(|it| replica.seen[it as usize] = None);
        }
        state.replicas.sort_unstable();
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SAFE, |_, state: &State| {
                state.replicas.iter().filter(|replica| replica.is_ready).all(|replica| {
                    replica.serving.is_none_or(|leaf| {
                        let is_over = state.drained & one(leaf) != 0;
                        is_over
                            || state.targets.iter().chain(&state.views).all(|bundle| bundle & one(leaf) != 0)
                    })
                })
            }),
            Property::sometimes(DONE, |protocol: &Self, state: &State| {
                let last = protocol.first() + protocol.rotations;
                let is_done = |replica: &Replica| replica.is_ready && replica.serving == Some(last);
                state.secret.next.is_none()
                    && state.secret.previous == 0
                    && state.replicas.iter().all(is_done)
                    && state.targets.iter().chain(&state.views).all(|bundle| *bundle == one(last))
            }),
        ]
    }
}

const SAFE: &str = "whoever is ready serves what targets and API servers trust";
const DONE: &str = "everybody has followed, and the authority before is trusted no more";

const PROTOCOL: Protocol = Protocol {
    wrong: None,
    rotations: 1,
    crashes: 0,
    lost_answers: 0,
    are_reads_apart: false,
    is_draining: false,
};

fn explore(protocol: Protocol) {
    let checker = protocol.checker().threads(2).spawn_bfs().join();
    if let Some(path) = checker.discovery(SAFE) {
        panic!("{protocol:?}: {:#?}", path.into_actions());
    }
    assert!(checker.discovery(DONE).is_some(), "{protocol:?}");
    eprintln!("{protocol:?}: {} states, {} deep", checker.unique_state_count(), checker.max_depth());
}

#[test]
fn every_order_of_operations_is_safe() {
    explore(Protocol { are_reads_apart: true, ..PROTOCOL });
}

#[test]
fn every_order_of_operations_with_a_crash_is_safe() {
    explore(Protocol { crashes: 1, ..PROTOCOL });
}

#[test]
#[ignore = "takes many minutes"]
fn slow_every_order_of_operations_with_all_faults_is_safe() {
    explore(Protocol { lost_answers: 1, ..PROTOCOL });
    explore(Protocol { is_draining: true, ..PROTOCOL });
    explore(Protocol { crashes: 1, are_reads_apart: true, ..PROTOCOL });
    explore(Protocol { crashes: 2, ..PROTOCOL });
    explore(Protocol { crashes: 1, lost_answers: 1, ..PROTOCOL });
    explore(Protocol { rotations: 2, ..PROTOCOL });
}

#[test]
fn the_model_checker_finds_each_fault() {
    let with_crash = Protocol { crashes: 1, ..PROTOCOL };
    for (wrong, protocol) in [
        (Wrong::ActivateBeforeTrust, with_crash),
        (Wrong::NoSettle, PROTOCOL),
        (Wrong::RetireAtOnce, PROTOCOL),
        (Wrong::UnconditionalWrites, Protocol { is_draining: true, ..PROTOCOL }),
        (Wrong::SecretBeforeTargets, Protocol { are_reads_apart: true, ..PROTOCOL }),
        (Wrong::StaleMemory, PROTOCOL),
    ] {
        let protocol = Protocol { wrong: Some(wrong), ..protocol };
        let checker =
            protocol.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let found = checker.discovery(SAFE).map(|path| path.into_actions());
        eprintln!("{wrong:?}: {} states, {found:?}", checker.unique_state_count());
        assert!(found.is_some(), "{wrong:?} was not found");
    }
}
