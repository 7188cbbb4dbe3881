//! Asking witnesses for cosignatures, as of C2SP tlog-witness: what is sent, and what the answer is made into.
//!
//! How it is sent is left to the caller: a POST to the witness' submission prefix and `/add-checkpoint`. The answer 200 has
//! signature lines, for [`Submission::cosigned`]; 409 the number of records that the witness has seen, to submit anew from
//! there; 422 says that the log is not the one that it has seen.
//!
//! ```no_run
//! use lucid_audit::witness::Submission;
//!
//! let submission = Submission::of("/var/lib/lucid/decisions".as_ref(), 0)?;
//! // POST it, and have `lines` as the answer.
//! # let lines = String::new();
//! let note = submission.cosigned(&lines)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use snafu::{ResultExt, Snafu, ensure};

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::layout::CHECKPOINT;
use crate::merkle::{self, Hash};
use crate::note::{Note, NoteError};
use crate::read::{SMALL, bounded};
use crate::tile::{TileError, Tiles};

/// Why there is nothing to submit.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum SubmissionError {
    /// The log has no checkpoint that can be read.
    #[snafu(display("failed to read {}: {source}", path.display()))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The checkpoint is no note.
    #[snafu(transparent)]
    Note {
        /// What is wrong with it.
        source: NoteError,
    },
    /// The checkpoint is none.
    #[snafu(transparent)]
    Checkpoint {
        /// What is wrong with it.
        source: CheckpointError,
    },
    /// The tree cannot be read.
    #[snafu(transparent)]
    Tile {
        /// What of it.
        source: TileError,
    },
    /// Tiles and checkpoint do not belong together.
    #[snafu(display(
        "the tiles of {size} records have the root {found}, the checkpoint says {sealed}; verify the log"
    ))]
    Damaged {
        /// How many records.
        size: u64,
        /// The root of the tree.
        found: Hash,
        /// The root in the checkpoint.
        sealed: Hash,
    },
    /// The witness has seen more than there is.
    #[snafu(display(
        "the witness has seen {seen} records of {origin}, the log has {size}: it was rolled back"
    ))]
    RolledBack {
        /// The log.
        origin: String,
        /// How many the witness has seen.
        seen: u64,
        /// How many are sealed.
        size: u64,
    },
}

/// The body of `add-checkpoint`; its text is what is sent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Submission {
    /// How many records the witness has seen.
    pub old: u64,
    /// That the checkpoint's tree begins with those.
    pub proof: Vec<Hash>,
    /// The log's latest checkpoint.
    pub checkpoint: Checkpoint,
    /// The same, signed.
    pub note: Note,
}

impl Submission {
    /// The latest checkpoint of the log in `directory`, for a witness that has seen `old` records; 0 when it has seen none, or it is
    /// not known. The log may be written meanwhile.
    ///
    /// # Errors
    ///
    /// When the log is damaged, or shorter than that.
    pub fn of(directory: &Path, old: u64) -> Result<Self, SubmissionError> {
        let path = directory.join(CHECKPOINT);
        let read = bounded(&path, SMALL).context(ReadSnafu { path })?;
        let note: Note = String::from_utf8_lossy(&read).parse()?;
        let checkpoint: Checkpoint = note.text().parse()?;
        let (size, sealed) = (checkpoint.size, checkpoint.root);
        ensure!(old <= size, RolledBackSnafu { origin: &checkpoint.origin, seen: old, size });
        let tiles = Tiles { directory, size };
        let found = merkle::root(&tiles, size)?;
        // Otherwise the witness would be right to refuse a log that is only damaged.
        ensure!(found == sealed, DamagedSnafu { size, found, sealed });
        let proof = if old == 0 { Vec::new() } else { merkle::consistency_proof(&tiles, old, size)? };
        Ok(Self { old, proof, checkpoint, note })
    }

    /// The checkpoint with the signature lines of an answer: what [`Log::cosign`](crate::Log::cosign) takes.
    ///
    /// # Errors
    ///
    /// When they are none.
    pub fn cosigned(&self, lines: &str) -> Result<Note, NoteError> {
        format!("{}{lines}", self.note).parse()
    }
}

impl fmt::Display for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "old {}", self.old)?;
        self.proof.iter().try_for_each(|hash| writeln!(f, "{}", hash.to_base64()))?;
        write!(f, "\n{}", self.note)
    }
}
