//! Errors of options.

use std::{error, fmt, fs, path::Path};

/// An option is invalid, or a file that it names.
///
/// The message has the key, what is expected and what was found.
pub struct OptionsError(String);

impl OptionsError {
    pub(crate) fn new(key: impl fmt::Display, fault: impl fmt::Display) -> Self {
        Self(format!("{key}: {fault}"))
    }

    pub(crate) fn found(
        key: impl fmt::Display,
        found: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Self {
        Self::new(key, format_args!("expected {expected}, found {found}"))
    }

    /// `found` is not exactly one of the `known` names, or not all of its names are known.
    pub(crate) fn one_of(key: impl fmt::Display, found: impl fmt::Display, known: impl fmt::Display) -> Self {
        Self::new(key, format_args!("expected one of {known}; found {found}"))
    }

    /// The error of a parser, which names the key.
    pub(crate) fn parse(error: &serde_yaml::Error) -> Self {
        Self(error.to_string())
    }

    /// Prepends a path to the key.
    pub(crate) fn within(self, path: impl fmt::Display) -> Self {
        Self(format!("{path}.{self}"))
    }
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Like `Display`: a program whose `main` returns the error prints it so.
impl fmt::Debug for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl error::Error for OptionsError {}

pub(crate) fn read(key: &str, path: &Path) -> Result<Vec<u8>, OptionsError> {
    fs::read(path)
        .map_err(|error| OptionsError::new(key, format_args!("failed to read {}: {error}", path.display())))
}

pub(crate) fn read_text(key: &str, path: &Path) -> Result<String, OptionsError> {
    String::from_utf8(read(key, path)?)
        .map_err(|error| OptionsError::new(key, format_args!("failed to read {}: {error}", path.display())))
}
