//! `cargo xtask soak`: soak tests of lucid-certs, and of servers under attack. See docs/benchmarks.md for methods and reasons.

mod api_server;
mod drift;
mod faults;
mod hostile;
mod memory;
mod replica;
mod rotation;
mod start;
mod subject;
mod swaps;

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use clap::Subcommand;
use lucid_e2e::Error;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::old_report::{self as report, Goal, Output, Report, Row};

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Consecutive rotations of the authority under load: number of failed calls.
    Rotation(rotation::Rotation),
    /// Trust bundles damaged by a third party: time until they are healed.
    Drift(drift::Drift),
    /// Replacement of a mounted Secret as by kubelet: missed versions, and time until each is served.
    Swaps(swaps::Swaps),
    /// Slow, many and malformed connections to the webhooks, the admin port and the verifier: number of failed calls.
    Hostile(hostile::Hostile),
    /// Faults in one of three replicas of the operator under load: number of failed calls, and lost records.
    Faults(faults::Faults),
    /// Memory of the operator with thousands of namespaces that have their own catalogue.
    Memory(memory::Memory),
    /// All soaks for some seconds each, as in `cargo xtask test`.
    Quick,
}

pub(crate) fn run(task: &Task) -> Result<(), Error> {
    match task {
        Task::Rotation(rotation) => rotation::run(rotation),
        Task::Drift(drift) => drift::run(drift),
        Task::Swaps(swaps) => swaps::run(swaps),
        Task::Hostile(hostile) => hostile::run(hostile),
        Task::Faults(faults) => faults::run(faults),
        Task::Memory(memory) => memory::run(memory),
        Task::Quick => quick(),
    }
}

/// Runs all soaks for some seconds each, for `cargo xtask test`.
pub(crate) fn quick() -> Result<(), Error> {
    rotation::run(&rotation::Rotation::QUICK)?;
    drift::run(&drift::Drift::QUICK)?;
    swaps::Swaps::QUICK.iter().try_for_each(swaps::run)?;
    hostile::run(&hostile::Hostile::QUICK)?;
    faults::run(&faults::Faults::QUICK)
}

/// Versions that affect the figures.
fn versions() -> Result<Map<String, Value>, Error> {
    report::versions("Cargo.lock", &["aws-lc-rs", "kube", "notify", "rustls", "tokio"])
}

/// Prints the report, and fails if a goal is not reached. The quick form ignores timing goals: other load on the machine must
/// not fail the checks.
fn finish<R: Row>(report: &Report<R>, output: Output, is_quick: bool) -> Result<(), Error> {
    report.print(output)?;
    let is_about_time = |goal: &Goal| goal.goal.contains(" within ") || goal.goal.contains(" in time ");
    let counts = report.goals.iter().filter(|goal| !(is_quick && is_about_time(goal)));
    let failed: Vec<_> = counts.filter(|goal| !goal.reached).map(|goal| goal.goal).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("not reached: {}", failed.join("; ")).into()) }
}

/// Milliseconds.
#[derive(Clone, Copy, Serialize)]
struct Latency {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Latency {
    fn of(mut durations: Vec<Duration>) -> Self {
        durations.sort();
        let at = |share: f64| {
            let last = durations.len().saturating_sub(1);
            let index = (last as f64 * share).round() as usize;
            durations.get(index).map_or(f64::NAN, |duration| duration.as_secs_f64() * 1000.0)
        };
        Self { p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }

    fn cell(self) -> String {
        let Self { p50, p99, max } = self;
        format!("{p50:.0} / {p99:.0} / {max:.0} ms")
    }
}

/// Timeout for an expected event.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a random number from 0 to 1.
fn random() -> f64 {
    f64::from(RandomState::new().hash_one(()) as u32) / f64::from(u32::MAX)
}

/// Polls until there is a value, up to a timeout.
async fn eventually<T>(
    what: &str,
    mut look: impl AsyncFnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    let found = async {
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, found).await;
    outcome.unwrap_or_else(|_| Err(format!("{what}: not within {PATIENCE:?}").into()))
}
