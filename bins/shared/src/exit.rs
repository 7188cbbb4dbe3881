use std::error::Error;
use std::io::{self, Stdout, Write};
use std::process::{self, ExitCode};

use lucid_text::with_causes;

/// Exit code by which shells report a process that SIGPIPE has terminated.
const BROKEN_PIPE: i32 = 128 + 13;

/// Runs a binary's main future and turns its result into an exit code. An error is printed to standard error with its
/// causes.
pub async fn end(work: impl Future<Output = Result<(), Box<dyn Error>>>) -> ExitCode {
    match work.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(error.as_ref());
            ExitCode::FAILURE
        }
    }
}

/// Prints an error and its causes to standard error. Ignores write errors.
pub fn complain(error: &dyn Error) {
    let _ = writeln!(io::stderr(), "error: {}", with_causes(error));
}

/// Returns standard output for a command. On a broken pipe, as in `| head`, the process exits silently with code 141.
/// SIGPIPE would do the same, but Rust's runtime ignores it.
#[must_use]
pub fn output() -> Output {
    Output(io::stdout())
}

/// See [`output`].
#[derive(Debug)]
pub struct Output(Stdout);

fn unless_closed<T>(written: io::Result<T>) -> io::Result<T> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => process::exit(BROKEN_PIPE),
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
