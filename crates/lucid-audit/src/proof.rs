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
//! println!("{proven}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use snafu::{OptionExt, ensure_whatever};

use crate::checkpoint::Checkpoint;
use crate::error::{Error, NoKeySnafu, NoRecordSnafu, Problem};
use crate::merkle::{self, Hash, leaf_hash};
use crate::note::{Note, VerifierKey};
use crate::read;
use crate::tile::{Tile, Tiles, WIDTH};

const HEADER: &str = "c2sp.org/tlog-proof@v1";
/// Upper bound on hashes in a proof: a tree has at most 64 levels.
const MOST_HASHES: usize = 64;

/// Proof that a record is in the tree of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Line of the record without its newline, carried as the proof's extra data. Optional for verifiers that have the record.
    record: Option<Vec<u8>>,
    index: u64,
    /// Inclusion path from the sibling leaf up to a child of the root (RFC 6962, section 2.1.1).
    hashes: Vec<Hash>,
    checkpoint: Note,
}

/// Facts established by a proof. `Display` ends with the line of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Proven {
    /// Position of the record in the log, from 0.
    pub seq: u64,
    /// Name of the log.
    pub origin: String,
    /// Number of records in the log at the time of the proof.
    pub size: u64,
    /// Line of the record.
    pub record: String,
}

impl fmt::Display for Proven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seq, origin, size, record } = self;
        write!(f, "record {seq} of {}, which had {size} then\n{record}", origin.escape_debug())
    }
}

impl Proof {
    /// Creates the proof of record `index` of the log in `directory`, including the record. The log may be open for writing.
    ///
    /// # Errors
    ///
    /// Returns an error if the record is not sealed, or the log cannot be read or is damaged.
    pub fn of(directory: &Path, index: u64) -> Result<Self, Error> {
        Ok(Self::create(directory, index)?)
    }

    fn create(directory: &Path, index: u64) -> Result<Self, Problem> {
        let (note, checkpoint) = read::checkpoint(directory)?;
        let Checkpoint { size, origin, root, .. } = checkpoint;
        ensure_whatever!(
            index < size,
            "record {index} is not sealed: the checkpoint of {origin} is of {size} records"
        );
        let tiles = Tiles { directory, size };
        let hashes = merkle::inclusion_proof(&tiles, index, size);
        let mut record = None;
        if let Some(bundle) = Tile::entries(index / WIDTH, size) {
            let within = usize::try_from(index % WIDTH).unwrap_or_default();
            let entries = tiles.entries(bundle);
            let first = read::first(directory)?;
            ensure_whatever!(index >= first, "record {index} was pruned; the log begins with record {first}");
            record = entries?.into_iter().nth(within);
        }
        let record = record.context(NoRecordSnafu)?;
        let hashes = hashes?;
        // Check the proof first: a damaged log yields hashes that prove nothing.
        ensure_whatever!(
            merkle::verify_inclusion(&leaf_hash(&record), index, size, &hashes, &root),
            "failed to prove record {index}: tiles, entry bundle and checkpoint do not fit; verify the log"
        );
        Ok(Self { record: Some(record), index, hashes, checkpoint: note })
    }

    /// Returns the origin of the log, which is not verified before [`Self::check`].
    #[must_use]
    pub fn origin(&self) -> &str {
        self.checkpoint.text().lines().next().unwrap_or_default()
    }

    /// Returns the line that the proof carries, which is not verified before [`Self::check`].
    #[must_use]
    pub fn record(&self) -> Option<&[u8]> {
        self.record.as_deref()
    }

    /// Checks the proof against the trusted `keys`. `record` is the line to prove, without its newline; `None` selects the record
    /// carried by the proof.
    ///
    /// # Errors
    ///
    /// Returns an error if no key has signed the checkpoint, or the record is not in its tree.
    pub fn check(&self, keys: &[VerifierKey], record: Option<&[u8]>) -> Result<Proven, Error> {
        Ok(self.prove(keys, record)?)
    }

    fn prove(&self, keys: &[VerifierKey], record: Option<&[u8]>) -> Result<Proven, Problem> {
        let mut verified = NoKeySnafu.fail();
        for key in keys {
            verified = Checkpoint::verify(&self.checkpoint, key).map_err(Problem::from);
            if verified.is_ok() {
                break;
            }
        }
        let Checkpoint { origin, size, root, .. } = verified?;
        let record = record.or(self.record.as_deref()).context(NoRecordSnafu)?;
        ensure_whatever!(
            merkle::verify_inclusion(&leaf_hash(record), self.index, size, &self.hashes, &root),
            "the proof is not one of this record"
        );
        Ok(Proven { seq: self.index, origin, size, record: String::from_utf8_lossy(record).into_owned() })
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
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self::parse(text)?)
    }
}

impl Proof {
    fn parse(text: &str) -> Result<Self, Problem> {
        let shape = |line: usize, expected: &str| Problem::Invalid {
            message: format!("invalid line {line}: expected {expected}"),
        };
        let wanted = "a hash in base64, or an empty line before the checkpoint";
        let count = text.split_inclusive('\n').count();
        let (proof, checkpoint) = text.split_once("\n\n").ok_or_else(|| shape(count + 1, wanted))?;
        let mut lines = (1..).zip(proof.split('\n')).peekable();
        lines.next_if(|(_, line)| *line == HEADER).ok_or_else(|| shape(1, HEADER))?;
        let extra = lines.next_if(|(_, line)| line.starts_with("extra "));
        let record = extra.map(|(line, extra)| {
            STANDARD.decode(&extra["extra ".len()..]).map_err(|_| shape(line, "extra and base64"))
        });
        let record = record.transpose()?;
        let (line, index) = lines.next().unwrap_or((2 + usize::from(record.is_some()), ""));
        let digits = index.strip_prefix("index ").unwrap_or_default();
        let index = digits.parse().ok().filter(|index: &u64| index.to_string() == digits);
        let index = index.ok_or_else(|| shape(line, "index and a decimal number without leading zeros"))?;
        let hashes = lines.zip(0..).map(|((line, hash), number)| {
            let hash = Hash::from_base64(hash).filter(|_| number < MOST_HASHES);
            hash.ok_or_else(|| shape(line, wanted))
        });
        let hashes = hashes.collect::<Result<_, _>>()?;
        Ok(Self { record, index, hashes, checkpoint: checkpoint.parse()? })
    }
}
