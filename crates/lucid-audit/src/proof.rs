//! Inclusion proofs of records (C2SP tlog-proof): small files that can be verified without the log.
//!
//! ```no_run
//! use lucid_audit::proof::Proof;
//!
//! let proof = Proof::of("/var/lib/lucid/audit".as_ref(), 7)?;
//! std::fs::write("record.tlog-proof", proof.to_string())?;
//!
//! let read: Proof = std::fs::read_to_string("record.tlog-proof")?.parse()?;
//! let key = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k".parse()?;
//! let proven = read.check(&[key], None)?;
//! println!("{}", proven.record);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use snafu::{OptionExt, ResultExt, Snafu, ensure};

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::layout::CHECKPOINT;
use crate::merkle::{self, Hash, ProofError as InclusionError, leaf_hash};
use crate::note::{Note, NoteError, VerifierKey, VerifyError};
use crate::read;
use crate::tile::{Tile, TileError, Tiles, WIDTH};

const HEADER: &str = "c2sp.org/tlog-proof@v1";
/// Upper bound on hashes in a proof: a tree has at most 64 levels.
const MOST_HASHES: usize = 64;

/// Proof that a record is in the tree of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proof {
    /// Line of the record without its newline, carried as the proof's extra data. Optional for verifiers that have the record.
    pub record: Option<Vec<u8>>,
    /// Position of the record in the log, from 0.
    pub index: u64,
    /// Inclusion path from the sibling leaf up to a child of the root (RFC 6962, section 2.1.1).
    pub hashes: Vec<Hash>,
    /// Signed checkpoint.
    pub checkpoint: Note,
}

/// Facts established by a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proven {
    /// Line of the record.
    pub record: String,
    /// Position of the record in the log, from 0.
    pub index: u64,
    /// Verified checkpoint.
    pub checkpoint: Checkpoint,
}

/// Error creating, parsing or checking a proof.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum ProofError {
    /// The log's checkpoint is missing or unreadable.
    #[snafu(display("failed to read {}: {source}", path.display()))]
    Read {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
    /// The checkpoint does not cover the record.
    #[snafu(display("record {index} is not sealed: the checkpoint of {origin} is of {size} records"))]
    Unsealed {
        /// Sequence number of the record.
        index: u64,
        /// Origin of the log.
        origin: String,
        /// Number of sealed records.
        size: u64,
    },
    /// A tile cannot be read.
    #[snafu(transparent)]
    Tile {
        /// Underlying tile error.
        source: TileError,
    },
    /// The log is damaged: tiles, entry bundle and checkpoint do not match.
    #[snafu(display(
        "failed to prove record {index}: tiles, entry bundle and checkpoint do not fit; verify the log ({source})"
    ))]
    Damaged {
        /// Sequence number of the record.
        index: u64,
        /// Reason why the proof fails.
        source: InclusionError,
    },
    /// The text is not a tlog-proof.
    #[snafu(display("line {line} is none of a proof: accepted is {accepted}"))]
    Shape {
        /// Line number, from 1.
        line: usize,
        /// Description of the accepted line.
        accepted: &'static str,
    },
    /// The checkpoint is not a signed note.
    #[snafu(transparent)]
    Note {
        /// Underlying note error.
        source: NoteError,
    },
    /// The text of the note is not a checkpoint.
    #[snafu(transparent)]
    Checkpoint {
        /// Underlying checkpoint error.
        source: CheckpointError,
    },
    /// No trusted key has signed the checkpoint.
    #[snafu(transparent)]
    Signature {
        /// Underlying verification error.
        source: VerifyError,
    },
    /// No trusted keys were given.
    #[snafu(display("no key is trusted: the log's own is needed"))]
    NoKey,
    /// The proof carries no record and none was given.
    #[snafu(display("the proof has no record with it, and none was given"))]
    NoRecord,
    /// The proof does not match the record or the checkpoint.
    #[snafu(display("the proof is not one of this record: {source}"))]
    OtherRecord {
        /// Reason why the proof fails.
        source: InclusionError,
    },
}

