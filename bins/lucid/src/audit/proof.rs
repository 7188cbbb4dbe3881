//! `lucid audit proof`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lucid_audit::note::VerifierKey;
use lucid_audit::proof::{Proof, Proven};
use serde_json::json;

use super::Format;
use crate::documents::read;
use crate::error::{Result, ResultExt};

/// Options of `lucid audit proof`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ProofArgs {
    /// Sequence number of the record.
    #[arg(value_name = "SEQ", required_unless_present = "check", requires = "log", value_parser = parse_seq)]
    seq: Option<u64>,

    /// Directory of a log; repeatable.
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    log: Vec<PathBuf>,

    /// Name of the log, such as lucid.computing/prod/lucid-operator-0, if several logs have a record with this number.
    #[arg(long, value_name = "ORIGIN", requires = "log")]
    origin: Option<String>,

    /// Check the proof in this file instead; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "seq", requires = "key")]
    check: Option<PathBuf>,

    /// Trusted sealing key, as a vkey or a file with one; repeatable.
    #[arg(long, value_name = "VKEY", value_parser = lucid_shared::options::parse_key)]
    key: Vec<VerifierKey>,

    /// Record to prove, as its line in the log. By default the record included in the proof.
    #[arg(long, value_name = "LINE", requires = "check")]
    record: Option<String>,

    /// Output format of a check.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", requires = "check")]
    output: Format,
}

/// Prints a proof, or checks one. Returns `true` if it proves its record.
pub(super) fn proof(args: &ProofArgs, output: &mut impl Write) -> Result<bool> {
    if let Some(path) = &args.check {
        return check(args, path, output);
    }
    let proof = find(args, args.seq.unwrap_or_default())?;
    write!(output, "{proof}").failed_to_print()?;
    Ok(true)
}

/// Finds the proof in the one log that has the record and matches `--origin`.
fn find(args: &ProofArgs, seq: u64) -> Result<Proof> {
    let mut failure = None;
    let mut proofs = Vec::new();
    for directory in &args.log {
        match Proof::of(directory, seq) {
            Ok(proof) => proofs.push(proof),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    proofs.retain(|proof| args.origin.as_ref().is_none_or(|wanted| proof.origin() == wanted));
    let logs = proofs.iter().map(Proof::origin).collect::<Vec<_>>().join(", ");
    match (proofs.pop().filter(|_| proofs.is_empty()), failure.filter(|_| logs.is_empty())) {
        (Some(proof), _) => Ok(proof),
        (None, Some(error)) => Err(error.into()),
        (None, None) => {
            let logs = if logs.is_empty() { "no log of that origin" } else { &logs };
            Err(format!("record {seq} is in {logs}; select the log by --origin ORIGIN").into())
        }
    }
}

fn parse_seq(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected the seq of a record, a number from 0".to_owned())
}

fn check(args: &ProofArgs, path: &Path, output: &mut impl Write) -> Result<bool> {
    let text = read(path)?;
    let record = args.record.as_deref().map(|line| line.trim_end_matches('\n').as_bytes());
    let checked = text.parse::<Proof>().and_then(|proof| proof.check(&args.key, record));
    print(&checked, args.output, output).failed_to_print()?;
    match checked {
        Err(error) if error.is_incomplete() => Err(error.into()),
        checked => Ok(checked.is_ok()),
    }
}

fn print(
    checked: &Result<Proven, lucid_audit::Error>,
    format: Format,
    output: &mut impl Write,
) -> io::Result<()> {
    match (checked, format) {
        (Ok(proven), Format::Json) => {
            let mut json = json!(proven);
            json["proven"] = true.into();
            writeln!(output, "{json}")
        }
        (Ok(proven), Format::Text) => writeln!(output, "proven: {proven}"),
        (Err(error), Format::Json) => {
            writeln!(output, "{}", json!({"proven": false, "error": error.to_string()}))
        }
        (Err(error), Format::Text) => writeln!(output, "not proven: {error}"),
    }
}
