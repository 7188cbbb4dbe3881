//! Minimum index of a pruned log (C2SP tlog-tiles): the first record that it keeps.
//!
//! The file is a checkpoint of the removed records with one extension line, `minimum HASH`, the leaf hash of the last of
//! them. No other checkpoint of the log has that line, so none can take its place.

use std::path::Path;

use snafu::OptionExt;

use crate::checkpoint::Checkpoint;
use crate::merkle::{Hash, empty_root};
use crate::note::{Note, NoteError, SigningKey, VerifierKey, malformed};
use crate::read::FileError;
use crate::tile::{Frontier, Tiles};

const EXTENSION: &str = "minimum ";

/// Minimum index of a log. The default is that of a log which keeps all records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Minimum {
    /// Sequence number of the first record kept, and number of those removed.
    pub(crate) first: u64,
    pub(crate) root: Hash,
    pub(crate) prev: Hash,
}

impl Default for Minimum {
    fn default() -> Self {
        Self { first: 0, root: empty_root(), prev: Hash::ZERO }
    }
}

impl Minimum {
    pub(crate) fn sign(&self, key: &SigningKey) -> Result<Note, NoteError> {
        let extensions = vec![format!("{EXTENSION}{}", self.prev)];
        let checkpoint = Checkpoint::new(key.verifier().name(), self.first, self.root);
        Checkpoint { extensions, ..checkpoint }.sign(key)
    }

    /// Parses the file and verifies that one of `keys` has signed it.
    pub(crate) fn verify(text: &str, keys: &[VerifierKey]) -> Result<Self, NoteError> {
        let note: Note = text.parse()?;
        let mut verified = None;
        for key in keys {
            verified = Some(Checkpoint::verify(&note, key));
            if let Some(Ok(_)) = verified {
                break;
            }
        }
        let verified = verified.context(malformed("no key is trusted"))?;
        let Checkpoint { size: first, root, extensions, .. } = verified?;
        let hash = match &extensions[..] {
            [line] => line.strip_prefix(EXTENSION).and_then(|hash| Hash::from_hex(hash.as_bytes())),
            _ => None,
        };
        let shape = "it is not a minimum index: expected `minimum` and a hash in the last line";
        let prev = hash.context(malformed(shape))?;
        Ok(Self { first, root, prev })
    }

    /// Loads the tree over the removed records from the tiles that remain.
    pub(crate) fn frontier(&self, directory: &Path) -> Result<Frontier, FileError> {
        let frontier = Frontier::load(Tiles { directory, size: self.first })?;
        let found = frontier.root();
        if found == self.root {
            return Ok(frontier);
        }
        let problem = format!("the first {} records have the root {found}, not {}", self.first, self.root);
        Err(FileError::invalid(&directory.join(crate::layout::TILES), problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merkle::leaf_hash;

    #[test]
    fn other_checkpoints_are_not_minimum_indexes() {
        let key = SigningKey::generate("lucid.computing/a").unwrap();
        let minimum = Minimum { first: 7, root: leaf_hash(b"a"), prev: leaf_hash(b"b") };
        let note = minimum.sign(&key).unwrap().to_string();
        let keys = [key.verifier().clone()];
        assert_eq!(Minimum::verify(&note, &keys).unwrap(), minimum);
        let other = SigningKey::generate("lucid.computing/a").unwrap();
        assert!(Minimum::verify(&note, &[other.verifier().clone()]).is_err());
        assert!(Minimum::verify(&note, &[]).is_err());
        let checkpoint = Checkpoint::new("lucid.computing/a", 7, minimum.root).sign(&key).unwrap();
        let error = Minimum::verify(&checkpoint.to_string(), &keys).unwrap_err().to_string();
        assert!(error.contains("is not a minimum index"), "{error}");
    }
}
