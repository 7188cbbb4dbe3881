//! `cargo xtask soak`: soak tests of lucid-certs, and of servers under attack. See docs/benchmarks.md for methods and reasons.

mod api_server;
mod call;
mod drift;
mod faults;
mod hostile;
mod memory;
mod replica;
mod rotation;
mod scene;
mod subject;

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use clap::{Args, FromArgMatches as _, Subcommand};
use lucid_e2e::Error;
use lucid_webhook::shutdown_signal;

use crate::report::{Output, Report};

#[derive(Args)]
pub(crate) struct Soak {
    #[command(subcommand)]
    task: Task,
    /// Tolerate a busy machine: longer timings where nothing else is selected, and only required goals fail the soak.
    #[arg(long, global = true)]
    quick: bool,
    /// Output format.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Subcommand)]
enum Task {
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

/// Command lines of `soak quick`.
const QUICK: [&str; 4] = [
    "rotation --count 4 --settle 1500",
    // Each kind once in each way.
    "drift --count 25 --replicas 1",
    "hostile --seconds 2",
    "faults --only kill,full-disk --seconds 4 --rate 5",
];

pub(crate) fn run(soak: &Soak) -> Result<(), Error> {
    if let Task::Quick = soak.task {
        return quick();
    }
    let mut report = Report::new("Cargo.lock")?.strict(!soak.quick);
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let shutdown_signal = shutdown_signal()?;
        let running = async {
            match &soak.task {
                Task::Rotation(rotation) => rotation::run(rotation, soak.quick, &mut report).await,
                Task::Drift(drift) => drift::run(drift, &mut report).await,
                Task::Hostile(hostile) => hostile::run(hostile, &mut report).await,
                Task::Faults(faults) => faults::run(faults, soak.quick, &mut report).await,
                Task::Memory(memory) => memory::run(memory, &mut report).await,
                Task::Quick => Ok(()),
            }
        };
        tokio::select! {
            outcome = running => outcome,
            // Clusters are dropped, and disks are unmounted.
            () = shutdown_signal => Err("interrupted".into()),
        }
    })?;
    report.print(soak.output)
}

fn quick() -> Result<(), Error> {
    for line in QUICK {
        let words = ["soak", "--quick"].into_iter().chain(line.split(' '));
        let command = Soak::augment_args(clap::Command::new("soak"));
        run(&Soak::from_arg_matches(&command.try_get_matches_from(words)?)?)?;
    }
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a random number from 0 to 1.
fn random() -> f64 {
    f64::from(RandomState::new().hash_one(()) as u32) / f64::from(u32::MAX)
}

/// Polls until there is a value, up to a timeout.
pub(crate) async fn eventually<T>(
    what: &str,
    mut poll: impl AsyncFnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    let found = async {
        loop {
            if let Some(found) = poll().await? {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, found).await;
    outcome.unwrap_or_else(|_| Err(format!("{what}: not within {PATIENCE:?}").into()))
}
