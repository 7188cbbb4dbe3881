use std::fmt;

use serde::de::Error as _;
use snafu::Snafu;

/// The JSON is invalid, or a value is not what the reader expects.
#[derive(Debug, Snafu)]
#[snafu(display("{path}: {}", self.problem()))]
pub struct Error {
    path: String,
    source: serde_json::Error,
}

impl From<serde_json::Error> for Error {
    fn from(source: serde_json::Error) -> Self {
        Self { path: ".".to_owned(), source }
    }
}

impl Error {
    /// An error at the value that is being read.
    #[must_use]
    pub fn new(problem: impl fmt::Display) -> Self {
        serde_json::Error::custom(problem).into()
    }

    /// Prepends a key, or an index such as `[1]`, to the path.
    #[must_use]
    pub fn within(self, parent: &str) -> Self {
        let path = match &*self.path {
            "." => parent.to_owned(),
            path if path.starts_with('[') => format!("{parent}{path}"),
            path => format!("{parent}.{path}"),
        };
        Self { path, ..self }
    }

    /// Returns the path of the invalid value, such as `spec.containers[0].ports[1].containerPort`; `.` is the whole
    /// document.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns what is wrong, without line and column of the value: users wrote YAML and never saw this JSON.
    #[must_use]
    pub fn problem(&self) -> String {
        let text = self.source.to_string();
        let place = format!(" at line {} column {}", self.source.line(), self.source.column());
        match text.strip_suffix(&place) {
            Some(problem) if self.source.is_data() => problem.to_owned(),
            _ => text,
        }
    }
}
