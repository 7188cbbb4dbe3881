//! `lucid-validator audit tail`.

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use lucid_audit::follow::LogFollower;
use serde::Deserialize;
use snafu::{ResultExt, Snafu};

use super::{AuditError, FileSnafu, Format, OutputSnafu};

/// The options of `lucid-validator audit tail`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct TailArgs {
    /// The directory of a log.
    #[arg(value_name = "DIR")]
    log: PathBuf,

    /// Goes on as the log is written, until SIGTERM or SIGINT.
    #[arg(long, short)]
    follow: bool,

    /// How many of the latest decisions are printed at first.
    #[arg(long, short = 'n', value_name = "COUNT", default_value = "20")]
    lines: usize,

    /// Only decisions about this namespace.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// Only these decisions: would-deny is what passed although the policy refuses it.
    #[arg(long, value_name = "DECISION")]
    decision: Option<Outcome>,

    /// Only decisions with this ticket.
    #[arg(long, value_name = "TICKET")]
    ticket: Option<String>,

    /// How it is printed; json is the lines as they stand in the log.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Outcome {
    Allowed,
    Denied,
    WouldDeny,
}

/// Why there is nothing to follow.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum TailError {
    /// The directory is none of a log.
    #[snafu(display("{} is no directory of a log", path.display()))]
    NoLog {
        /// What was given.
        path: PathBuf,
    },
}

/// A line, as far as it is printed.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Entry {
    seq: u64,
    time: String,
    webhook: String,
    operation: String,
    kind: String,
    namespace: String,
    name: String,
    user: String,
    allowed: bool,
    would_deny: bool,
    dry_run: bool,
    patched: bool,
    ticket: String,
    message: String,
}

const INTERVAL: Duration = Duration::from_millis(250);

/// Prints decisions.
pub(super) async fn tail(args: &TailArgs, output: &mut impl Write) -> Result<(), AuditError> {
    if !args.log.is_dir() {
        return Err(TailError::NoLog { path: args.log.clone() }.into());
    }
    let shutdown = lucid_process::shutdown_signal()
        .context(FileSnafu { what: "wait for signals instead of", path: &args.log })?;
    let mut shutdown = std::pin::pin!(shutdown);
    let mut follower = LogFollower::new(&args.log);
    let mut first = Some(VecDeque::new());
    loop {
        let mut written = Ok(());
        follower.poll(|line| {
            let Some(text) = show(args, line) else { return };
            match &mut first {
                Some(latest) => {
                    latest.push_back(text);
                    if latest.len() > args.lines {
                        latest.pop_front();
                    }
                }
                None if written.is_ok() => written = writeln!(output, "{text}"),
                None => {}
            }
        })?;
        for text in first.take().unwrap_or_default() {
            written = written.and_then(|()| writeln!(output, "{text}"));
        }
        written.and_then(|()| output.flush()).context(OutputSnafu)?;
        if !args.follow {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = &mut shutdown => return Ok(()),
        }
    }
}

/// The line as it is printed; `None` when it is not asked for.
fn show(args: &TailArgs, line: &[u8]) -> Option<String> {
    let entry: Entry = match serde_json::from_slice(line) {
        Ok(entry) => entry,
        Err(_) => return Some(format!("(no record) {}", String::from_utf8_lossy(line).escape_debug())),
    };
    let wanted = args.namespace.as_ref().is_none_or(|it| *it == entry.namespace)
        && args.ticket.as_ref().is_none_or(|it| *it == entry.ticket)
        && args.decision.is_none_or(|decision| entry.is(decision));
    wanted.then(|| match args.output {
        Format::Json => String::from_utf8_lossy(line).into_owned(),
        Format::Text => entry.text(line),
    })
}

impl Entry {
    fn is(&self, decision: Outcome) -> bool {
        match decision {
            Outcome::Allowed => self.allowed && !self.webhook.is_empty(),
            Outcome::Denied => !self.allowed && !self.webhook.is_empty(),
            Outcome::WouldDeny => self.allowed && self.would_deny,
        }
    }

    fn text(&self, line: &[u8]) -> String {
        let Self { seq, time, webhook, operation, kind, namespace, name, user, .. } = self;
        let time = time.split('.').next().unwrap_or_default().trim_end_matches('Z');
        if webhook.is_empty() {
            // What the log writes about itself.
            return format!("{seq:>8} {time}Z {}", String::from_utf8_lossy(line).escape_debug());
        }
        let verdict = match (self.allowed, self.would_deny) {
            (true, false) => "allowed",
            (true, true) => "would deny",
            (false, _) => "denied",
        };
        let mut text = format!(
            "{seq:>8} {time}Z {verdict:<10} {webhook} {operation} {kind} {namespace}/{name} by {user}"
        );
        for (is, word) in [(self.dry_run, " (dry run)"), (self.patched, " (patched)")] {
            text.push_str(if is { word } else { "" });
        }
        if !self.ticket.is_empty() {
            text.push_str(&format!(" [{}]", self.ticket));
        }
        if !self.message.is_empty() {
            text.push_str(&format!(": {}", self.message));
        }
        // Names are the request's: they may hold anything.
        text.escape_debug().to_string().replace("\\'", "'").replace("\\\"", "\"")
    }
}
