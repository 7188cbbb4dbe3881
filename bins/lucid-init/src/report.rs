//! Reports the result of the process in one line.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    process::ExitCode,
};

use crate::error::Error;

/// The container's `terminationMessagePath`. The kubelet copies its content to the container status.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Maximum length in bytes. The kubelet truncates the message at 4096.
const MAX_LENGTH: usize = 4000;

pub(crate) fn success(text: &str) -> ExitCode {
    match writeln!(io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(4),
    }
}

/// Writes `error` to standard error and to the termination message.
pub(crate) fn failure(error: &Error) -> ExitCode {
    let line = one_line(&format!("lucid-init: {error}"));
    // Failed writes are ignored: the exit code reports the error as well.
    let _ = writeln!(io::stderr(), "{line}");
    // Not created if missing: only the kubelet provides the file.
    if let Ok(mut log) = OpenOptions::new().write(true).truncate(true).open(TERMINATION_LOG) {
        let _ = log.write_all(line.as_bytes());
    }
    ExitCode::from(error.exit_code())
}

fn one_line(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() > MAX_LENGTH {
        line.truncate(line.floor_char_boundary(MAX_LENGTH));
        line.push('…');
    }
    line
}
