//! `lucid audit`: commands on the decision log that need no cluster.

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
use lucid_audit::note::NoteError;
use snafu::Snafu;

use keys::KeyArgError;

/// Options of `lucid audit`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Generate a key that seals a log, and print the key that verifies it.
    Key(key::KeyArgs),

    /// Seal a log for the first time or with a new key, and print the key that verifies it. The change is recorded in
    /// the log. Records that are already sealed must be intact.
    Seal(seal::SealArgs),

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

/// A command failed.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub(crate) enum AuditError {
    /// A key could not be generated or formatted.
    #[snafu(display("failed to generate a key: {source}"))]
    MakeKey {
        /// Error of the key.
        source: NoteError,
    },
    /// A key could not be read.
    #[snafu(transparent)]
    ReadKey {
        /// File and error.
        source: lucid_shared::Error,
    },
    /// The log could not be opened.
    #[snafu(display("failed to seal: {source}"))]
    Open {
        /// Error of the log.
        source: OpenError,
    },
    /// The directory contains no log to seal.
    #[snafu(display("failed to seal: {} is not a log: it has no directory {}", directory.display(), lucid_audit::layout::SEGMENTS))]
    NoLog {
        /// Directory that should contain a log.
        directory: PathBuf,
    },
    /// The log has no name yet.
    #[snafu(display("failed to seal: the log in {} was never sealed; set its name by --origin", directory.display()))]
    NoOrigin {
        /// Directory of the log.
        directory: PathBuf,
    },
    /// A file could not be written.
    #[snafu(display("failed to write {}: {source}", path.display()))]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// An option contains no valid key.
    #[snafu(transparent)]
    Key {
        /// Error of the option.
        source: KeyArgError,
    },
    /// Some logs could not be verified.
    #[snafu(display("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))]
    Verify {
        /// Error of each log.
        errors: Vec<lucid_audit::verify::VerifyError>,
    },
    /// The sequence number matches no record, or records of several logs.
    #[snafu(display("record {seq} is in {}; select the log by --origin ORIGIN", if logs.is_empty() { "no log of that origin" } else { logs }))]
    WhichLog {
        /// Sequence number.
        seq: u64,
        /// Origins of the matching logs.
        logs: String,
    },
    /// No proof could be created or read.
    #[snafu(transparent)]
    Proof {
        /// Error of the proof.
        source: lucid_audit::proof::ProofError,
    },
    /// A file of a log could not be read.
    #[snafu(transparent)]
    Log {
        /// File and error.
        source: lucid_audit::ReadError,
    },
    /// The audit log has no events with anchors, so nothing can be compared.
    #[snafu(display(
        "nothing could be compared: none of the {events} events in {} has an anchor; is it the API server's audit log, of the \
         time and the cluster of the log, and does its policy keep events of pods at level Metadata or above?",
        path.display()
    ))]
    NothingCompared {
        /// Path of the API server's audit log.
        path: PathBuf,
        /// Number of events in it.
        events: u64,
    },
    /// A log was given twice.
    #[snafu(display("found {} twice among --log, accepted is each log once", path.display()))]
    Repeated {
        /// Directory of the log.
        path: PathBuf,
    },
    /// Another file could not be read or written.
    #[snafu(display("failed to {what} {}: {source}", path.display()))]
    File {
        /// Failed operation, such as `write`.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The decisions could not be read or requested.
    #[snafu(transparent)]
    Tail {
        /// Error of the source.
        source: tail::TailError,
    },
    /// A remote could not be reached, or rejected a request.
    #[snafu(transparent)]
    Remote {
        /// Error of the request.
        source: remote::RemoteError,
    },
    /// Cosigning failed.
    #[snafu(transparent)]
    Cosign {
        /// Error of cosigning.
        #[snafu(source(from(cosign::CosignError, Box::new)))]
        source: Box<cosign::CosignError>,
    },
    /// Standard output could not be written.
    #[snafu(display("failed to write: {source}"))]
    Output {
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Runs a command. Returns `true` if it found no fault in the log.
///
/// # Errors
///
/// Returns an error if the command could not complete its check.
pub(crate) async fn audit(args: AuditArgs, output: &mut impl Write) -> Result<bool, AuditError> {
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
