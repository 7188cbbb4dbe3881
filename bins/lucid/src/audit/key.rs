use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use lucid_audit::note::SigningKey;
use snafu::ResultExt;

use super::{AuditError, MakeKeySnafu, OutputSnafu, WriteSnafu};
use lucid_shared::options::{default_origin, parse_origin};

/// Options of `lucid audit key`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct KeyArgs {
    /// File to write the signing key to, for LUCID_DECISION_LOG_KEY. An existing file is not overwritten.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Name of the log that the key seals.
    #[arg(long, value_name = "NAME", value_parser = parse_origin)]
    #[arg(default_value_t = default_origin())]
    origin: String,
}

pub(super) fn key(args: &KeyArgs, output: &mut impl Write) -> Result<(), AuditError> {
    let key = SigningKey::generate(&args.origin).context(MakeKeySnafu)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&args.out);
    let mut file = file.context(WriteSnafu { path: &args.out })?;
    writeln!(file, "{}", *key.to_secret())
        .and_then(|()| file.sync_all())
        .context(WriteSnafu { path: &args.out })?;
    writeln!(output, "{}", key.verifier()).context(OutputSnafu)
}
