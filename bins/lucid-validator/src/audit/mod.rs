//! `lucid-validator audit`: what is done with the log of decisions, without a cluster.

mod key;
mod seal;

use std::io::{self, Write};
use std::path::PathBuf;

use lucid_audit::log::OpenError;
use lucid_audit::note::KeyError;
use snafu::Snafu;

use crate::decisions::DecisionLogError;

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
    /// A file cannot be written.
    #[snafu(display("failed to write {}: {source}", path.display()))]
    Write {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody reads the answer.
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
    }
}
