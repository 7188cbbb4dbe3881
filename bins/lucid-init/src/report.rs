//! Telling people how it ended, in one line.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    process::ExitCode,
};

use crate::Error;

/// The file whose content the kubelet shows in the container's status (`terminationMessagePath`).
const TERMINATION_LOG: &str = "/dev/termination-log";

/// The kubelet shows at most 4,096 bytes.
const LONGEST: usize = 4000;

/// Prints `text`; gives the exit code.
pub fn success(text: &str) -> ExitCode {
    match writeln!(io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(4),
    }
}

/// Tells of `error` on standard error and in the termination message; gives the exit code.
pub fn failure(error: &Error) -> ExitCode {
    let line = one_line(&format!("lucid-init: {error}"));
    // Who cannot be told by one way is told by the other, and by the exit code.
    let _ = writeln!(io::stderr(), "{line}");
    // Not created: only the kubelet knows whether there is one.
    if let Ok(mut log) = OpenOptions::new().write(true).truncate(true).open(TERMINATION_LOG) {
        let _ = log.write_all(line.as_bytes());
    }
    ExitCode::from(error.exit_code())
}

fn one_line(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() > LONGEST {
        line.truncate(line.floor_char_boundary(LONGEST));
        line.push('…');
    }
    line
}
