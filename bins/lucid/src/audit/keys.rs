use std::fs;
use std::path::Path;

use lucid_audit::note::{NoteError, VerifierKey};
use snafu::Snafu;

/// An option contains no key.
#[derive(Clone, Debug, Snafu)]
#[non_exhaustive]
pub(crate) enum KeyArgError {
    /// The value is neither a key nor a file with one.
    #[snafu(display("{text}: {source}; nor is it a file with one"))]
    Parse {
        /// Value of the option.
        text: String,
        /// Error of parsing the value as a key.
        source: NoteError,
    },
    /// The file contains no valid key.
    #[snafu(display("{path}: {source}"))]
    File {
        /// Path of the file.
        path: String,
        /// Error of parsing the content as a key.
        source: NoteError,
    },
}

/// Parses a verifier key, either given as text or read from the file of that name.
pub(super) fn parse_key(text: &str) -> Result<VerifierKey, KeyArgError> {
    match (text.parse(), fs::read_to_string(Path::new(text))) {
        (Ok(key), _) => Ok(key),
        (Err(_), Ok(file)) => {
            file.trim().parse().map_err(|source| KeyArgError::File { path: text.to_owned(), source })
        }
        (Err(source), Err(_)) => Err(KeyArgError::Parse { text: text.to_owned(), source }),
    }
}
