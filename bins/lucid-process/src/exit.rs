use std::error::Error;
use std::io::{self, Stdout, Write};
use std::process::{self, ExitCode};

use snafu::CleanedErrorText;

/// As a shell tells of a process that SIGPIPE has ended.
const NOBODY_READS: i32 = 128 + 13;

/// Runs a binary's work and turns its result into an exit code; an error goes to standard error, with its causes.
pub async fn end(work: impl Future<Output = Result<(), Box<dyn Error>>>) -> ExitCode {
    match work.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(error.as_ref());
            ExitCode::FAILURE
        }
    }
}

/// Writes an error and its causes to standard error, if anybody reads it.
pub fn complain(error: &dyn Error) {
    let _ = writeln!(io::stderr(), "error: {}", with_causes(error));
}

/// An error and what caused it, in one line; a cause that stands anywhere in what is said already is left out.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut said = String::new();
    for (_, text, _) in CleanedErrorText::new(error) {
        if said.contains(&text) {
            continue;
        }
        if !said.is_empty() {
            said.push_str(": ");
        }
        said.push_str(&text);
    }
    said
}

/// Standard output of a command. When nobody reads it any more, as behind `| head`, the process ends without a word, with
/// exit code 141: what SIGPIPE would do, which Rust's runtime turns off.
#[must_use]
pub fn output() -> Output {
    Output(io::stdout())
}

/// See [`output`].
#[derive(Debug)]
pub struct Output(Stdout);

fn unless_closed<T>(written: io::Result<T>) -> io::Result<T> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => process::exit(NOBODY_READS),
        written => written,
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_closed(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_closed(self.0.flush())
    }
}

#[cfg(test)]
mod tests {
    use snafu::{ResultExt, Snafu};

    use super::*;

    #[derive(Debug, Snafu)]
    #[snafu(display("failed to use {url}: {source}; accepted are URLs"))]
    struct InTheMiddle {
        url: &'static str,
        source: std::num::ParseIntError,
    }

    #[derive(Debug, Snafu)]
    #[snafu(display("failed"))]
    struct Outside {
        source: InTheMiddle,
    }

    #[test]
    fn a_cause_that_was_said_already_is_left_out() {
        let inner = "x".parse::<u8>().context(InTheMiddleSnafu { url: "foo" });
        let text = "failed to use foo: invalid digit found in string; accepted are URLs";
        assert_eq!(with_causes(inner.as_ref().unwrap_err()), text);
        assert_eq!(with_causes(&inner.context(OutsideSnafu).unwrap_err()), format!("failed: {text}"));
    }
}
