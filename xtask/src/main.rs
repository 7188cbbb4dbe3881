//! The single list of checks and tasks.

mod bench;
mod checks;
mod demo;
mod images;
mod manual;
mod report;
mod soak;
mod testbed;

use std::process::ExitCode;

use lucid_e2e::Error;

use clap::{Parser, Subcommand};

/// Checks and tasks of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Xtask {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Shows Lucid at work: starts a control plane, the verifier and the operator, creates sample pods and prints what
    /// became of them.
    Demo(demo::Demo),
    /// Runs every check: format, clippy, documentation, unit and end-to-end tests.
    Test,
    /// Builds the images as OCI archives, without a container daemon.
    Images(images::Images),
    /// Writes man pages and completions of all programs, as packages install them.
    Manual(manual::Manual),
    /// Checks what the workspace depends on against deny.toml, with cargo-deny.
    Deny,
    /// Figures, measured on this machine.
    #[command(subcommand)]
    Bench(bench::Task),
    /// Whether nothing is lost when something happens a thousand times.
    #[command(subcommand)]
    Soak(soak::Task),
    /// A real Kubernetes control plane, built from source.
    #[command(subcommand)]
    Testbed(testbed::Task),
}

fn main() -> ExitCode {
    let outcome: Result<(), Error> = match Xtask::parse().task {
        Task::Demo(demo) => demo::run(&demo),
        Task::Images(options) => images::run(&options),
        Task::Manual(options) => manual::run(&options),
        Task::Test => checks::run(),
        Task::Deny => checks::deny(),
        Task::Bench(task) => bench::run(&task),
        Task::Soak(task) => soak::run(&task),
        Task::Testbed(task) => testbed::run(&task),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", snafu::Report::from_error(&*error));
            ExitCode::FAILURE
        }
    }
}
