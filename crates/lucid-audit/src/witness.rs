//! Requests for cosignatures of witnesses (C2SP tlog-witness): request body and response handling.
//!
//! The caller sends the request, a POST to the witness' submission prefix followed by `/add-checkpoint`. A response with
//! status 200 contains signature lines for [`Submission::cosigned`]. Status 409 contains the number of records that the
//! witness has seen, for a new submission. Status 422 means that the log is inconsistent with the checkpoint seen by the
//! witness.
//!
//! ```no_run
//! use lucid_audit::witness::Submission;
//!
//! let submission = Submission::of("/var/lib/lucid/decisions".as_ref(), 0)?;
//! // Send a POST request. `lines` is the response body.
//! # let lines = String::new();
//! let note = submission.cosigned(&lines)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::path::Path;

use snafu::{ensure, ensure_whatever};

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Problem, RolledBackSnafu};
use crate::merkle::{self, Hash};
use crate::note::{Note, NoteError};
use crate::read;
use crate::tile::Tiles;

/// Body of an `add-checkpoint` request, formatted by `Display`.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Number of records that the witness has seen.
    old: u64,
    /// Consistency proof from the tree of that size to the checkpoint's.
    proof: Vec<Hash>,
    checkpoint: Checkpoint,
    note: Note,
}

impl Submission {
    /// Creates a submission of the latest checkpoint in `directory`, for a witness that has seen `old` records: 0 if none, or
    /// unknown. The log may be open for writing.
    ///
    /// # Errors
    ///
    /// Returns an error if the log cannot be read, is damaged, or has fewer than `old` records.
    pub fn of(directory: &Path, old: u64) -> Result<Self, Error> {
        Ok(Self::create(directory, old)?)
    }

    fn create(directory: &Path, old: u64) -> Result<Self, Problem> {
        let (note, checkpoint) = read::checkpoint(directory)?;
        let (size, sealed) = (checkpoint.size, checkpoint.root);
        ensure!(old <= size, RolledBackSnafu { origin: &checkpoint.origin, seen: old, size });
        let tiles = Tiles { directory, size };
        let found = merkle::root(&tiles, size)?;
        // Never submit a damaged log: the witness would reject it as inconsistent.
        ensure_whatever!(
            found == sealed,
            "the tiles of {size} records have the root {found}, the checkpoint says {sealed}; verify the log"
        );
        let proof = merkle::consistency_proof(&tiles, old, size)?;
        Ok(Self { old, proof, checkpoint, note })
    }

    /// Returns the origin of the log.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.checkpoint.origin
    }

    /// Combines the checkpoint with the signature lines of a response, as input of [`Log::cosign`](crate::Log::cosign).
    ///
    /// # Errors
    ///
    /// Returns an error if the lines are not signatures.
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
