//! Output of documents, in their original or another format or as patches, and of messages.

use std::fmt::Display;
use std::io::Write;

use json_patch::Patch;
use snafu::ResultExt;

use super::error::{OfflineError, OutputSnafu};
use crate::documents::{Document, Format};

/// Output format of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    /// YAML. Unchanged documents that are YAML already keep their text.
    Yaml,
    /// JSON, one document after the other. Unchanged documents that are JSON already keep their text.
    Json,
    /// One JSON Patch (RFC 6902) per document, on one line; `null` for a denied document.
    Patch,
}

/// Buffer of the documents written so far.
#[derive(Default)]
pub(super) struct Output {
    text: String,
    /// `true` if the last document is YAML.
    is_yaml: bool,
}

impl Output {
    /// Adds a document, in its original format by default. `begins` is `true` for the first document of its file.
    pub(super) fn document(&mut self, document: &Document, begins: bool, format: Option<OutputFormat>) {
        let from = document.format();
        let (text, is_converted) = match format {
            Some(OutputFormat::Json) => (document.to_json().into(), from == Format::Yaml),
            Some(_) if from == Format::Json => (document.to_yaml(), true),
            _ => (document.text(), false),
        };
        if text.is_empty() {
            return;
        }
        let is_yaml = (from == Format::Yaml) != is_converted;
        let is_apart = text.trim_start_matches('\u{feff}').starts_with("---");
        if !self.text.is_empty() {
            // Documents of one file keep their own separators. JSON needs none, except after YAML.
            let is_new = begins || is_converted;
            let needs_separator = !is_apart && (self.is_yaml || is_new && is_yaml);
            if (is_new || is_apart || needs_separator) && !self.text.ends_with('\n') {
                self.text.push('\n');
            }
            if needs_separator {
                self.text.push_str("---\n");
            }
        }
        self.is_yaml = is_yaml;
        self.text.push_str(&text);
    }

    /// Adds the patch of a document, or `null` for a denied one.
    pub(super) fn patch(&mut self, patch: Option<&Patch>) {
        let line = patch.and_then(|patch| serde_json::to_string(patch).ok());
        self.text.push_str(line.as_deref().unwrap_or("null"));
        self.text.push('\n');
    }

    pub(super) fn write(&self, output: &mut impl Write) -> Result<(), OfflineError> {
        output.write_all(self.text.as_bytes()).and_then(|()| output.flush()).context(OutputSnafu)
    }
}

/// Warnings and errors, on standard error.
pub(super) struct Messages<'w, W> {
    to: &'w mut W,
    refused: bool,
}

impl<'w, W: Write> Messages<'w, W> {
    pub(super) fn new(to: &'w mut W) -> Self {
        Self { to, refused: false }
    }

    pub(super) fn warn(&mut self, place: impl Display, warning: impl Display) {
        // Write errors on standard error cannot be reported.
        let _ = writeln!(self.to, "warning: {place}: {warning}");
    }

    pub(super) fn refuse(&mut self, place: impl Display, reason: impl Display) {
        self.refused = true;
        let _ = writeln!(self.to, "error: {place}: {reason}");
    }

    /// Returns `true` if no document was denied.
    pub(super) fn is_fine(&self) -> bool {
        !self.refused
    }
}
