//! `cargo xtask soak`: soak tests of lucid-certs, and of servers under attack. See docs/benchmarks.md for methods and reasons.

mod api_server;
mod drift;
mod faults;
mod hostile;
mod memory;
mod replica;
mod rotation;
mod subject;

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use clap::Subcommand;
use lucid_e2e::Error;

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Consecutive rotations of the authority under load: number of failed calls.
    Rotation(rotation::Rotation),
    /// Trust bundles damaged by a third party: time until they are healed.
    Drift(drift::Drift),
    /// Slow, many and malformed connections to the webhooks, the admin port and the verifier: number of failed calls.
    Hostile(hostile::Hostile),
    /// Faults in one of three replicas of the operator under load: number of failed calls, and lost records.
    Faults(faults::Faults),
    /// Memory of the operator with thousands of namespaces that have their own catalogue.
    Memory(memory::Memory),
    /// Every soak except `memory`, for some seconds each, as in `cargo xtask test`.
    Quick,
}

pub(crate) fn run(task: &Task) -> Result<(), Error> {
    match task {
        Task::Rotation(rotation) => rotation::run(rotation),
        Task::Drift(drift) => drift::run(drift),
        Task::Hostile(hostile) => hostile::run(hostile),
        Task::Faults(faults) => faults::run(faults),
        Task::Memory(memory) => memory::run(memory),
        Task::Quick => quick(),
    }
}

/// Runs every soak except `memory` for some seconds each, for `cargo xtask test`.
pub(crate) fn quick() -> Result<(), Error> {
    rotation::run(&rotation::Rotation::QUICK)?;
    drift::run(&drift::Drift::QUICK)?;
    hostile::run(&hostile::Hostile::QUICK)?;
    faults::run(&faults::Faults::QUICK)
}

/// Timeout for an expected event.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a random number from 0 to 1.
fn random() -> f64 {
    f64::from(RandomState::new().hash_one(()) as u32) / f64::from(u32::MAX)
}

/// Polls until there is a value, up to a timeout.
pub(crate) async fn eventually<T>(
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
