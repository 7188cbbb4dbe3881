//! `lucid-validator audit`: what is done with the log of decisions, without a cluster.

mod alert;
mod correlate;
mod cosign;
mod key;
mod keys;
mod metrics;
mod proof;
mod remote;
mod seal;
mod tail;
mod verify;

use std::io::{self, Write};
use std::path::PathBuf;

use lucid_audit::log::OpenError;
use lucid_audit::note::KeyError;
use snafu::Snafu;

use crate::decisions::DecisionLogError;
use keys::KeyArgError;

/// The options of `lucid-validator audit`.
#[derive(Clone, Debug, clap::Args)]
pub struct AuditArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Make a key that seals a log, and print the key that verifies it.
    Key(key::KeyArgs),

    /// Seal a log that was never sealed, or with another key than before, and print the key that verifies it. The change
    /// stands in the log. What was sealed before has to be what is there.
    Seal(seal::SealArgs),

    /// Tell whether logs still are what was sealed: every fault with its class, record, file and byte offset. Exit code 0: all
    /// are intact; 3: there are faults.
    Verify(Box<verify::VerifyArgs>),

    /// Print the proof that a record is in a log (C2SP tlog-proof), or check one. Exit code 0: it is proven; 3: it is not.
    Proof(proof::ProofArgs),

    /// Compare logs with the audit log of the API server, and name each drift. Exit code 0: there is none; 3: there is.
    Correlate(Box<correlate::CorrelateArgs>),

    /// Have witnesses cosign the checkpoint of a log: whoever holds its key cannot show them two histories. Exit code 0: it is
    /// cosigned; 3: the log is not the one that a witness has seen.
    Cosign(Box<cosign::CosignArgs>),

    /// Print the latest decisions of a log, or of a running process, and those that follow.
    Tail(Box<tail::TailArgs>),
}

/// How something is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For machines: one JSON object, or one a line where there are several over time.
    Json,
}

/// Why a command failed.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum AuditError {
    /// A key cannot be made.
    #[snafu(display("failed to make a key: {source}"))]
    MakeKey {
        /// What is wrong.
        source: KeyError,
    },
    /// A key cannot be read.
    #[snafu(transparent)]
    ReadKey {
        /// What is wrong.
        source: DecisionLogError,
    },
    /// The log cannot be opened.
    #[snafu(display("failed to seal: {source}"))]
    Open {
        /// What is wrong.
        source: OpenError,
    },
    /// There is nothing to seal.
    #[snafu(display("failed to seal: {} is no log: it has no folder {}", directory.display(), lucid_audit::layout::SEGMENTS))]
    NoLog {
        /// Where one was to be.
        directory: PathBuf,
    },
    /// The log has no name so far.
    #[snafu(display("failed to seal: the log in {} was never sealed; --origin has to say what it is called", directory.display()))]
    NoOrigin {
        /// The log.
        directory: PathBuf,
    },
    /// A file cannot be written.
    #[snafu(display("failed to write {}: {source}", path.display()))]
    Write {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A key that is none.
    #[snafu(transparent)]
    Key {
        /// What is wrong.
        source: KeyArgError,
    },
    /// Logs cannot be verified.
    #[snafu(display("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))]
    Verify {
        /// What is wrong with each.
        errors: Vec<lucid_audit::verify::VerifyError>,
    },
    /// A record of that number is in none of the logs that are meant, or in several.
    #[snafu(display("record {seq} is in {}; --origin ORIGIN says which log is meant", if logs.is_empty() { "no log of that origin" } else { logs }))]
    WhichLog {
        /// The number.
        seq: u64,
        /// The origins of those that have it.
        logs: String,
    },
    /// There is no proof.
    #[snafu(transparent)]
    Proof {
        /// What is wrong.
        source: lucid_audit::proof::ProofError,
    },
    /// A file of a log cannot be read.
    #[snafu(transparent)]
    Log {
        /// Which.
        source: lucid_audit::ReadError,
    },
    /// Logs cannot be compared with events that have no anchors.
    #[snafu(display(
        "nothing could be compared: none of the {events} events in {} has an anchor; is it the API server's audit log, of the \
         time and the cluster of the log, and does its policy keep events of pods at level Metadata or above?",
        path.display()
    ))]
    NothingCompared {
        /// The API server's audit log.
        path: PathBuf,
        /// How many events were read.
        events: u64,
    },
    /// A log was given twice.
    #[snafu(display("found {} twice among --log, accepted is each log once", path.display()))]
    Repeated {
        /// Which.
        path: PathBuf,
    },
    /// Another file cannot be read or written.
    #[snafu(display("failed to {what} {}: {source}", path.display()))]
    File {
        /// What was to be done with it.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is nothing to follow.
    #[snafu(transparent)]
    Tail {
        /// What is wrong.
        source: tail::TailError,
    },
    /// Nobody can be asked, or told.
    #[snafu(transparent)]
    Remote {
        /// What is wrong.
        source: remote::RemoteError,
    },
    /// There are no cosignatures.
    #[snafu(transparent)]
    Cosign {
        /// What is wrong.
        source: cosign::CosignError,
    },
    /// Nobody reads what was found.
    #[snafu(display("failed to write: {source}"))]
    Output {
        /// What the system said.
        source: io::Error,
    },
}

/// Runs a command; returns whether nothing is wrong with the log.
///
/// # Errors
///
/// When that cannot be told.
pub async fn audit(args: AuditArgs, output: &mut impl Write) -> Result<bool, AuditError> {
    match args.command {
        Command::Key(args) => key::key(&args, output).map(|()| true),
        Command::Seal(args) => seal::seal(&args, output).map(|()| true),
        Command::Verify(args) => verify::verify(&args, output),
        Command::Proof(args) => proof::proof(&args, output),
        Command::Correlate(args) => correlate::correlate(&args, output).await,
        Command::Cosign(args) => cosign::cosign(&args, output).await,
        Command::Tail(args) => tail::tail(&args, output).await.map(|()| true),
    }
}
