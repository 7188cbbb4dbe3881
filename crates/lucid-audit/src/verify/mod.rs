//! Verification that a log is unchanged since its writer sealed it.
//!
//! Every record is read and compared with the rest of the directory: its sequence number, the previous record (`prev`), its
//! tile, its entry bundle, and the tree's root in the signed checkpoint. Each inconsistency is a [`Fault`] with a class and a
//! location. Unfinished work, such as records that the next checkpoint will seal, is not a fault.
//!
//! ```no_run
//! use lucid_audit::verify::{Expectations, verify};
//!
//! let mut expected = Expectations::default();
//! expected.keys.push("example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k".parse()?);
//! let report = verify("/var/lib/lucid/audit".as_ref(), &expected)?;
//! for fault in &report.faults {
//!     eprintln!("{fault}");
//! }
//! assert!(report.is_intact());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits of a directory
//!
//! An attacker with write access to the directory can replace it with an earlier state, which is signed and consistent. With
//! the signing key, the attacker can also sign another history. Detecting either requires independent knowledge: an earlier
//! checkpoint or anchor ([`Since`]), a cosigned checkpoint ([`Expectations::cosigned`]), or the anchors in the API server's
//! audit log.

mod evaluate;
mod fault;
mod order;
mod records;
mod scan;
mod seal;
mod sealed;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::Serialize;
use snafu::{ensure_whatever, whatever};

pub use fault::Fault;
use fault::FaultClass;

use crate::anchor::Anchor;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Problem};
use crate::layout::{CHECKPOINT, MINIMUM, SEGMENTS};
use crate::note::{Note, NoteError, VerifierKey};
use crate::read::{self, FileError, Listing, Segment};
use crate::tile::Tiles;
use records::Records;
use seal::Seal;
use sealed::Sealed;

/// Independent knowledge of a log. The more there is, the less an attacker with write access to the log's directory can
/// change unnoticed.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Expectations {
    /// Trusted keys, one of which must have signed the checkpoint. If empty, the file `vkey` in the log's directory is
    /// trusted.
    pub keys: Vec<VerifierKey>,
    /// Origin of the log.
    pub origin: Option<String>,
    /// Earlier states of the log.
    pub since: Vec<Since>,
    /// `true` to report records after the checkpoint, because the writer has ended.
    pub sealed: bool,
    /// Witnesses that must have cosigned a checkpoint of the log. Its records are compared with that checkpoint.
    pub witnesses: Vec<VerifierKey>,
    /// Number of witnesses that must have signed (default all of them).
    pub quorum: Option<usize>,
    /// Cosigned checkpoint, stored independently or provided by a witness. The default is the one in the log's directory,
    /// which an attacker with write access can replace with an earlier one.
    pub cosigned: Option<Note>,
}

/// Earlier state of a log, stored where its writer cannot change it: the anchor of a record, or a checkpoint, which is parsed
/// with or without its signatures. They are not verified: the key may have been replaced since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Since(Earlier);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Earlier {
    Checkpoint(Checkpoint),
    Anchor(Anchor),
}

impl From<Anchor> for Since {
    fn from(anchor: Anchor) -> Self {
        Self(Earlier::Anchor(anchor))
    }
}

impl FromStr for Since {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let note = text.parse::<Note>();
        let text = note.as_ref().map_or(text, Note::text);
        Ok(Self(Earlier::Checkpoint(text.parse()?)))
    }
}

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    /// Number of records that were pruned, and sequence number of the first one kept.
    first: u64,
    records: u64,
    segments: usize,
    /// Number of records covered by the checkpoint; `None` without a checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sealed: Option<u64>,
    /// Number of records covered by the checkpoint that the [witnesses](Expectations::witnesses) have cosigned.
    #[serde(skip_serializing_if = "Option::is_none")]
    cosigned: Option<u64>,
    /// Number of records after the sealed ones. Common in a running log.
    unsealed: u64,
    /// Number of records covered by the tiles, if greater than the checkpoint's. The writer is about to write the checkpoint,
    /// was killed before it could, or the checkpoint was replaced by an earlier one.
    #[serde(skip_serializing_if = "Option::is_none")]
    tiled: Option<u64>,
    /// Number of bytes after the last newline: a record being written, or left incomplete by a killed writer. The writer
    /// truncates them when it opens the log.
    torn_bytes: u64,
    /// Records of anchors that were pruned and cannot be compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pruned: Vec<u64>,
    /// Root of the tree computed from all records, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<String>,
    /// `true` if the key was read from the log's own directory.
    pub key_from_log: bool,
    /// Faults found.
    pub faults: Vec<Fault>,
}

impl Report {
    /// Returns `true` if no fault was found.
    #[must_use]
    pub const fn is_intact(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Formats verdict and origin, then each fault and the counts on separate lines.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.faults.len() {
            0 => "intact".to_owned(),
            1 => "1 fault".to_owned(),
            count => format!("{count} faults"),
        };
        let origin = self.origin.as_deref().unwrap_or("not sealed");
        write!(f, "{verdict} ({})", origin.escape_debug())?;
        self.faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))?;
        write!(f, "\n  {} records in {} segments", self.records, self.segments)?;
        if self.first > 0 {
            write!(f, " from record {} on", self.first)?;
        }
        if let Some(sealed) = self.sealed {
            write!(f, ", {sealed} sealed, {} not yet", self.unsealed)?;
        }
        if let Some(cosigned) = self.cosigned {
            write!(f, ", {cosigned} cosigned by witnesses")?;
        }
        for seq in &self.pruned {
            write!(f, "\n  record {seq} was pruned and cannot be compared with its anchor")?;
        }
        if self.torn_bytes > 0 {
            write!(f, "\n  {} bytes of an incomplete record", self.torn_bytes)?;
        }
        if let Some(tiled) = self.tiled {
            let why = "the writer was about to seal them, or an earlier checkpoint was restored";
            write!(f, "\n  the tiles cover {tiled} records, more than the checkpoint: {why}")?;
        }
        Ok(())
    }
}

