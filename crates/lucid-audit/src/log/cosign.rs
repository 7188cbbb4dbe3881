//! Cosignatures of witnesses, which verify that a log only grows (C2SP tlog-cosignature).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use snafu::{ResultExt, Snafu, ensure_whatever, whatever};

use crate::checkpoint::{self, Checkpoint};
use crate::layout;
use crate::merkle::root;
use crate::metrics::{Metrics, gauge};
use crate::note::{Note, NoteError, VerifierKey};
use crate::read::{self, ReadError};
use crate::tile::Tiles;

use super::files;
use super::options::Options;

/// Error accepting cosignatures.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum CosignError {
    /// The note is not a checkpoint of this log, or the log's own checkpoint is malformed.
    #[snafu(transparent)]
    Note {
        /// Underlying note error.
        source: NoteError,
    },
    /// The log is not sealed, the checkpoint does not match it, a witness' signature is invalid, or no configured witness has
    /// signed.
    #[snafu(whatever, display("{message}"))]
    Refused {
        /// Description of the problem.
        message: String,
    },
    /// The checkpoint or the tree cannot be read.
    #[snafu(transparent)]
    Read {
        /// Underlying read error.
        source: ReadError,
    },
    /// The cosigned checkpoint cannot be written.
    #[snafu(display("failed to write {}: {source}", path.display()))]
    Write {
        /// Path of the cosigned checkpoint.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
}

impl CosignError {
    pub(super) fn not_sealed<T>() -> Result<T, Self> {
        whatever!("the log is not sealed")
    }
}

/// A checkpoint cosigned by witnesses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Cosigned {
    /// Number of records that the checkpoint covers.
    pub size: u64,
    /// Key names of the configured witnesses that have signed.
    pub witnesses: Vec<String>,
}

/// Accepts cosignatures for the log in `directory`, as [`Log::cosign`](super::Log::cosign) does, while no process has the log
/// open. A process that has it open does not notice until it restarts.
///
/// # Errors
///
/// See [`Log::cosign`](super::Log::cosign).
pub fn cosign(
    directory: &Path,
    key: &VerifierKey,
    witnesses: impl IntoIterator<Item = VerifierKey>,
    note: &str,
) -> Result<Cosigned, CosignError> {
    let Some(text) = read::text(&directory.join(layout::CHECKPOINT))? else {
        return CosignError::not_sealed();
    };
    let sealed = Checkpoint::verify(&text.parse()?, key)?.size;
    Witnesses::new(directory, &Options::new().with_witnesses(witnesses)).accept(note, key, sealed)
}

/// The witnesses of a log and their latest cosignatures.
#[derive(Debug)]
pub(super) struct Witnesses {
    directory: PathBuf,
    keys: Vec<VerifierKey>,
    metrics: Metrics,
    /// Size of the stored cosigned checkpoint.
    size: Mutex<u64>,
}

impl Witnesses {
    pub(super) fn new(directory: &Path, options: &Options) -> Self {
        let text = read::text(&directory.join(layout::COSIGNED)).ok().flatten();
        let kept = text.and_then(|text| checkpoint::parse(&text).ok());
        let size = kept.map_or(0, |(_, checkpoint)| checkpoint.size);
        options.metrics.cosigned_size.set(gauge(size));
        Self {
            directory: directory.to_owned(),
            keys: options.witnesses.clone(),
            metrics: options.metrics.clone(),
            size: Mutex::new(size),
        }
    }

    pub(super) fn size(&self) -> u64 {
        *self.size.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a note with cosignatures. `sealed` is the size of the tree.
    pub(super) fn accept(&self, note: &str, key: &VerifierKey, sealed: u64) -> Result<Cosigned, CosignError> {
        let note: Note = note.parse()?;
        let Checkpoint { size, root: found, .. } = Checkpoint::verify(&note, key)?;
        let says =
            format!("the checkpoint says that {size} records have the root {found}; in this log they have");
        ensure_whatever!(size <= sealed, "{says} no root: it has {sealed}");
        let expected = root(&Tiles { directory: &self.directory, size: sealed }, size)?;
        ensure_whatever!(found == expected, "{says} {expected}");

        let mut kept = self.size.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.directory.join(layout::COSIGNED);
        let mut cosigned = Note::new(note.text())?;
        // Merge with stored signatures, since witnesses respond one by one.
        let before = read::text(&path).ok().flatten().and_then(|text| text.parse::<Note>().ok());
        for signed in [before.filter(|before| before.text() == note.text()).as_ref(), Some(&note)] {
            let signatures = signed.map(Note::signatures).unwrap_or_default();
            let known = |name: &str, id| {
                [key].into_iter().chain(&self.keys).any(|key| (key.name(), key.id()) == (name, id))
            };
            signatures.iter().filter(|it| known(&it.name, it.id)).for_each(|it| cosigned.add(it.clone()));
        }
        let mut witnesses = Vec::new();
        for witness in &self.keys {
            match cosigned.verify(witness) {
                Ok(_) => witnesses.push(witness.name().to_owned()),
                Err(NoteError::Unsigned { .. }) => {}
                Err(wrong) => whatever!("{wrong}"),
            }
        }
        if witnesses.is_empty() {
            let keys: Vec<_> = self.keys.iter().map(ToString::to_string).collect();
            let keys = if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
            whatever!("none of the signatures is by a configured witness; configured are {keys}");
        }
        if size >= *kept {
            files::replace(&path, cosigned.to_string().as_bytes()).context(WriteSnafu { path })?;
            *kept = size;
            self.metrics.cosigned_size.set(gauge(size));
        }
        Ok(Cosigned { size, witnesses })
    }
}
