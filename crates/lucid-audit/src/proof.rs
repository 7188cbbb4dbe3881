//! Proofs that a record is in a log, as of C2SP tlog-proof: small files that can be checked without the log.
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
/// More hashes than that have no meaning: a tree has no more levels.
const MOST_HASHES: usize = 64;

/// That a record is in the tree of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proof {
    /// The record itself, its line without the newline, in the proof's extra data. Whoever has it from elsewhere does not need it.
    pub record: Option<Vec<u8>>,
    /// Its place in the log, from 0.
    pub index: u64,
    /// From its sibling up to a child of the root (RFC 6962, section 2.1.1).
    pub hashes: Vec<Hash>,
    /// The checkpoint, signed.
    pub checkpoint: Note,
}

/// What a proof proves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proven {
    /// The line of the record.
    pub record: String,
    /// Its place in the log, from 0.
    pub index: u64,
    /// What the log says of itself.
    pub checkpoint: Checkpoint,
}

/// Why there is no proof, or none that proves.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum ProofError {
    /// The log has no checkpoint that can be read.
    #[snafu(display("failed to read {}: {source}", path.display()))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The record is not sealed.
    #[snafu(display("record {index} is not sealed: the checkpoint of {origin} is of {size} records"))]
    Unsealed {
        /// The record.
        index: u64,
        /// The log.
        origin: String,
        /// How many are sealed.
        size: u64,
    },
    /// The tree cannot be read.
    #[snafu(transparent)]
    Tile {
        /// What of it.
        source: TileError,
    },
    /// The log is damaged: tiles, bundle and checkpoint do not belong together.
    #[snafu(display(
        "failed to prove record {index}: tiles, entry bundle and checkpoint do not fit; verify the log ({source})"
    ))]
    Damaged {
        /// The record.
        index: u64,
        /// What does not fit.
        source: InclusionError,
    },
    /// It is no proof.
    #[snafu(display("line {line} is none of a proof: accepted is {accepted}"))]
    Shape {
        /// The line, from 1.
        line: usize,
        /// What may stand there.
        accepted: &'static str,
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
    /// Nobody who is trusted has signed the checkpoint.
    #[snafu(transparent)]
    Signature {
        /// Who did.
        source: VerifyError,
    },
    /// There is nobody to trust.
    #[snafu(display("no key is trusted: the log's own is needed"))]
    NoKey,
    /// What is to be proven is not known.
    #[snafu(display("the proof has no record with it, and none was given"))]
    NoRecord,
    /// It is the proof of another record.
    #[snafu(display("the proof is not one of this record: {source}"))]
    OtherRecord {
        /// What does not fit.
        source: InclusionError,
    },
}

impl Proof {
    /// The proof of record `index` of the log in `directory`, with the record. The log may be written meanwhile.
    ///
    /// # Errors
    ///
    /// When the record is not sealed, or the log is damaged.
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
        // Never hand out a proof that proves nothing.
        let leaf = leaf_hash(&record);
        merkle::verify_inclusion(&leaf, index, size, &hashes, &root).context(DamagedSnafu { index })?;
        Ok(Self { record: Some(record), index, hashes, checkpoint: note })
    }

    /// What it proves to who trusts one of `keys`. `record` is the line in question, without its newline; without it, the one that
    /// comes with the proof is taken.
    ///
    /// # Errors
    ///
    /// When none of the keys has signed the checkpoint, or the record is not in its tree.
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
