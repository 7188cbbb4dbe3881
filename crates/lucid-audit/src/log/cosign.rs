//! Cosignatures of witnesses, which verify that a log only grows (C2SP tlog-cosignature).

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use snafu::{OptionExt, ResultExt, ensure_whatever, whatever};

use crate::checkpoint::{self, Checkpoint};
use crate::error::{Error, Problem};
use crate::layout;
use crate::merkle::root;
use crate::note::{Note, NoteErrorKind, VerifierKey};
use crate::read::{self, FileSnafu};
use crate::tile::Tiles;

use super::files;

pub(super) const UNSEALED: &str = "the log is not sealed";

/// A checkpoint cosigned by witnesses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cosigned {
    /// Number of records that the checkpoint covers.
    pub(super) size: u64,
    /// Key names of the configured witnesses that have signed.
    witnesses: Vec<String>,
}

impl fmt::Display for Cosigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records are cosigned by {}", self.size, self.witnesses.join(", "))
    }
}

/// Accepts cosignatures for the log in `directory`, as [`Log::cosign`](super::Log::cosign) does, while no process has the log
/// open. A process that has it open does not notice until it restarts. Without a `key`, the one published in the directory is
/// trusted.
///
/// # Errors
///
/// See [`Log::cosign`](super::Log::cosign).
pub fn cosign(
    directory: &Path,
    key: Option<&VerifierKey>,
    witnesses: impl IntoIterator<Item = VerifierKey>,
    note: &str,
) -> Result<Cosigned, Error> {
    Ok(accept_offline(directory, key, &Vec::from_iter(witnesses), note)?)
}

fn accept_offline(
    directory: &Path,
    key: Option<&VerifierKey>,
    witnesses: &[VerifierKey],
    note: &str,
) -> Result<Cosigned, Problem> {
    let published;
    let key = match key {
        Some(key) => key,
        None => {
            published = read::existing(&directory.join(layout::VKEY))?.trim().parse()?;
            &published
        }
    };
    let text = read::text(&directory.join(layout::CHECKPOINT))?.whatever_context::<_, Problem>(UNSEALED)?;
    let sealed = Checkpoint::verify(&text.parse()?, key)?.size;
    accept(directory, key, witnesses, sealed, note)
}

/// Returns the stored cosigned checkpoint, if there is a valid one.
pub(super) fn stored(directory: &Path) -> Option<(Note, Checkpoint)> {
    let text = read::text(&directory.join(layout::COSIGNED)).ok().flatten()?;
    checkpoint::parse(&text).ok()
}

/// Accepts a note with cosignatures. `sealed` is the size of the tree. The caller must prevent concurrent calls.
pub(super) fn accept(
    directory: &Path,
    key: &VerifierKey,
    witnesses: &[VerifierKey],
    sealed: u64,
    note: &str,
) -> Result<Cosigned, Problem> {
    let note: Note = note.parse()?;
    let Checkpoint { size, root: found, .. } = Checkpoint::verify(&note, key)?;
    let says =
        format!("the checkpoint says that {size} records have the root {found}; in this log they have");
    ensure_whatever!(size <= sealed, "{says} none: it has {sealed}");
    let expected = root(&Tiles { directory, size: sealed }, size)?;
    ensure_whatever!(found == expected, "{says} {expected}");

    let before = stored(directory);
    let mut cosigned = Note::new(note.text())?;
    // Merge with stored signatures, since witnesses respond one by one.
    let merged = before.iter().map(|(before, _)| before).filter(|before| before.text() == note.text());
    for signature in merged.chain([&note]).flat_map(Note::signatures) {
        let is_signer = |key: &VerifierKey| (key.name(), key.id()) == (&*signature.name, signature.id);
        if is_signer(key) || witnesses.iter().any(is_signer) {
            cosigned.add(signature.clone());
        }
    }
    let mut names = Vec::new();
    for witness in witnesses {
        match cosigned.verify(witness) {
            Ok(_) => names.push(witness.name().to_owned()),
            Err(error) if error.kind == NoteErrorKind::Unsigned => {}
            Err(wrong) => whatever!("{wrong}"),
        }
    }
    if names.is_empty() {
        let keys: Vec<_> = witnesses.iter().map(ToString::to_string).collect();
        let keys = if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
        whatever!("none of the signatures is by a configured witness; configured are {keys}");
    }
    if before.is_none_or(|(_, before)| before.size <= size) {
        let path = directory.join(layout::COSIGNED);
        files::replace(&path, cosigned.to_string().as_bytes()).context(FileSnafu { what: "write", path })?;
    }
    Ok(Cosigned { size, witnesses: names })
}