/// Verifies the log in `directory`. The log may be open for writing.
///
/// # Errors
///
/// Returns an error if the directory does not contain a log, the quorum is invalid, or a file cannot be read. Faults of
/// readable files are part of the report.
pub fn verify(directory: &Path, expected: &Expectations) -> Result<Report, Error> {
    Ok(verify_stable(directory, expected)?)
}

/// Verifies a log whose minimum index does not change meanwhile.
fn verify_stable(directory: &Path, expected: &Expectations) -> Result<Report, Problem> {
    let mut expected = expected.clone();
    let mut seen = BTreeSet::new();
    expected.witnesses.retain(|witness| seen.insert(witness.to_string()));
    let expected = &expected;
    if let Some(quorum) = expected.quorum {
        let witnesses = expected.witnesses.len();
        ensure_whatever!(
            (1..=witnesses).contains(&quorum),
            "quorum: expected 1 to {witnesses}, the number of different keys of witnesses, found {quorum}"
        );
    }
    // The writer signs a new minimum index before it removes segments.
    let path = directory.join(MINIMUM);
    let mut minimum = read::small(&path)?;
    for _ in 0..ATTEMPTS {
        let report = verify_from(directory, expected, minimum.as_deref());
        let now = read::small(&path)?;
        if std::mem::replace(&mut minimum, now) == minimum {
            return report;
        }
    }
    whatever!("{} is pruned faster than it can be read", directory.display());
}

/// Number of attempts to read a log that is pruned meanwhile.
const ATTEMPTS: usize = 10;

/// Verifies a log with this minimum index.
fn verify_from(directory: &Path, expected: &Expectations, minimum: Option<&[u8]>) -> Result<Report, Problem> {
    // Read the seal first: the segments already contain everything it covers.
    let mut seal = Seal::read(directory, expected)?;
    let size = seal.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.size);
    let minimum = seal.take_minimum(minimum);
    let sealed = Sealed::new(Tiles { directory, size });
    let there = directory.exists();
    let listing = match read::list(directory) {
        Ok(listing) => listing,
        Err(error) if error.is_absence() && seal.checkpoint.is_some() => Listing::default(),
        Err(error) if error.is_absence() => {
            ensure_whatever!(there, "{} is not there", directory.display());
            whatever!(
                "{} is not a log: it has neither a folder {SEGMENTS} nor a checkpoint",
                directory.display()
            );
        }
        Err(error) => return Err(error.into()),
    };
    let mut faults = std::mem::take(&mut seal.faults);
    let pruned = match minimum.frontier(directory) {
        Ok(tree) => Some(tree),
        Err(error) => {
            let FileError { path, source, .. } = error;
            let file = path.strip_prefix(directory).unwrap_or(&path).display().to_string();
            let detail = format!("the tree of the pruned records cannot be used: {source}");
            faults.push(Fault::of_file(FaultClass::Tile, file, detail));
            None
        }
    };
    if size < minimum.first {
        let detail = format!("it signs {size} records, the first {} were pruned", minimum.first);
        faults.push(Fault::of_file(FaultClass::Shrink, CHECKPOINT, detail));
    }
    let segments = in_order(listing, minimum.first, &mut faults)?;
    let mut since: Vec<_> =
        expected.since.iter().map(|since| (since.clone(), "the earlier checkpoint".to_owned())).collect();
    let cosigned = seal.seen.as_ref().map(|(checkpoint, _)| checkpoint.size);
    since.extend(seal.seen.map(|(checkpoint, by)| (Since(Earlier::Checkpoint(checkpoint)), by)));
    let mut records = Records::new(&segments, seal.checkpoint.as_ref(), &since, (minimum, pruned));
    scan::scan(&segments, &sealed, |scanned| records.take(scanned))?;
    let mut report = records.report(sealed, expected);
    report.first = minimum.first;
    report.key_from_log = seal.key_from_log;
    report.cosigned = cosigned.filter(|_| !expected.witnesses.is_empty());
    report.origin = seal.checkpoint.map(|checkpoint| checkpoint.origin);
    faults.append(&mut report.faults);
    report.faults = fault::joined(faults);
    Ok(report)
}

/// Sorts the segments by content, which matches the order of their names unless tampered with.
fn in_order(mut listing: Listing, minimum: u64, faults: &mut Vec<Fault>) -> Result<Vec<Segment>, FileError> {
    // Left by a process that was killed while it pruned.
    listing.segments.retain(|segment| segment.first >= minimum);
    for name in listing.unexpected {
        let detail = "it is not a segment: expected a name of 20 digits that ends with .jsonl";
        faults.push(Fault::of_file(FaultClass::Segment, name, detail));
    }
    let count = listing.segments.len();
    let mut found = Vec::new();
    for (index, segment) in listing.segments.into_iter().enumerate() {
        let first = segment.first_found()?;
        if segment.length == 0 && index + 1 < count {
            let detail = "it is empty, but another one follows";
            faults.push(Fault::of_file(FaultClass::Segment, &segment.name, detail));
        }
        if let Some(first) = first.filter(|first| *first != segment.first) {
            let detail = format!("its name is that of seq {}, it begins with {first}", segment.first);
            faults.push(Fault::of_record(FaultClass::Segment, first, &segment.name, 0, detail));
        }
        found.push((first.unwrap_or(segment.first), segment));
    }
    found.sort_by_key(|(first, segment)| (*first, segment.first));
    Ok(found.into_iter().map(|(_, segment)| segment).collect())
}
