//! The manifests that a command is given.

use std::fmt;
use std::path::{Path, PathBuf};

use lucid_document::{Document, documents};

use crate::files::{FilesError, read};

/// Where manifests come from.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InputArgs {
    /// Manifests in YAML or JSON, with any number of documents; `-` is standard input. May be given several times.
    #[arg(long = "file", short = 'f', value_name = "FILE", required = true)]
    pub(super) files: Vec<PathBuf>,
}

/// A document, and where it stands.
pub(super) struct Input<'f> {
    path: &'f Path,
    /// Counted from 1 in its file, without those that hold nothing.
    number: usize,
    /// Whether it is the first of its file.
    pub(super) begins: bool,
    pub(super) document: Document,
}

impl InputArgs {
    /// All documents of all files, in order.
    pub(super) fn read(&self) -> Result<Vec<Input<'_>>, FilesError> {
        let mut inputs = Vec::new();
        for path in &self.files {
            let mut number = 0;
            for (place, document) in documents(&read(path)?).into_iter().enumerate() {
                number += usize::from(!matches!(document.value(), Ok(None)));
                inputs.push(Input { path, number, begins: place == 0, document });
            }
        }
        Ok(inputs)
    }
}

impl Input<'_> {
    pub(super) fn file(&self) -> String {
        self.path.display().to_string()
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Whether there is nothing but comments.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.document.value(), Ok(None))
    }
}

/// Where it stands, for messages.
impl fmt::Display for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {} at line {}", self.path.display(), self.number, self.document.line())
    }
}