impl Proof {
    /// Creates the proof of record `index` of the log in `directory`, including the record. The log may be open for writing.
    ///
    /// # Errors
    ///
    /// Returns an error if the record is not sealed, or the log cannot be read or is damaged.
    pub fn of(directory: &Path, index: u64) -> Result<Self, ProofError> {
        let path = directory.join(CHECKPOINT);
        let absent = || io::Error::from(io::ErrorKind::NotFound);
        let text = read::text(&path).and_then(|text| text.ok_or_else(absent));
        let note: Note = text.context(ReadSnafu { path })?.parse()?;
        let checkpoint: Checkpoint = note.text().parse()?;
        let Checkpoint { size, origin, root, .. } = checkpoint;
        ensure!(index < size, UnsealedSnafu { index, origin, size });
        let tiles = Tiles { directory, size };
        let hashes = merkle::inclusion_proof(&tiles, index, size)?;
        let mut record = None;
        if let Some(bundle) = Tile::entries(index / WIDTH, size) {
            let within = usize::try_from(index % WIDTH).unwrap_or_default();
            record = tiles.entries(bundle)?.into_iter().nth(within);
        }
        let record = record.context(NoRecordSnafu)?;
        // Check the proof first: a damaged log yields hashes that prove nothing.
        let leaf = leaf_hash(&record);
        merkle::verify_inclusion(&leaf, index, size, &hashes, &root).context(DamagedSnafu { index })?;
        Ok(Self { record: Some(record), index, hashes, checkpoint: note })
    }

    /// Checks the proof against the trusted `keys`. `record` is the line to prove, without its newline; `None` selects the record
    /// carried by the proof.
    ///
    /// # Errors
    ///
    /// Returns an error if no key has signed the checkpoint, or the record is not in its tree.
    pub fn check(&self, keys: &[VerifierKey], record: Option<&[u8]>) -> Result<Proven, ProofError> {
        let mut verified = NoKeySnafu.fail();
        for key in keys {
            verified = Checkpoint::verify(&self.checkpoint, key).map_err(ProofError::from);
            if verified.is_ok() {
                break;
            }
        }
        let checkpoint = verified?;
        let record = record.or(self.record.as_deref()).context(NoRecordSnafu)?;
        let (size, root) = (checkpoint.size, checkpoint.root);
        merkle::verify_inclusion(&leaf_hash(record), self.index, size, &self.hashes, &root)
            .context(OtherRecordSnafu)?;
        Ok(Proven { record: String::from_utf8_lossy(record).into_owned(), index: self.index, checkpoint })
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}")?;
        if let Some(record) = &self.record {
            writeln!(f, "extra {}", STANDARD.encode(record))?;
        }
        writeln!(f, "index {}", self.index)?;
        self.hashes.iter().try_for_each(|hash| writeln!(f, "{}", hash.to_base64()))?;
        write!(f, "\n{}", self.checkpoint)
    }
}

impl FromStr for Proof {
    type Err = ProofError;

    fn from_str(text: &str) -> Result<Self, ProofError> {
        let shape = |line, accepted| ShapeSnafu { line, accepted };
        let mut lines = (1..).zip(text.split_inclusive('\n')).peekable();
        let mut next = |wanted: &str| lines.next_if(|(_, line)| line.starts_with(wanted));
        let header = next(HEADER).filter(|(_, line)| line.strip_suffix('\n') == Some(HEADER));
        header.context(shape(1, HEADER))?;
        let record = match next("extra ") {
            Some((line, extra)) => {
                let extra =
                    extra["extra ".len()..].strip_suffix('\n').and_then(|extra| STANDARD.decode(extra).ok());
                Some(extra.context(shape(line, "extra and base64"))?)
            }
            None => None,
        };
        let wanted = "index and a decimal number without leading zeros";
        let (line, index) = next("index ").context(shape(2 + usize::from(record.is_some()), wanted))?;
        let digits = index["index ".len()..].strip_suffix('\n').unwrap_or_default();
        let index = digits.parse().ok().filter(|index: &u64| index.to_string() == digits);
        let index = index.context(shape(line, wanted))?;
        let mut hashes = Vec::new();
        loop {
            let wanted = "a hash in base64, or an empty line before the checkpoint";
            let (line, hash) = lines.next().context(shape(line + 1 + hashes.len(), wanted))?;
            if hash == "\n" {
                break;
            }
            let hash = hash.strip_suffix('\n').and_then(Hash::from_base64);
            hashes.push(hash.filter(|_| hashes.len() < MOST_HASHES).context(shape(line, wanted))?);
        }
        let rest: String = lines.map(|(_, line)| line).collect();
        Ok(Self { record, index, hashes, checkpoint: rest.parse()? })
    }
}
