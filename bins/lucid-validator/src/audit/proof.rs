//! `lucid-validator audit proof`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lucid_audit::note::VerifierKey;
use lucid_audit::proof::{Proof, ProofError};
use snafu::ResultExt;

use super::keys::parse_key;
use super::{AuditError, FileSnafu, Format, OutputSnafu};

/// The options of `lucid-validator audit proof`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ProofArgs {
    /// The record, by its seq.
    #[arg(value_name = "SEQ", required_unless_present = "check", requires = "log")]
    seq: Option<u64>,

    /// The directory of the log.
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    log: Option<PathBuf>,

    /// Checks the proof in this file instead; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "seq", requires = "key")]
    check: Option<PathBuf>,

    /// A key that is trusted to seal, as vkey or the file of one; may be given several times.
    #[arg(long, value_name = "VKEY", value_parser = parse_key)]
    key: Vec<VerifierKey>,

    /// The record that is to be proven, its line as it stands in the log. By default the one that comes with the proof.
    #[arg(long, value_name = "LINE", requires = "check")]
    record: Option<String>,

    /// How the result of a check is printed.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

/// Prints a proof, or checks one; returns whether it proves its record.
pub(super) fn proof(args: &ProofArgs, output: &mut impl Write) -> Result<bool, AuditError> {
    if let Some(path) = &args.check {
        return check(args, path, output);
    }
    let directory = args.log.as_deref().unwrap_or(Path::new("."));
    let proof = Proof::of(directory, args.seq.unwrap_or_default())?;
    write!(output, "{proof}").context(OutputSnafu)?;
    Ok(true)
}

fn check(args: &ProofArgs, path: &Path, output: &mut impl Write) -> Result<bool, AuditError> {
    let text =
        if path == Path::new("-") { io::read_to_string(io::stdin()) } else { fs::read_to_string(path) };
    let text = text.context(FileSnafu { what: "read", path })?;
    let record = args.record.as_deref().map(|line| line.trim_end_matches('\n').as_bytes());
    let checked = text.parse::<Proof>().and_then(|proof| proof.check(&args.key, record));
    let print = |output: &mut dyn Write| match (&checked, args.output) {
        (Ok(proven), Format::Json) => {
            let checkpoint = &proven.checkpoint;
            let json = serde_json::json!({
                "proven": true, "seq": proven.index, "origin": checkpoint.origin, "size": checkpoint.size,
                "record": proven.record,
            });
            writeln!(output, "{json}")
        }
        (Ok(proven), Format::Text) => {
            let checkpoint = &proven.checkpoint;
            let (origin, size) = (checkpoint.origin.escape_debug(), checkpoint.size);
            writeln!(output, "proven: record {} of {origin}, which had {size} then", proven.index)?;
            writeln!(output, "{}", proven.record)
        }
        (Err(error), Format::Json) => {
            writeln!(output, "{}", serde_json::json!({"proven": false, "error": error.to_string()}))
        }
        (Err(error), Format::Text) => writeln!(output, "not proven: {error}"),
    };
    print(output).context(OutputSnafu)?;
    match checked {
        Err(error @ (ProofError::NoRecord | ProofError::NoKey)) => Err(error.into()),
        checked => Ok(checked.is_ok()),
    }
}
