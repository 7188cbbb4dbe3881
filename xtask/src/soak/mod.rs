//! `cargo xtask soak`: figures of lucid-certs. docs/benchmarks.md tells how and why.

mod swaps;

use clap::Subcommand;
use lucid_e2e::Error;
use serde_json::{Map, Value};

use crate::report::{self, Output, Report, Row};

#[derive(Subcommand)]
pub(crate) enum Task {
    /// A mounted Secret that is replaced as kubelet does it: whether each version is served, and how soon.
    Swaps(swaps::Swaps),
}

pub(crate) fn run(task: &Task) -> Result<(), Error> {
    match task {
        Task::Swaps(swaps) => swaps::run(swaps),
    }
}

/// Each of them for some seconds, for `cargo xtask test`.
pub(crate) fn quick() -> Result<(), Error> {
    swaps::Swaps::QUICK.iter().try_for_each(swaps::run)
}

/// Versions of what the figures depend on.
fn versions() -> Result<Map<String, Value>, Error> {
    report::versions("Cargo.lock", &["aws-lc-rs", "kube", "notify", "rustls", "tokio"])
}

/// Prints, and fails where a goal is not reached.
fn finish<R: Row>(report: &Report<R>, output: Output) -> Result<(), Error> {
    report.print(output)?;
    let failed: Vec<_> = report.goals.iter().filter(|goal| !goal.reached).map(|goal| goal.goal).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("not reached: {}", failed.join("; ")).into()) }
}
