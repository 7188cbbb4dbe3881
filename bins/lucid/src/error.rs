//! Errors of commands. They are printed and decide the exit code; nothing else distinguishes them.

use std::error::Error;
use std::fmt::Display;

use snafu::Snafu;

pub(crate) type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

#[derive(Debug, Snafu)]
#[snafu(display("failed to {action}: {source}"))]
struct ActionError {
    action: String,
    source: Box<dyn Error>,
}

/// An error by which nothing was attempted, such as an unreadable file: exit code 2.
#[derive(Debug, Snafu)]
#[snafu(display("{source}"))]
pub(crate) struct UsageError {
    source: Box<dyn Error>,
}

pub(crate) fn usage_error(message: impl Into<Box<dyn Error>>) -> Box<dyn Error> {
    UsageError { source: message.into() }.into()
}

pub(crate) trait ResultExt<T> {
    fn failed_to(self, action: impl Display) -> Result<T>;

    fn failed_to_print(self) -> Result<T>;

    fn usage(self) -> Result<T>;
}

impl<T, E: Into<Box<dyn Error>>> ResultExt<T> for Result<T, E> {
    fn failed_to(self, action: impl Display) -> Result<T> {
        self.map_err(|source| ActionError { action: action.to_string(), source: source.into() }.into())
    }

    fn failed_to_print(self) -> Result<T> {
        self.failed_to("write to standard output")
    }

    fn usage(self) -> Result<T> {
        self.map_err(usage_error)
    }
}
