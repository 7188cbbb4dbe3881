//! Lucid's command line.
//!
//! - `offline` and `validate` work on manifests, without a cluster.
//! - `check`, `uninstall` and `certs` work on a cluster, selected by kubectl's options (`connection`).
//! - `manifests` prints the manifests to install, `audit` reads decision logs, and `image` parses image references.
//!
//! Under the names `kubectl-lucid` and `kubectl_complete-lucid` the program is a kubectl plugin, see `plugin`.

mod audit;
mod certs;
mod check;
mod connection;
mod documents;
mod files;
mod image;
mod manifests;
mod manual;
mod offline;
mod plugin;
mod uninstall;
mod validate;
mod workload;

use std::error::Error;
use std::io::{stderr, stdin};
use std::process::ExitCode;

use audit::AuditArgs;
use certs::CertsArgs;
use check::CheckArgs;
use clap::{Parser, Subcommand};
use image::ImageArgs;
use lucid_shared::LogArgs;
use manifests::ManifestsArgs;
use manual::ManualCommand;
use offline::{ExplainArgs, InjectArgs, OfflineError, ReviewArgs, UninjectArgs};
use plugin::{Name, Plugin};
use uninstall::UninstallArgs;
use validate::ValidateArgs;

/// Injects auditor chains into manifests, and inspects clusters and decision logs.
#[derive(Debug, Parser)]
#[command(name = "lucid", version)]
struct Args {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Inject chains into the manifests in a file, as the webhook does for pods. Unchanged documents keep their text.
    ///
    /// Exit code 0: success; 1: a document was denied and left out; 2: wrong arguments, or a file cannot be read.
    Inject(Box<InjectArgs>),

    /// Remove injected chains from the manifests in a file.
    ///
    /// Exit codes as for inject.
    Uninject(UninjectArgs),

    /// Explain which chains the manifests in a file get, and why.
    ///
    /// Exit codes as for inject.
    Explain(Box<ExplainArgs>),

    /// Respond to the AdmissionReview in a file, as `/mutate` would.
    ///
    /// Exit code 0: the pod is allowed; 1: it is denied; 2: wrong arguments, or the file is not an AdmissionReview.
    Review(Box<ReviewArgs>),

    /// Validate pods and workloads in files, as `/validate` would.
    ///
    /// Exit code 0: all are allowed; 3: a pod, or the pods of a workload, would be denied; 1: one cannot be evaluated,
    /// and none is denied.
    Validate(Box<ValidateArgs>),

    /// Check that Lucid works in the cluster, and list pods that are not audited as configured, with the reason.
    ///
    /// The command is read-only. Exit code 0: no check failed; 1: a check failed; 2: the cluster is unreachable.
    Check(Box<CheckArgs>),

    /// Print the manifests to install with kubectl apply.
    Manifests(Box<ManifestsArgs>),

    /// Remove the objects that Lucid has registered and created.
    ///
    /// Exit code 0: all are removed; 1: some remain; 2: nothing was attempted.
    Uninstall(UninstallArgs),

    /// Show the operator's certificate authority, or rotate it.
    Certs(CertsArgs),

    /// Parse image references.
    Image(ImageArgs),

    /// Work with decision logs: verify, prove records, compare with the API server's audit log, follow, seal and cosign
    /// them, and generate keys.
    Audit(Box<AuditArgs>),

    #[command(flatten)]
    Manual(ManualCommand),
}

/// Exit code for denied pods, invalid references and faulty logs.
const FAULTY: u8 = 3;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    match Name::of(arguments.first()) {
        Name::Lucid => run(lucid_shared::parse()).await,
        Name::Plugin => match lucid_shared::parse::<Plugin>().into_args() {
            Ok(args) => run(args).await,
            Err(error) => not_tried(&error),
        },
        Name::Completion => {
            let completed = plugin::complete(arguments, &mut lucid_shared::output());
            lucid_shared::end(async { Ok(completed?) }).await
        }
    }
}

async fn run(Args { command, log }: Args) -> ExitCode {
    let mut status = ExitCode::SUCCESS;
    let end = lucid_shared::end(async {
        lucid_shared::init_logging(&log)?;
        status = run_command(command).await?;
        Ok(())
    });
    let end = end.await;
    if end == ExitCode::SUCCESS { status } else { end }
}

async fn run_command(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    let (out, err) = (&mut lucid_shared::output(), &mut stderr());
    match command {
        Command::Inject(args) => outcome_status(offline::inject(&args, out, err)),
        Command::Uninject(args) => outcome_status(offline::uninject(&args, out, err)),
        Command::Explain(args) => outcome_status(offline::explain(&args, out, err)),
        Command::Review(args) => outcome_status(offline::review(&args, out).await),
        Command::Validate(args) => Ok(faulty_unless(validate::validate(&args, out, err).await?)),
        Command::Check(args) => {
            Ok(check::check(&args, out).await.map_or_else(|error| not_tried(&error), status))
        }
        Command::Manifests(args) => Ok(manifests::manifests(&args, out).map(|()| ExitCode::SUCCESS)?),
        Command::Uninstall(args) => match uninstall::uninstall(&args, out).await {
            Err(error) if error.is_usage() => Ok(not_tried(&error)),
            is_gone => Ok(status(is_gone?)),
        },
        Command::Certs(args) => Ok(certs::certs(&args, out).await.map(|()| ExitCode::SUCCESS)?),
        Command::Image(args) => Ok(faulty_unless(image::image(&args, stdin().lock(), out)?)),
        Command::Audit(args) => Ok(faulty_unless(audit::audit(*args, out).await?)),
        Command::Manual(manual) => Ok(manual.run(out).map(|()| ExitCode::SUCCESS)?),
    }
}

fn outcome_status(outcome: Result<bool, OfflineError>) -> Result<ExitCode, Box<dyn Error>> {
    match outcome {
        Err(error) if error.is_usage() => Ok(not_tried(&error)),
        is_good => Ok(status(is_good?)),
    }
}

fn status(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn faulty_unless(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::from(FAULTY) }
}

/// Reports `error` and returns exit code 2, as clap does for usage errors.
fn not_tried(error: &dyn Error) -> ExitCode {
    lucid_shared::complain(error);
    ExitCode::from(2)
}
