use std::fmt::Display;

use lucid_text::with_causes;
use snafu::Snafu;

/// A program cannot start, or failed. Its user reads the message; no caller distinguishes cases.
#[derive(Debug, Snafu)]
#[snafu(display("{message}"))]
pub struct Error {
    message: String,
}

impl Error {
    /// Creates an error with this message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }

    /// Returns a conversion of errors that prefixes the error and its causes with `context`.
    pub fn with_context<E: std::error::Error>(context: impl Display) -> impl FnOnce(E) -> Self {
        move |error| Self::new(format!("{context}: {}", with_causes(&error)))
    }
}
