//! What can be wrong with a document.

use snafu::Snafu;

/// The text of a document cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
#[snafu(display("line {line}, column {column}: {problem}"))]
pub struct SyntaxError {
    line: usize,
    column: usize,
    problem: String,
}

impl SyntaxError {
    pub(crate) fn new(text: &str, at: usize, problem: impl Into<String>) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&it| it != '\n').count() + 1;
        Self { line, column, problem: problem.into() }
    }

    /// The same in a text that begins `lines` lines earlier.
    pub(crate) fn after(self, lines: usize) -> Self {
        Self { line: self.line + lines, ..self }
    }

    /// The line in the file, counted from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column, counted in characters from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }
}

/// A document cannot be edited.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum EditError {
    /// An operation does not apply.
    #[snafu(display("failed to change the document: {source}"))]
    Operation {
        /// Which, and why.
        source: json_patch::PatchError,
    },
    /// Neither the edited nor a newly written text means what it should.
    #[snafu(display(
        "failed to write the changed document: read again, its text would mean something else; please report this"
    ))]
    Unproved,
}
