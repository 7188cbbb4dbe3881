use std::error::Error;
use std::process::ExitCode;

use snafu::CleanedErrorText;

/// Runs a binary's work and turns its result into an exit code; an error goes to standard error, with its causes.
pub async fn end(work: impl Future<Output = Result<(), Box<dyn Error>>>) -> ExitCode {
    match work.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// An error and what caused it, in one line; a cause that the error's own text repeats is there once.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let texts = CleanedErrorText::new(error).map(|(_, text, _)| text).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join(": ")
}
