//! `lucid audit verify`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lucid_audit::Anchor;
use lucid_audit::note::{Note, NoteError, VerifierKey};
use lucid_audit::verify::{Expectations, Report, Since};
use serde::Serialize;

use super::Format;
use crate::error::{Result, ResultExt};

/// Options of `lucid audit verify`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct VerifyArgs {
    /// Directories of the logs, one for each replica.
    #[arg(required_unless_present = "log", value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// Directory of a log, as in the other commands; repeatable.
    #[arg(long, value_name = "DIR")]
    log: Vec<PathBuf>,

    /// Trusted sealing key, as a vkey or a file with one; repeatable. By default the file vkey in the log's directory,
    /// which does not detect a replacement of both.
    #[arg(long, value_name = "VKEY", value_parser = lucid_shared::options::parse_key)]
    key: Vec<VerifierKey>,

    /// Expected name of the log, such as lucid.computing/prod/lucid-operator-0. By default the name of the key.
    #[arg(long, value_name = "ORIGIN")]
    origin: Option<String>,

    /// Earlier state of the log from another location: the file of a checkpoint, or an anchor in JSON from the API
    /// server's audit log. Proves that nothing before it was removed or changed; repeatable.
    #[arg(long, value_name = "CHECKPOINT", value_parser = parse_since)]
    since: Vec<Since>,

    /// Also report an unsealed or torn end of the log, for logs that are no longer written.
    #[arg(long)]
    sealed: bool,

    /// Key of a witness that must have cosigned a checkpoint of the log, as a vkey or a file with one; repeatable. The
    /// records are compared with that checkpoint.
    #[arg(long, value_name = "VKEY", value_parser = lucid_shared::options::parse_key)]
    witness: Vec<VerifierKey>,

    /// Number of witnesses that must have cosigned. By default all of them.
    #[arg(long, value_name = "COUNT", requires = "witness")]
    quorum: Option<usize>,

    /// Cosigned checkpoint from another location or from a witness. By default checkpoint.cosigned in the log's
    /// directory, which can be rolled back together with the log.
    #[arg(long, value_name = "FILE", requires = "witness", value_parser = parse_cosigned)]
    cosigned: Option<Note>,

    /// Output format.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

fn parse_cosigned(path: &str) -> Result<Note, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    text.parse().map_err(|error: NoteError| error.to_string())
}

fn parse_since(text: &str) -> Result<Since, String> {
    if text.trim_start().starts_with('{') {
        let anchor = serde_json::from_str::<Anchor>(text).map_err(|error| error.to_string())?;
        if anchor.size <= anchor.seq {
            let Anchor { seq, size, .. } = anchor;
            return Err(format!("expected a size above seq, found seq {seq} and size {size}"));
        }
        return Ok(anchor.into());
    }
    let checkpoint = fs::read_to_string(text).map_err(|error| error.to_string())?;
    checkpoint.parse().map_err(|error: NoteError| error.to_string())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Verified<'a> {
    directory: &'a Path,
    intact: bool,
    #[serde(flatten)]
    report: Report,
}

/// Verifies logs and prints the results. Returns `true` if all are intact.
pub(super) fn verify(args: &VerifyArgs, output: &mut impl Write) -> Result<bool> {
    let mut expected = Expectations::default();
    expected.keys.clone_from(&args.key);
    expected.origin.clone_from(&args.origin);
    expected.since.clone_from(&args.since);
    expected.witnesses.clone_from(&args.witness);
    expected.cosigned.clone_from(&args.cosigned);
    (expected.sealed, expected.quorum) = (args.sealed, args.quorum);
    let mut logs = Vec::new();
    let mut errors = Vec::new();
    for directory in args.directories.iter().chain(&args.log) {
        match lucid_audit::verify::verify(directory, &expected) {
            Ok(report) => logs.push(Verified { directory, intact: report.is_intact(), report }),
            // The other logs are still verified.
            Err(error) => errors.push(error.to_string()),
        }
    }
    let mut print = || match args.output {
        Format::Json => {
            serde_json::to_writer(&mut *output, &serde_json::json!({ "logs": logs }))?;
            writeln!(output)
        }
        Format::Text => logs.iter().try_for_each(|log| text(log, output)),
    };
    print().failed_to_print()?;
    if !errors.is_empty() {
        return Err(errors.join("; ").into());
    }
    Ok(logs.iter().all(|log| log.intact))
}

fn text(log: &Verified<'_>, output: &mut impl Write) -> io::Result<()> {
    let Verified { directory, intact, report } = log;
    writeln!(output, "{}: {report}", directory.display())?;
    if report.sealed.is_none() && *intact {
        writeln!(output, "  the log is not sealed: only prev was checked; set --key if it has one")?;
    }
    if report.key_from_log {
        writeln!(output, "  the key was read from the log itself; set --key to detect a replaced key")?;
    }
    Ok(())
}
