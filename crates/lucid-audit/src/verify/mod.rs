//! Verifying a log: whether it still is what its writer sealed.
//!
//! Every record is read and compared with everything that the directory says of it: its number, the record before (`prev`),
//! its tile, its entry bundle, and the tree's root in the signed checkpoint. What is found wrong is a [`Fault`] with a class, a
//! number and a place; what is merely unfinished, such as records that the next checkpoint will seal, is not.
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
//! # What a directory cannot tell of itself
//!
//! Who can write to the directory can replace all of it with an older state of its own, which was signed and is consistent;
//! and who has the signing key too can sign another history. Both need something that is kept elsewhere: an earlier
//! checkpoint or anchor ([`Since`]), what a witness has cosigned ([`Expectations::cosigned`]), or the anchors in the API
//! server's audit log.

mod expectations;
mod fault;
mod judge;
mod order;
mod records;
mod scan;
mod seal;
mod sealed;
mod tree;
mod witness;

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;
use snafu::{Snafu, ensure};

pub use expectations::{Expectations, Since};
pub use fault::{Fault, FaultClass};

use crate::layout::SEGMENTS;
use crate::read::{self, Listing, ReadError, Segment};
use crate::tile::Tiles;
use records::Records;
use seal::Seal;
use sealed::Sealed;

/// A log could not be verified at all.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum VerifyError {
    /// The directory is none of a log.
    #[snafu(display("{directory} is no log: it has neither a folder {SEGMENTS} nor a checkpoint"))]
    NoLog {
        /// The directory.
        directory: String,
    },
    /// There is nothing.
    #[snafu(display("{directory} is not there"))]
    Absent {
        /// What was to be the directory.
        directory: String,
    },
    /// As many witnesses cannot have cosigned.
    #[snafu(display(
        "the quorum is {quorum}, accepted is 1 to {witnesses}: as many different keys of witnesses are given"
    ))]
    Quorum {
        /// How many have to have.
        quorum: usize,
        /// How many there are.
        witnesses: usize,
    },
    /// Something of it cannot be read.
    #[snafu(transparent)]
    Read {
        /// What.
        source: ReadError,
    },
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Report {
    /// Which log it is, as its checkpoint says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// How many lines the segments have.
    pub records: u64,
    /// How many files they are in.
    pub segments: usize,
    /// How many records the checkpoint seals; none where there is no checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sealed: Option<u64>,
    /// How many records the checkpoint has that the witnesses of [`Expectations::witnesses`] have cosigned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cosigned: Option<u64>,
    /// How many stand behind the sealed ones. A running log has such.
    pub unsealed: u64,
    /// How many records the tiles are of, where these are more than the checkpoint seals: it is about to be written, or the writer
    /// was ended before it was; or somebody has put an earlier one there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tiled: Option<u64>,
    /// Bytes behind the last newline: a record that is being written, or was when the writer was ended. The writer removes
    /// them when it starts.
    pub torn_bytes: u64,
    /// The root of the tree that was computed from all records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Whether the checkpoint's key was taken from the log's own directory.
    pub key_from_log: bool,
    /// What is wrong.
    pub faults: Vec<Fault>,
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub const fn is_intact(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Verifies the log in `directory`. It may be written meanwhile.
///
/// # Errors
///
/// When it is none, or a file of it cannot be read. What can be read and is wrong is in the report.
pub fn verify(directory: &Path, expected: &Expectations) -> Result<Report, VerifyError> {
    let mut expected = expected.clone();
    let mut seen = BTreeSet::new();
    expected.witnesses.retain(|witness| seen.insert(witness.to_string()));
    let expected = &expected;
    if let Some(quorum) = expected.quorum {
        let witnesses = expected.witnesses.len();
        ensure!((1..=witnesses).contains(&quorum), QuorumSnafu { quorum, witnesses });
    }
    // First: whatever it seals is in the segments by now.
    let mut seal = Seal::read(directory, expected)?;
    let size = seal.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.size);
    let sealed = Sealed::new(Tiles { directory, size });
    let there = directory.exists();
    let listing = match read::list(directory) {
        Ok(listing) => listing,
        Err(error) if error.is_absence() && seal.checkpoint.is_some() => Listing::default(),
        Err(error) if error.is_absence() => {
            let directory = directory.display().to_string();
            return if there { NoLogSnafu { directory }.fail() } else { AbsentSnafu { directory }.fail() };
        }
        Err(error) => return Err(error.into()),
    };
    let mut faults = std::mem::take(&mut seal.faults);
    let segments = in_order(listing, &mut faults)?;
    let mut since: Vec<_> =
        expected.since.iter().map(|since| (since.clone(), "the earlier checkpoint".to_owned())).collect();
    let seen = seal.seen.map(|seen| (Since::Checkpoint(seen.checkpoint), seen.by));
    let cosigned = match &seen {
        Some((Since::Checkpoint(checkpoint), _)) => Some(checkpoint.size),
        _ => None,
    };
    since.extend(seen);
    let mut records = Records::new(&segments, seal.checkpoint.as_ref(), &since);
    scan::scan(&segments, &sealed, |scanned| records.take(scanned))?;
    let mut report = records.report(sealed, expected);
    report.key_from_log = seal.key_from_log;
    report.cosigned = cosigned.filter(|_| !expected.witnesses.is_empty());
    report.origin = seal.checkpoint.map(|checkpoint| checkpoint.origin);
    faults.append(&mut report.faults);
    report.faults = fault::joined(faults);
    Ok(report)
}

/// The segments in the order of what is in them, which is that of their names unless somebody changed it.
fn in_order(listing: Listing, faults: &mut Vec<Fault>) -> Result<Vec<Segment>, ReadError> {
    for name in listing.strangers {
        let detail = "it is no segment: those are files with 20 digits and .jsonl as their name";
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
            let detail =
                format!("its name says that it begins with seq {}, it begins with {first}", segment.first);
            faults.push(Fault::of_record(FaultClass::Segment, first, &segment.name, 0, detail));
        }
        found.push((first.unwrap_or(segment.first), segment));
    }
    found.sort_by_key(|(first, segment)| (*first, segment.first));
    Ok(found.into_iter().map(|(_, segment)| segment).collect())
}
