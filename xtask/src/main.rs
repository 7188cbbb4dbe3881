//! The single list of checks and tasks.

mod testbed;

use std::{error::Error, process::ExitCode};

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
    /// A real Kubernetes control plane, built from source.
    #[command(subcommand)]
    Testbed(testbed::Task),
}

fn main() -> ExitCode {
    let outcome: Result<(), Box<dyn Error>> = match Xtask::parse().task {
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
