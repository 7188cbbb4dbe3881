//! The Lucid validator.

use std::io::{stderr, stdin};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lucid_process::{LogArgs, ManualCommand};
use lucid_validator::{AuditArgs, ImageArgs, ReviewArgs, RunArgs};

/// Tells whether a pod may run with the auditors that it has.
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
    /// Serve the validating webhook of a cluster and register it with its API server, in place of lucid-operator, which
    /// does so unless LUCID_VALIDATE is false.
    Run(Box<RunArgs>),

    /// Say of pods and workloads what the webhook would say, without a cluster: for pipelines, and for finding out why. Exit
    /// code 0: all may run; 3: one is refused, or the pods of a workload would be; 1: it cannot be told of one, and none is
    /// refused.
    Review(Box<ReviewArgs>),

    /// Image references, as they are read here.
    Image(ImageArgs),

    /// The log of decisions: verify it, prove a record, compare it with the API server's audit log, follow it; make its keys, and
    /// seal it.
    Audit(AuditArgs),

    #[command(flatten)]
    Manual(ManualCommand),
}

/// Exit code of a negative result, distinct from 1 (error) and 2 (invalid arguments).
const REFUSED: u8 = 3;

#[tokio::main]
async fn main() -> ExitCode {
    let Args { command, log } = lucid_process::parse();
    let mut allowed = true;
    let end = lucid_process::end(async {
        if let Command::Run(args) = command {
            let telemetry = lucid_process::init_telemetry(&log, "lucid-validator")?;
            let done = lucid_validator::run(*args).await;
            telemetry.end().await;
            return Ok(done?);
        }
        lucid_process::init_logging(&log)?;
        match command {
            // Handled above.
            Command::Run(_) => {}
            Command::Audit(args) => {
                allowed = lucid_validator::audit(args, &mut lucid_process::output()).await?
            }
            Command::Review(args) => {
                let (output, messages) = (&mut lucid_process::output(), &mut stderr());
                allowed = lucid_validator::review(&args, output, messages).await?;
            }
            Command::Manual(manual) => manual.run::<Args>(&mut lucid_process::output())?,
            Command::Image(args) => {
                allowed = lucid_validator::image(&args, stdin().lock(), &mut lucid_process::output())?;
            }
        }
        Ok(())
    })
    .await;
    if allowed { end } else { ExitCode::from(REFUSED) }
}
