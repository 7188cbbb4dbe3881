use std::fs;
use std::path::Path;

use lucid_audit::note::{KeyError, VerifierKey};
use snafu::Snafu;

/// An option names no key.
#[derive(Clone, Debug, Snafu)]
#[non_exhaustive]
pub enum KeyArgError {
    /// Neither a key nor a file with one.
    #[snafu(display("{text}: {source}; nor is it a file with one"))]
    Parse {
        /// What was given.
        text: String,
        /// What is wrong with it as a key.
        source: KeyError,
    },
    /// A file without a key.
    #[snafu(display("{path}: {source}"))]
    File {
        /// The file.
        path: String,
        /// What is wrong with what is in it.
        source: KeyError,
    },
}

/// Reads a verifier key from its text, or from the file of that name.
pub(super) fn parse_key(text: &str) -> Result<VerifierKey, KeyArgError> {
    match (text.parse(), fs::read_to_string(Path::new(text))) {
        (Ok(key), _) => Ok(key),
        (Err(_), Ok(file)) => {
            file.trim().parse().map_err(|source| KeyArgError::File { path: text.to_owned(), source })
        }
        (Err(source), Err(_)) => Err(KeyArgError::Parse { text: text.to_owned(), source }),
    }
}
