//! The Lucid validator.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lucid_process::LogArgs;
use lucid_validator::ReviewArgs;

/// Tells whether the auditors of a pod may run.
///
/// In a cluster lucid-operator asks the same at /validate; this is for pipelines and for finding out why.
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
    /// Say of a pod what the webhook would say, without a cluster. Exit code 0: it may run; 3: it is refused.
    Review(ReviewArgs),
}

/// Apart from 1 (it could not be told) and 2 (wrong arguments).
const REFUSED: u8 = 3;

#[tokio::main]
async fn main() -> ExitCode {
    let Args { command: Command::Review(args), log } = lucid_process::parse();
    let mut allowed = true;
    let end = lucid_process::end(async {
        lucid_process::init_logging(&log)?;
        allowed = lucid_validator::review(&args, &mut std::io::stdout().lock()).await?;
        Ok(())
    })
    .await;
    if allowed { end } else { ExitCode::from(REFUSED) }
}
