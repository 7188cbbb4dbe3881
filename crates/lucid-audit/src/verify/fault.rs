use std::fmt;

use serde::Serialize;

/// What is wrong with a log. In JSON, and in text, the name in lower case with hyphens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FaultClass {
    /// The checkpoint cannot be read.
    Checkpoint,
    /// The signature of the checkpoint is not one of its text.
    Signature,
    /// The checkpoint is signed by another key.
    KeyChange,
    /// The checkpoint is one of another log.
    Origin,
    /// A witness that has to have seen the checkpoint has not signed it.
    Witness,
    /// There is no checkpoint although there has to be one.
    Unsealed,
    /// The records have another root than a checkpoint of the same size says.
    Fork,
    /// A line is no record: not JSON, without `seq` and `prev` first, too long, or cut.
    Framing,
    /// Records are missing between others.
    Gap,
    /// A record is there twice.
    Duplicate,
    /// A line stands between the records that is none of those that were sealed.
    Inserted,
    /// Records stand in another order.
    Reordered,
    /// A record is another than the one that was sealed, or than the one that the next record names.
    Rewritten,
    /// `prev` is not the hash of the record before.
    Chain,
    /// There are fewer records than a checkpoint says.
    Shrink,
    /// A segment's name is not the number of its first record, or a file is there that is no segment.
    Segment,
    /// A tile does not have the hashes of the tree, or is missing.
    Tile,
    /// An entry bundle does not have the records, or is missing.
    Bundle,
    /// Records stand behind the last checkpoint although all have to be sealed.
    UnsealedTail,
    /// Bytes stand behind the last newline although the writer has ended.
    Torn,
}

impl fmt::Display for FaultClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Framing => "framing",
            Self::Gap => "gap",
            Self::Duplicate => "duplicate",
            Self::Inserted => "inserted",
            Self::Reordered => "reordered",
            Self::Rewritten => "rewritten",
            Self::Chain => "chain",
            Self::Shrink => "shrink",
            Self::Fork => "fork",
            Self::Segment => "segment",
            Self::Tile => "tile",
            Self::Bundle => "bundle",
            Self::Checkpoint => "checkpoint",
            Self::Signature => "signature",
            Self::KeyChange => "key-change",
            Self::Origin => "origin",
            Self::Witness => "witness",
            Self::Unsealed => "unsealed",
            Self::UnsealedTail => "unsealed-tail",
            Self::Torn => "torn",
        })
    }
}

/// Something that is wrong with a log, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Fault {
    /// What kind of thing.
    pub class: FaultClass,
    /// The record, or the first of several in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The last of several in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// The file, by its path within the log.
    pub file: String,
    /// Where in the file, in bytes from its beginning: of the first record, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// What was found, and what was expected.
    pub detail: String,
}

impl Fault {
    /// A fault of a file as a whole.
    pub(crate) fn of_file(class: FaultClass, file: impl Into<String>, detail: impl Into<String>) -> Self {
        let (file, detail) = (file.into(), detail.into());
        Self { class, seq: None, last: None, file, offset: None, detail }
    }

    /// A fault of one record.
    pub(crate) fn of_record(class: FaultClass, seq: u64, file: &str, offset: u64, detail: String) -> Self {
        Self { class, seq: Some(seq), last: None, file: file.to_owned(), offset: Some(offset), detail }
    }

    /// Whether `next` is the same of the record behind this one; then this one speaks of both.
    fn take(&mut self, next: &Self) -> bool {
        let adjoins = self.last.or(self.seq).and_then(|last| last.checked_add(1)) == next.seq;
        let same = self.class == next.class && self.file == next.file && self.detail == next.detail;
        if same && adjoins && next.seq.is_some() {
            self.last = next.last.or(next.seq);
        }
        same && adjoins && next.seq.is_some()
    }
}

/// `class: seq N (to M), file at byte K: what is wrong`
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.class)?;
        match (self.seq, self.last) {
            (Some(first), Some(last)) => write!(f, "seq {first} to {last}, ")?,
            (Some(seq), None) => write!(f, "seq {seq}, ")?,
            _ => {}
        }
        write!(f, "{}", self.file.escape_debug())?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.detail)
    }
}

/// One fault for records in a row that have the same.
pub(crate) fn joined(mut faults: Vec<Fault>) -> Vec<Fault> {
    // Faults of the log as a whole first, then in the order of the records.
    faults.sort_by_key(|fault| (fault.seq.map_or(0, |seq| u128::from(seq) + 1), fault.class, fault.offset));
    let mut open: std::collections::BTreeMap<FaultClass, usize> = std::collections::BTreeMap::new();
    let mut joined: Vec<Fault> = Vec::new();
    for fault in faults {
        let taken = open.get(&fault.class).is_some_and(|index| joined[*index].take(&fault));
        if !taken {
            open.insert(fault.class, joined.len());
            joined.push(fault);
        }
    }
    joined
}
