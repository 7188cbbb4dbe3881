use std::io::Write;
use std::path::PathBuf;

use lucid_audit::Log;
use lucid_audit::log::Options;
use snafu::ResultExt;

use super::{AuditError, OpenSnafu, OutputSnafu};
use crate::decisions::{default_origin, parse_origin, read_key};

/// The options of `lucid-validator audit seal`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SealArgs {
    /// The log's directory. No process may write to it meanwhile.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,

    /// The file with the signing key.
    #[arg(long, env = "LUCID_DECISION_LOG_KEY", value_name = "FILE")]
    key: PathBuf,

    /// The name of the log.
    #[arg(long, env = "LUCID_DECISION_LOG_ORIGIN", value_name = "NAME", value_parser = parse_origin)]
    #[arg(default_value_t = default_origin())]
    origin: String,
}

pub(super) fn seal(args: &SealArgs, output: &mut impl Write) -> Result<(), AuditError> {
    let key = read_key(&args.key, &args.origin)?;
    let vkey = key.verifier().clone();
    let log = Log::open(&args.directory, Options::new().key(key).adopt(true)).context(OpenSnafu)?;
    log.close();
    writeln!(output, "{vkey}").context(OutputSnafu)
}
