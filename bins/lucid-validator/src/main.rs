//! The Lucid validator.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lucid_process::LogArgs;
use lucid_validator::{AuditArgs, ImageArgs, ReviewArgs, RunArgs};

/// Tells whether a pod may run with the auditors that it has.
#[derive(Debug, Parser)]
#[command(name = "lucid-validator", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

/// A command that has the options of logging; those of `audit` say with `--log` which log they read, and take the filter from
/// the environment alone.
#[derive(Debug, clap::Args)]
struct Logged<A: clap::Args> {
    #[command(flatten)]
    args: A,

    #[command(flatten)]
    log: LogArgs,
}

/// The options of logging as the environment has them.
#[derive(Debug, Parser)]
struct FromEnvironment {
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the validating webhook of a cluster and register it with its API server, in place of lucid-operator, which
    /// does so unless LUCID_VALIDATE is false.
    Run(Box<Logged<RunArgs>>),

    /// Say of a pod or a workload what the webhook would say, without a cluster: for pipelines, and for finding out why. Exit
    /// code 0: it may run; 3: it is refused, or the pods of the workload would be.
    Review(Box<Logged<ReviewArgs>>),

    /// Image references, as they are read here.
    Image(Logged<ImageArgs>),

    /// The log of decisions: verify it, prove a record, compare it with the API server's audit log, follow it; make its keys, and
    /// seal it.
    Audit(AuditArgs),
}

/// Apart from 1 (it could not be told) and 2 (wrong arguments).
const REFUSED: u8 = 3;

#[tokio::main]
async fn main() -> ExitCode {
    let Args { command } = lucid_process::parse();
    let mut allowed = true;
    let end = lucid_process::end(async {
        let program = std::env::args_os().take(1);
        match &command {
            Command::Run(it) => lucid_process::init_logging(&it.log)?,
            Command::Review(it) => lucid_process::init_logging(&it.log)?,
            Command::Image(it) => lucid_process::init_logging(&it.log)?,
            Command::Audit(_) => {
                let environment: FromEnvironment = lucid_process::try_parse_from(program)?;
                lucid_process::init_logging(&environment.log)?;
            }
        }
        match command {
            Command::Run(args) => lucid_validator::run(args.args).await?,
            Command::Audit(args) => {
                allowed = lucid_validator::audit(args, &mut std::io::stdout().lock()).await?;
            }
            Command::Review(args) => {
                allowed = lucid_validator::review(&args.args, &mut std::io::stdout().lock()).await?;
            }
            Command::Image(args) => {
                allowed = lucid_validator::image(
                    &args.args,
                    std::io::stdin().lock(),
                    &mut std::io::stdout().lock(),
                )?;
            }
        }
        Ok(())
    })
    .await;
    if allowed { end } else { ExitCode::from(REFUSED) }
}
