//! From the files that a command is given to their documents.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use snafu::{ResultExt, Snafu};

use crate::document::Document;
use crate::stream::documents;

/// A file cannot be read.
#[derive(Debug, Snafu)]
#[snafu(display("failed to read {}: {source}", path.display()))]
pub struct ReadError {
    /// Which; `-` is standard input.
    path: PathBuf,
    /// What the system said.
    source: io::Error,
}

/// The text of a file; `-` is standard input.
///
/// # Errors
/// [`ReadError`] when there is none, or it is not UTF-8.
pub fn read(path: &Path) -> Result<String, ReadError> {
    let text =
        if path == Path::new("-") { io::read_to_string(io::stdin()) } else { fs::read_to_string(path) };
    text.context(ReadSnafu { path })
}

/// A document, and where it stands.
#[derive(Debug)]
pub struct Input<'f> {
    path: &'f Path,
    /// Counted from 1 in its file, without those that hold nothing.
    number: usize,
    /// Whether it is the first of its file.
    pub begins: bool,
    /// The document.
    pub document: Document,
}

/// All documents of all files, in order.
///
/// # Errors
/// [`ReadError`] when a file cannot be read. What is wrong with a document, [`Document::value`] says.
pub fn inputs(files: &[PathBuf]) -> Result<Vec<Input<'_>>, ReadError> {
    let mut inputs = Vec::new();
    for path in files {
        let mut number = 0;
        for (place, document) in documents(&read(path)?).into_iter().enumerate() {
            number += usize::from(!matches!(document.value(), Ok(None)));
            inputs.push(Input { path, number, begins: place == 0, document });
        }
    }
    Ok(inputs)
}

impl Input<'_> {
    /// The file's path.
    #[must_use]
    pub fn file(&self) -> String {
        self.path.display().to_string()
    }

    /// Which document of its file it is, counted from 1 without those that hold nothing.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Whether there is nothing but comments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.document.value(), Ok(None))
    }
}

/// Where it stands, for messages.
impl fmt::Display for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {} at line {}", self.path.display(), self.number, self.document.line())
    }
}
