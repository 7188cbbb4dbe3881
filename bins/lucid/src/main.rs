//! Lucid's command line.
//!
//! - `offline` and `validate` work on manifests, without a cluster.
//! - `check`, `keeper`, `uninstall` and `certs` work on a cluster, selected by kubectl's options (`connection`).
//! - `auditor` tests auditors.
//! - `evidence` packs what is known of pods for third parties.
//! - `manifests` prints the manifests to install, `audit` reads decision logs, and `image` parses image references.
//!
//! Under the names `kubectl-lucid` and `kubectl_complete-lucid` the program is a kubectl plugin, see `plugin`.

mod audit;
mod auditor;
mod certs;
mod check;
mod connection;
mod documents;
mod error;
mod evidence;
mod files;
mod image;
mod keeper;
mod manifests;
mod manual;
mod namespaces;
mod offline;
mod plugin;
mod uninstall;
mod validate;
mod workload;

use std::io::{self, stderr, stdin};
use std::process::ExitCode;

use audit::AuditArgs;
use auditor::AuditorArgs;
use certs::CertsArgs;
use check::CheckArgs;
use clap::{Parser, Subcommand};
use error::{Result, UsageError};
use evidence::EvidenceArgs;
use image::ImageArgs;
use keeper::KeeperArgs;
use lucid_shared::LogArgs;
use manifests::ManifestsArgs;
use manual::ManualCommand;
use offline::{ExplainArgs, InjectArgs, ReviewArgs, UninjectArgs};
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
    /// Exit code 0: all are allowed; 1: a pod, or the pods of a workload, would be denied, or cannot be evaluated; 2: wrong
    /// arguments, or a file cannot be read.
    Validate(Box<ValidateArgs>),

    /// Check that Lucid works in the cluster, and list pods that are not audited as configured, with the reason.
    ///
    /// The command is read-only. Exit code 0: no check failed; 1: a check failed; 2: the cluster is unreachable.
    Check(Box<CheckArgs>),

    /// Show what happens to running pods without the planned chain.
    Keeper(KeeperArgs),

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

    /// Pack evidence about pods into a signed archive, or verify one: chains, digests, verdicts, decisions with proofs, and
    /// the API server's anchors. It proves integrity, not compliance.
    Evidence(Box<EvidenceArgs>),

    /// Test auditors.
    Auditor(AuditorArgs),

    #[command(flatten)]
    Manual(ManualCommand),
}

/// Exit code for invalid references and faulty logs.
const FAULTY: u8 = 3;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    match Name::of(arguments.first()) {
        Name::Lucid => exit_code(run(lucid_shared::parse()).await),
        Name::Plugin => match lucid_shared::parse::<Plugin>().into_args() {
            Ok(args) => exit_code(run(args).await),
            Err(error) => exit_code(Err(error)),
        },
        Name::Completion => {
            let completed = plugin::complete(arguments, &mut lucid_shared::output());
            exit_code(completed.map(|()| ExitCode::SUCCESS).map_err(Into::into))
        }
    }
}

/// Prints an error. A usage error has exit code 2, as in clap.
fn exit_code(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        lucid_shared::complain(&*error);
        if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
    })
}

async fn run(Args { command, log }: Args) -> Result<ExitCode> {
    lucid_shared::init_logging(&log)?;
    let (out, err) = (&mut lucid_shared::output(), &mut stderr());
    let is_good = match command {
        Command::Inject(args) => offline::inject(&args, out, err)?,
        Command::Uninject(args) => offline::uninject(&args, out, err)?,
        Command::Explain(args) => offline::explain(&args, out, err)?,
        Command::Review(args) => offline::review(&args, out).await?,
        Command::Validate(args) => validate::validate(&args, out, err).await?,
        Command::Check(args) => check::check(&args, out).await?,
        Command::Uninstall(args) => uninstall::uninstall(&args, out).await?,
        Command::Manifests(args) => manifests::manifests(&args, out).map(|()| true)?,
        Command::Keeper(args) => keeper::keeper(&args, out).await.map(|()| true)?,
        Command::Certs(args) => certs::certs(&args, out).await.map(|()| true)?,
        // Not `out`, which exits the process on a broken pipe: the auditor has to be stopped first.
        Command::Auditor(args) => auditor::auditor(&args, &mut io::stdout()).await?,
        Command::Manual(manual) => manual.run(out).map(|()| true)?,
        Command::Image(args) => return Ok(faulty_unless(image::image(&args, stdin().lock(), out)?)),
        Command::Evidence(args) => return Ok(faulty_unless(evidence::evidence(*args, out).await?)),
        Command::Audit(args) => return Ok(faulty_unless(audit::audit(*args, out).await?)),
    };
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn faulty_unless(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::from(FAULTY) }
}
