//! `cargo xtask soak`: figures of lucid-certs, and of servers under attack. docs/benchmarks.md tells how and why.

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

use crate::report::{self, Goal, Output, Report, Row};

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Authorities that follow each other under calls: how many calls fail.
    Rotation(rotation::Rotation),
    /// Trust bundles that somebody else damages: how soon they are healed.
    Drift(drift::Drift),
    /// A mounted Secret that is replaced as kubelet does it: whether each version is served, and how soon.
    Swaps(swaps::Swaps),
    /// Slow, many and malformed connections to the webhooks, the admin port and the verifier: how many calls fail.
    Hostile(hostile::Hostile),
    /// Faults of one of three replicas of the operator under load: how many calls fail, and whether a record is lost.
    Faults(faults::Faults),
    /// Memory of the operator with thousands of namespaces that have a catalogue of their own.
    Memory(memory::Memory),
    /// Each of them for some seconds, as `cargo xtask test` does.
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

/// Each of them for some seconds, for `cargo xtask test`.
pub(crate) fn quick() -> Result<(), Error> {
    rotation::run(&rotation::Rotation::QUICK)?;
    drift::run(&drift::Drift::QUICK)?;
    swaps::Swaps::QUICK.iter().try_for_each(swaps::run)?;
    hostile::run(&hostile::Hostile::QUICK)?;
    faults::run(&faults::Faults::QUICK)
}

/// Versions of what the figures depend on.
fn versions() -> Result<Map<String, Value>, Error> {
    report::versions("Cargo.lock", &["aws-lc-rs", "kube", "notify", "rustls", "tokio"])
}

/// Prints, and fails where a goal is not reached. In the quick form that is not about time: a machine that does other
/// things besides must not fail the checks.
fn finish<R: Row>(report: &Report<R>, output: Output, is_quick: bool) -> Result<(), Error> {
    report.print(output)?;
    let is_about_time = |goal: &Goal| goal.goal.contains(" within ") || goal.goal.contains(" in time ");
    let counts = report.goals.iter().filter(|goal| !(is_quick && is_about_time(goal)));
    let failed: Vec<_> = counts.filter(|goal| !goal.reached).map(|goal| goal.goal).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("not reached: {}", failed.join("; ")).into()) }
}

/// In milliseconds
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

/// How long it is waited for something that is to happen
const PATIENCE: Duration = Duration::from_secs(60);

/// From 0 to 1
fn random() -> f64 {
    f64::from(RandomState::new().hash_one(()) as u32) / f64::from(u32::MAX)
}

/// Looks again and again until there is something, for so long at most.
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
