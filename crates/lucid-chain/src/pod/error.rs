//! Errors with a JSON path.

use std::fmt;

use serde::de::Error as _;
use snafu::Snafu;

use crate::text::Line;

/// The JSON is not a pod that can be planned for.
#[derive(Debug, Snafu)]
#[snafu(display("failed to read the pod at {}: {}", Line(path), Line(&reason(source))))]
pub struct PodError {
    /// JSON path of the invalid value, such as `spec.containers[0].ports[1].containerPort`; `.` is the whole
    /// document.
    path: String,
    source: serde_json::Error,
}

impl From<serde_json::Error> for PodError {
    fn from(source: serde_json::Error) -> Self {
        Self { path: String::new(), source }
    }
}

impl PodError {
    pub(super) fn new(path: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self { path: path.into(), source: serde_json::Error::custom(problem) }
    }

    /// Prepends a key or index to the path.
    pub(super) fn within(self, parent: &str) -> Self {
        let separator = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        Self { path: format!("{parent}{separator}{}", self.path), ..self }
    }

    /// Completes the path.
    pub(super) fn of_pod(self) -> Self {
        if self.path.is_empty() { self.within(".") } else { self }
    }

    /// Returns the JSON path of the invalid value, such as `spec.containers[0].ports[1].containerPort`; `.` is the
    /// whole document.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// Returns the problem, without the line and column of data errors. Users wrote YAML and never saw this JSON, and
/// positions in a container are relative to its start; the path locates the value instead.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(reason) if error.is_data() => reason.to_owned(),
        _ => text,
    }
}
