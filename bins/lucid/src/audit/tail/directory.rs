//! Decisions of a log directory.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use lucid_audit::follow::LogFollower;

use super::TailArgs;
use super::entry::Entry;
use crate::audit::Format;
use crate::error::{Result, ResultExt};

const INTERVAL: Duration = Duration::from_millis(250);

pub(super) async fn tail(
    args: &TailArgs,
    directory: &Path,
    shutdown: impl Future<Output = ()>,
    output: &mut impl Write,
) -> Result<()> {
    if !directory.is_dir() {
        return Err(format!("{} is not the directory of a log", directory.display()).into());
    }
    let mut shutdown = std::pin::pin!(shutdown);
    let mut follower = LogFollower::new(directory);
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
        written.and_then(|()| output.flush()).failed_to_print()?;
        if !args.follow {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = &mut shutdown => return Ok(()),
        }
    }
}

/// Returns the line to print, or `None` if the filters exclude it.
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
