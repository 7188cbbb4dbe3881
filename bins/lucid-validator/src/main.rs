//! The Lucid validator: serves `/validate` in a separate process.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lucid_shared::LogArgs;
use lucid_shared::options::ServeArgs;
use lucid_shared::serving::run_validator;

/// A review is many small allocations: with glibc's allocator they take a quarter of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Validates pods against the policy.
#[derive(Debug, Parser)]
#[command(name = "lucid-validator", version)]
struct Args {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the validating webhooks and register them with the API server, instead of lucid-operator, which must run
    /// with LUCID_VALIDATE=false.
    Run(Box<ServeArgs>),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Args { command, log } = lucid_shared::parse();
    lucid_shared::end(async {
        match command {
            Command::Run(args) => {
                let telemetry = lucid_shared::init_telemetry(&log, "lucid-validator")?;
                let done = run_validator(&args).await;
                telemetry.end().await;
                Ok(done?)
            }
        }
    })
    .await
}
