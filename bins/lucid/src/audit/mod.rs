//! `lucid audit`: commands on the decision log that need no cluster.

mod alert;
mod correlate;
mod cosign;
mod keys;
mod metrics;
mod proof;
mod remote;
mod tail;
mod verify;

use std::io::Write;

use crate::error::{Result, ResultExt};

/// Options of `lucid audit`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Generate a key that seals a log, and print the key that verifies it.
    Key(keys::KeyArgs),

    /// Seal a log for the first time or with a new key, and print the key that verifies it. The change is recorded in
    /// the log. Records that are already sealed must be intact.
    Seal(keys::SealArgs),

    /// Verify that logs match their seals, and list each fault with its class, record, file and byte offset. Exit code
    /// 0: all logs are intact; 3: there are faults.
    Verify(Box<verify::VerifyArgs>),

    /// Print the proof that a record is in a log (C2SP tlog-proof), or check one. Exit code 0: the proof is valid; 3:
    /// it is not.
    Proof(proof::ProofArgs),

    /// Compare logs with the audit log of the API server, and list each drift. Exit code 0: no drift; 3: drift found.
    Correlate(Box<correlate::CorrelateArgs>),

    /// Have witnesses cosign the checkpoint of a log, so that its key holder cannot present two histories. Exit code 0:
    /// cosigned; 3: a witness has seen a different log.
    Cosign(Box<cosign::CosignArgs>),

    /// Print the latest decisions of a log or of a running process, and optionally follow them.
    Tail(Box<tail::TailArgs>),
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Text.
    Text,
    /// JSON: one object, or one per line if there are several over time.
    Json,
}

/// Runs a command. Returns `true` if it found no fault in the log.
pub(crate) async fn audit(args: AuditArgs, output: &mut impl Write) -> Result<bool> {
    match args.command {
        Command::Key(args) => keys::key(&args, output).map(|()| true),
        Command::Seal(args) => keys::seal(&args, output).map(|()| true),
        Command::Verify(args) => verify::verify(&args, output),
        Command::Proof(args) => proof::proof(&args, output),
        Command::Correlate(args) => correlate::correlate(&args, output).await,
        Command::Cosign(args) => cosign::cosign(&args, output).await,
        Command::Tail(args) => tail::tail(&args, output).await.map(|()| true),
    }
}

fn shutdown_signal() -> Result<impl Future<Output = ()>> {
    lucid_shared::shutdown_signal().failed_to("wait for signals")
}
