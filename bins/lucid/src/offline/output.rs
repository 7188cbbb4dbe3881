//! Output of documents, in their original or another format, and of messages.

use std::fmt::Display;
use std::io::{self, Write};

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

pub(super) struct Output<'w, W> {
    to: &'w mut W,
    last: Option<u8>,
    is_yaml: bool,
}

impl<'w, W: Write> Output<'w, W> {
    pub(super) fn new(to: &'w mut W) -> Self {
        Self { to, last: None, is_yaml: false }
    }

    /// Writes a document, in its original format by default. `begins` is `true` for the first document of its file.
    pub(super) fn document(
        &mut self,
        document: &Document,
        begins: bool,
        format: Option<Format>,
    ) -> io::Result<()> {
        let original = document.format();
        let format = format.filter(|it| *it != Format::Yaml || original == Format::Json);
        let is_yaml = format.unwrap_or(original) == Format::Yaml;
        let is_converted = format.is_some_and(|it| it != original);
        if is_converted && document.is_empty() {
            return Ok(());
        }
        let has_separator = format.is_none() && document.has_separator();
        if self.last.is_some() {
            // Documents of one file keep their own separators. JSON needs none, except after YAML.
            let is_new = begins || is_converted;
            let needs_separator = !has_separator && (self.is_yaml || is_new && is_yaml);
            if (is_new || has_separator || needs_separator) && self.last != Some(b'\n') {
                self.write_all(b"\n")?;
            }
            if needs_separator {
                self.write_all(b"---\n")?;
            }
        }
        self.is_yaml = is_yaml;
        document.write(format, self)
    }
}

impl<W: Write> Write for Output<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.last = bytes[..written].last().copied().or(self.last);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Warnings and errors, on standard error.
pub(super) struct Messages<'w> {
    to: &'w mut dyn Write,
    refused: bool,
}

impl<'w> Messages<'w> {
    pub(super) fn new(to: &'w mut dyn Write) -> Self {
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

    pub(super) fn is_fine(&self) -> bool {
        !self.refused
    }
}
