//! Checkpoints (C2SP tlog-checkpoint): the size of a log and the root of its tree.
//!
//! A checkpoint is the text of a [`Note`] signed by the log, which [`Checkpoint::verify`] verifies.

use std::fmt;
use std::str::FromStr;

use snafu::{OptionExt, ensure};

use crate::merkle::Hash;
use crate::note::{Note, NoteError, SigningKey, VerifierKey, malformed};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// Unique name of the log, such as `lucid.computing/prod/lucid-operator-0`. A non-empty line.
    pub(crate) origin: String,
    pub(crate) size: u64,
    pub(crate) root: Hash,
    /// Extension lines. Checkpoints of this crate have none.
    pub(crate) extensions: Vec<String>,
}

const SHAPE: &str = "a checkpoint is an origin, a size and a root, each in a line, and no empty lines";

impl Checkpoint {
    pub(crate) fn new(origin: impl Into<String>, size: u64, root: Hash) -> Self {
        Self { origin: origin.into(), size, root, extensions: Vec::new() }
    }

    pub(crate) fn sign(&self, key: &SigningKey) -> Result<Note, NoteError> {
        let text = self.to_string();
        // Never sign text that does not parse.
        let _: Self = text.parse()?;
        let mut note = Note::new(text)?;
        note.sign(key);
        Ok(note)
    }

    /// Verifies that the log with `key` has signed `note`, and parses its checkpoint. The name of the key is the log's origin.
    pub(crate) fn verify(note: &Note, key: &VerifierKey) -> Result<Self, NoteError> {
        note.verify(key)?;
        let checkpoint: Self = note.text().parse()?;
        let (found, expected) = (&checkpoint.origin, key.name());
        ensure!(found == expected, malformed(format!("the checkpoint is of {found}, not of {expected}")));
        Ok(checkpoint)
    }
}

/// Parses a signed note and its checkpoint, without verifying them.
pub(crate) fn parse(note: &str) -> Result<(Note, Checkpoint), NoteError> {
    let note: Note = note.parse()?;
    let checkpoint = note.text().parse()?;
    Ok((note, checkpoint))
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}\n{}", self.origin, self.size, self.root.to_base64())?;
        self.extensions.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl FromStr for Checkpoint {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let lines: Vec<&str> = text.strip_suffix('\n').context(malformed(SHAPE))?.split('\n').collect();
        let [origin, size, root, extensions @ ..] = &lines[..] else { return malformed(SHAPE).fail() };
        ensure!(lines.iter().all(|line| !line.is_empty()), malformed(SHAPE));
        let wrong = |what: &str, found: &str, expected: &str| {
            malformed(format!(
                "the {what} in the checkpoint of {origin}: expected {expected}, found {found:?}"
            ))
        };
        let number = size.parse().ok().filter(|number: &u64| number.to_string() == *size);
        let decimal = "a decimal number without leading zeros";
        Ok(Self {
            origin: (*origin).to_owned(),
            size: number.with_context(|| wrong("size", size, decimal))?,
            root: Hash::from_base64(root).with_context(|| wrong("root", root, "base64 of 32 bytes"))?,
            extensions: extensions.iter().map(|line| (*line).to_owned()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=";

    #[test]
    fn a_checkpoint_round_trips() {
        for text in [format!("a b\n0\n{ROOT}\n"), format!("a\n{}\n{ROOT}\nextension\nanother\n", u64::MAX)] {
            assert_eq!(text.parse::<Checkpoint>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn malformed_checkpoints_are_rejected() {
        for text in [
            String::new(),
            format!("a\n1\n{ROOT}"),
            format!("\n1\n{ROOT}\n"),
            format!("a\n01\n{ROOT}\n"),
            format!("a\n+1\n{ROOT}\n"),
            format!("a\n-1\n{ROOT}\n"),
            format!("a\n18446744073709551616\n{ROOT}\n"),
            format!("a\n1\n{}\n", &ROOT[4..]),
            format!("a\n1\n{} \n", ROOT),
            format!("a\n1\n{ROOT}\n\n"),
            "a\n1\n".to_owned(),
        ] {
            assert!(text.parse::<Checkpoint>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn checkpoints_of_other_logs_are_rejected() {
        let key = SigningKey::generate("lucid.computing/a").unwrap();
        let note = Checkpoint::new("lucid.computing/a", 7, Hash::ZERO).sign(&key).unwrap();
        assert_eq!(Checkpoint::verify(&note, key.verifier()).unwrap().size, 7);
        let other = Checkpoint::new("lucid.computing/b", 7, Hash::ZERO).sign(&key).unwrap();
        let error = Checkpoint::verify(&other, key.verifier()).unwrap_err();
        assert_eq!(error.to_string(), "the checkpoint is of lucid.computing/b, not of lucid.computing/a");
        assert!(Checkpoint::new("two\nlines", 7, Hash::ZERO).sign(&key).is_err());
    }
}
