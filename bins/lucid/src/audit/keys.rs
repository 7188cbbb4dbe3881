//! `lucid audit key` and `lucid audit seal`.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use lucid_audit::Log;
use lucid_audit::log::{self, Options};
use lucid_audit::note::{SigningKey, VerifierKey};
use lucid_shared::options::{default_origin, parse_origin, read_key};

use crate::error::{Result, ResultExt};

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

pub(super) fn key(args: &KeyArgs, output: &mut impl Write) -> Result<()> {
    let key = SigningKey::generate(&args.origin).failed_to("generate a key")?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&args.out);
    let written = file.and_then(|mut file| {
        writeln!(file, "{}", *key.to_secret())?;
        file.sync_all()
    });
    written.failed_to(format_args!("write {}", args.out.display()))?;
    writeln!(output, "{}", key.verifier()).failed_to_print()
}

pub(super) fn seal(args: &SealArgs, output: &mut impl Write) -> Result<()> {
    let vkey = adopt(args).failed_to("seal")?;
    writeln!(output, "{vkey}").failed_to_print()
}

fn adopt(args: &SealArgs) -> Result<VerifierKey> {
    let directory = &args.directory;
    // Fails without a log, while opening one would create it.
    let origin = log::origin(directory)?;
    let origin = args.origin.clone().or(origin).ok_or_else(|| {
        format!("the log in {} was never sealed; set its name by --origin", directory.display())
    })?;
    let key = read_key(&args.key, &origin)?;
    let vkey = key.verifier().clone();
    Log::open(directory, Options::new().with_key(key).with_adoption(true))?.close();
    Ok(vkey)
}
