//! `lucid audit cosign`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lucid_audit::log::Cosigned;
use lucid_audit::note::{Note, VerifierKey};
use lucid_audit::witness::Submission;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, StatusCode, Url};
use serde_json::json;

use super::remote::{AccessArgs, RejectedError, Remote, builder, send};
use super::{Format, shutdown_signal};
use crate::documents::read;
use crate::error::{Result, ResultExt};

/// Options of `lucid audit cosign`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CosignArgs {
    /// Directory of the log.
    #[arg(long, value_name = "DIR")]
    log: PathBuf,

    /// Key that seals the log, as a vkey or a file with one. By default the file vkey in the log's directory.
    #[arg(long, value_name = "VKEY", value_parser = lucid_shared::options::parse_key)]
    key: Option<VerifierKey>,

    /// Comma-separated keys of the witnesses, as vkeys or files with them. Signatures of other keys are ignored.
    #[arg(long, value_name = "VKEY", value_parser = lucid_shared::options::parse_key)]
    #[arg(value_delimiter = ',', required = true)]
    witness: Vec<VerifierKey>,

    /// Submission prefix of a witness to request a cosignature from (C2SP tlog-witness); repeatable.
    #[arg(long, value_name = "URL", required_unless_present = "note")]
    ask: Vec<Url>,

    /// Read a cosigned checkpoint from this file instead; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ask", "every_seconds"])]
    note: Option<PathBuf>,

    /// URL of the process that writes the log, to send the cosignatures to its /audit/cosignatures. By default they are
    /// written to the log's directory, where a running process does not notice them.
    #[arg(long, value_name = "URL")]
    url: Option<Url>,

    /// Options of access to that process.
    #[command(flatten)]
    access: AccessArgs,

    /// Repeat the requests at this interval in seconds until SIGTERM or SIGINT.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    every_seconds: Option<u32>,

    /// Output format.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

/// Proof that the log differs from the one that a witness has seen.
struct Finding {
    class: &'static str,
    detail: String,
}

/// Maximum number of submissions to a witness whose tree size differs from the expected one.
const ATTEMPTS: u32 = 4;

/// Requests cosignatures. Returns `true` if the log is consistent with the checkpoints that the witnesses have seen.
pub(super) async fn cosign(args: &CosignArgs, output: &mut impl Write) -> Result<bool> {
    let mut shutdown = std::pin::pin!(shutdown_signal()?);
    let mut known = true;
    loop {
        match once(args, output).await {
            Ok(same) => known &= same,
            // The witness may be available in the next round.
            Err(error) if args.every_seconds.is_some() => {
                tracing::error!("{}", lucid_shared::with_causes(&*error));
            }
            Err(error) => return Err(error),
        }
        let Some(seconds) = args.every_seconds else { return Ok(known) };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(seconds.into())) => {}
            () = &mut shutdown => return Ok(known),
        }
    }
}

async fn once(args: &CosignArgs, output: &mut impl Write) -> Result<bool> {
    if let Some(path) = &args.note {
        let cosigned = store(args, &read(path)?).await?;
        print(args.output, Ok(&cosigned), output).failed_to_print()?;
        return Ok(true);
    }
    let witness = Remote::new(builder(None)?, None)?;
    let mut same = true;
    let mut failure = None;
    for url in &args.ask {
        match submit(&witness, url, &args.log).await {
            Ok(Ok(note)) => match store(args, &note.to_string()).await {
                Ok(cosigned) => print(args.output, Ok(&cosigned), output).failed_to_print()?,
                Err(error) => failure = Some(error),
            },
            Ok(Err(finding)) => {
                same = false;
                print(args.output, Err(&finding), output).failed_to_print()?;
            }
            // An error does not prevent requests to the other witnesses.
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if same => Err(error),
        Some(error) => {
            tracing::error!("{}", lucid_shared::with_causes(&*error));
            Ok(false)
        }
        None => Ok(same),
    }
}

/// Submits the checkpoint to a witness. Returns the cosigned checkpoint, or the finding if the witness has seen another
/// log.
async fn submit(witness: &Remote, prefix: &Url, log: &Path) -> Result<Result<Note, Finding>> {
    let mut url = prefix.clone();
    url.set_path(&format!("{}/add-checkpoint", prefix.path().trim_end_matches('/')));
    // On a mismatch, the witness responds with the size that it has seen.
    let mut old = 0;
    let mut attempts = 0;
    loop {
        attempts += 1;
        let submission = match Submission::of(log, old) {
            Err(error) if error.is_rollback() => {
                return Ok(Err(Finding { class: "shrink", detail: format!("{error} ({prefix})") }));
            }
            submission => submission?,
        };
        let request = witness.request(Method::POST, url.clone()).body(submission.to_string());
        let (status, text) = send(request, prefix).await?;
        match (status, text.trim().parse()) {
            (StatusCode::OK, _) => {
                return match submission.cosigned(&text) {
                    Ok(note) => Ok(Ok(note)),
                    Err(error) => {
                        Err(format!("{prefix} responded with 200, but without a valid cosignature: {error}")
                            .into())
                    }
                };
            }
            (StatusCode::CONFLICT, Ok(seen)) if seen != old && attempts < ATTEMPTS => old = seen,
            (StatusCode::UNPROCESSABLE_ENTITY, _) => {
                let origin = submission.origin();
                let detail = format!(
                    "the first {old} records of {origin} are not those that the witness has seen ({prefix})"
                );
                return Ok(Err(Finding { class: "fork", detail }));
            }
            _ => return Err(RejectedError::new(prefix, status, &text).into()),
        }
    }
}

/// Sends cosignatures to the process that writes the log, or stores them in the log's directory.
async fn store(args: &CosignArgs, note: &str) -> Result<Cosigned> {
    let Some(url) = &args.url else {
        let (key, witnesses) = (args.key.as_ref(), args.witness.iter().cloned());
        let stored = lucid_audit::log::cosign(&args.log, key, witnesses, note);
        return stored.failed_to("store the cosignatures");
    };
    let request = args.access.remote(url)?.request(Method::POST, url.clone());
    let request = request.header(CONTENT_TYPE, "text/plain").body(note.to_owned());
    let (status, text) = send(request, url).await?;
    match (status, serde_json::from_str(&text)) {
        (StatusCode::OK, Ok(cosigned)) => Ok(cosigned),
        _ => Err(RejectedError::new(url, status, &text).into()),
    }
}

fn print(format: Format, outcome: Result<&Cosigned, &Finding>, output: &mut impl Write) -> io::Result<()> {
    match (format, outcome) {
        (Format::Json, Ok(cosigned)) => writeln!(output, "{}", json!({"cosigned": cosigned}))?,
        (Format::Json, Err(Finding { class, detail })) => {
            writeln!(output, "{}", json!({"class": class, "detail": detail}))?;
        }
        (Format::Text, Ok(cosigned)) => writeln!(output, "{cosigned}")?,
        (Format::Text, Err(Finding { class, detail })) => {
            writeln!(output, "{class}: {}", detail.escape_debug())?
        }
    }
    output.flush()
}
