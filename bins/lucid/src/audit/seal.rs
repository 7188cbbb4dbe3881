use std::io::Write;
use std::path::PathBuf;

use lucid_audit::Log;
use lucid_audit::layout::SEGMENTS;
use lucid_audit::log::{self, Options};
use snafu::{OptionExt, ResultExt, ensure};

use super::{AuditError, NoLogSnafu, NoOriginSnafu, OpenSnafu, OutputSnafu};
use lucid_shared::options::{parse_origin, read_key};

/// Options of `lucid audit seal`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SealArgs {
    /// Directory of the log. No process may write to it meanwhile.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,

    /// File with the signing key.
    #[arg(long, env = "LUCID_DECISION_LOG_KEY", value_name = "FILE")]
    key: PathBuf,

    /// Name of the log. Not needed for a sealed log, which keeps its name.
    #[arg(long, value_name = "NAME", value_parser = parse_origin)]
    origin: Option<String>,
}

pub(super) fn seal(args: &SealArgs, output: &mut impl Write) -> Result<(), AuditError> {
    let directory = &args.directory;
    // Opening a log creates it if it does not exist.
    ensure!(directory.join(SEGMENTS).is_dir(), NoLogSnafu { directory });
    let named = match args.origin.clone() {
        Some(origin) => Some(origin),
        None => log::origin(directory).context(OpenSnafu)?,
    };
    let key = read_key(&args.key, &named.context(NoOriginSnafu { directory })?)?;
    let vkey = key.verifier().clone();
    let log = Log::open(directory, Options::new().with_key(key).with_adoption(true)).context(OpenSnafu)?;
    log.close();
    writeln!(output, "{vkey}").context(OutputSnafu)
}
