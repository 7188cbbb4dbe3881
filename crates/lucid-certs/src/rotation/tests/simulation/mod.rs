//! Randomized simulation of the rotation protocol with faults, over days and years.
//!
//! A world has up to four replicas, three API servers and four targets. Faults:
//!
//! - Between any two operations a replica may crash, stall for seconds or days, or lose a response. A write
//!   without a response takes effect immediately, later or never.
//! - Watches break.
//! - Clocks of replicas differ by up to 5 minutes, and all clocks are set forward and back together.
//! - Targets appear, disappear, and are overwritten without a bundle or with an old one.
//! - The Secret is deleted, replaced by a foreign CA, or restored from a backup.
//! - Ordinary and urgent rotations are requested.
//!
//! Everything is derived from a seed. `LUCID_SEED=7` runs one seed, `LUCID_SEEDS=1000` the first thousand;
//! failures report their seed.
//!
//! # Invariant
//!
//! **A ready replica serves a certificate whose issuer is in every target, and in every API server's view of
//! every target.** After the faults end, all replicas become ready soon, and the system settles with one CA,
//! which is the only one in the targets.
//!
//! # Assumptions
//!
//! - API servers observe a change of a target within the settle time.
//! - Reads are quorum reads, and writes are conditional on the `resourceVersion`.
//! - Clocks that are wrong together run ahead and are then set back by less than `drain` minus the lifetime
//!   of a leaf. They may be behind by any amount.
//!
//! # Exceptions
//!
//! The invariant cannot be guaranteed, and is not checked, for
//!
//! - a target that an external client overwrote, until API servers observe the repair; but a replica that saw
//!   it must not replace a certificate that is accepted there by one that is not,
//! - the first replica that becomes ready while no other is, because calls failed before,
//! - a certificate of a revoked CA, if its replica stalled, was disconnected or restarted, or targets were
//!   overwritten, while it should have switched,
//! - a replica that stalls while the Secret is replaced, until a minute after it continues, and one that
//!   starts before a replica with memory has repaired the Secret.

mod random;
mod replica;
mod world;

use std::time::Duration;

use self::world::{Fault, HOUR, MINUTE, World};
use crate::timing::Timing;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// The next CA signs before the targets trust it.
    ActivateBeforeTrust,
    /// The settle time is zero.
    NoSettle,
    /// The former CA is retired as soon as another one signs.
    RetireAtOnce,
    /// Target writes are not conditional on the version read.
    UnconditionalWrites,
    SecretBeforeTargets,
    /// A restarted replica reuses its last state of the Secret and does not always read it again.
    StaleMemory,
    /// Records missing from a replaced Secret are not restored.
    NoRecordOfIssuer,
    /// Certificates are swapped in regardless of trust.
    ServeAtOnce,
}

#[derive(Debug, Clone, Copy)]
struct Scenario {
    timing: Timing,
    /// Duration in milliseconds, like the following ones.
    faults_end: u64,
    fault_every: u64,
    /// Maximum offset of all clocks together.
    longest_jump: u64,
    kinds: &'static [Fault],
    crash_one_in: u64,
    pause_one_in: u64,
    error_one_in: u64,
}

const ORDINARY: &[Fault] =
    &[Fault::Crash, Fault::Rotate { urgent: false }, Fault::Jump, Fault::Target, Fault::OldTarget];
const URGENT: &[Fault] =
    &[Fault::Crash, Fault::Rotate { urgent: false }, Fault::Rotate { urgent: true }, Fault::Jump];
const TAMPERED: &[Fault] =
    &[Fault::Crash, Fault::Rotate { urgent: false }, Fault::Delete, Fault::Foreign, Fault::Restore];

/// Shortened durations, for a simulation over hours.
fn hours(kinds: &'static [Fault]) -> Scenario {
    let hours = Duration::from_hours;
    let timing = Timing {
        ca_lifetime: hours(36),
        ca_renew_before: hours(12),
        leaf_lifetime: hours(4),
        drain: hours(6),
        ..Timing::default()
    };
    Scenario {
        timing,
        faults_end: 24 * HOUR,
        fault_every: 20 * MINUTE,
        longest_jump: 50 * MINUTE,
        kinds,
        crash_one_in: 3000,
        pause_one_in: 500,
        error_one_in: 200,
    }
}

/// Default durations with two rounds per day, for a simulation over years.
fn years(kinds: &'static [Fault]) -> Scenario {
    let timing = Timing { check_interval: Duration::from_hours(12), ..Timing::default() };
    Scenario {
        timing,
        faults_end: 3 * 365 * 24 * HOUR,
        fault_every: 5 * 24 * HOUR,
        longest_jump: 30 * HOUR,
        crash_one_in: 1000,
        pause_one_in: 300,
        error_one_in: 100,
        ..hours(kinds)
    }
}

fn explore(scenario: Scenario, wrong: Option<Wrong>, seeds: std::ops::Range<u64>) -> Option<(u64, String)> {
    for seed in seeds {
        if let Err(report) = World::new(seed, scenario, wrong).run() {
            return Some((seed, report));
        }
    }
    None
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|it: String| it.parse().ok());
    match number("LUCID_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("LUCID_SEEDS").unwrap_or(4),
    }
}

fn holds(scenario: Scenario) {
    if let Some((seed, report)) = explore(scenario, None, seeds()) {
        panic!("seed {seed}: {report}");
    }
}

#[test]
fn no_leaf_is_untrusted_within_hours() {
    holds(hours(ORDINARY));
}

#[test]
fn no_leaf_is_untrusted_within_hours_with_revocations() {
    holds(hours(URGENT));
}

#[test]
fn no_leaf_is_untrusted_within_hours_with_secret_tampering() {
    holds(hours(TAMPERED));
}

#[test]
fn no_leaf_is_untrusted_over_years() {
    holds(years(ORDINARY));
}

#[test]
fn no_leaf_is_untrusted_over_years_with_revocations() {
    holds(years(URGENT));
}

#[test]
fn no_leaf_is_untrusted_over_years_with_secret_tampering() {
    holds(years(TAMPERED));
}

#[test]
fn the_simulation_finds_each_fault() {
    for (wrong, scenario) in [
        (Wrong::ActivateBeforeTrust, hours(ORDINARY)),
        (Wrong::NoSettle, hours(ORDINARY)),
        (Wrong::ServeAtOnce, hours(ORDINARY)),
        (Wrong::RetireAtOnce, hours(ORDINARY)),
        (Wrong::UnconditionalWrites, hours(ORDINARY)),
        (Wrong::SecretBeforeTargets, hours(ORDINARY)),
        (Wrong::StaleMemory, hours(ORDINARY)),
        (Wrong::NoRecordOfIssuer, hours(TAMPERED)),
    ] {
        let found = explore(scenario, Some(wrong), 0..300);
        let Some((seed, report)) = found else { panic!("{wrong:?} was not found") };
        assert!(report.contains("serves under"), "{wrong:?} breaks something else: {report}");
        eprintln!("{wrong:?} found by seed {seed}: {}", report.lines().next().unwrap_or_default());
    }
}
