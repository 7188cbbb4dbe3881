use std::fmt;

use serde::Serialize;

/// Kind of fault in a log. Serialized and formatted in kebab-case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FaultClass {
    /// The checkpoint cannot be parsed.
    Checkpoint,
    /// The signature does not match the checkpoint, or no key is known to verify it.
    Signature,
    /// The checkpoint is signed by another key, or the log's `vkey` is invalid or not trusted.
    KeyChange,
    /// The checkpoint belongs to another log.
    Origin,
    /// Too few required witnesses have cosigned, or the cosigned checkpoint is malformed.
    Witness,
    /// A required checkpoint is missing.
    Unsealed,
    /// The records have another root than a checkpoint of the same size, or cannot be compared with one.
    Fork,
    /// A line is not a record: not JSON, not beginning with `seq` and `prev`, too long, or torn.
    Framing,
    /// Records are missing between others.
    Gap,
    /// A record appears twice.
    Duplicate,
    /// A line between the records is not one that was sealed.
    Inserted,
    /// Records are out of order.
    Reordered,
    /// A record differs from the sealed one, or from the one that the next record refers to.
    Rewritten,
    /// `prev` is not the hash of the previous record.
    Chain,
    /// There are fewer records than before, or the checkpoint covers fewer.
    Shrink,
    /// The name of a segment is not the number of its first record, a segment is empty, or a file is not a segment.
    Segment,
    /// A tile is missing or does not have the hashes of the tree.
    Tile,
    /// An entry bundle is missing or does not have the records.
    Bundle,
    /// Records follow the last checkpoint although all must be sealed.
    UnsealedTail,
    /// Bytes follow the last newline although the writer has ended.
    Torn,
}

impl fmt::Display for FaultClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A fault and its location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    pub(crate) class: FaultClass,
    /// Sequence number of the record, or of the first one in a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seq: Option<u64>,
    /// Sequence number of the last record in a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<u64>,
    /// Path of the file, relative to the log's directory.
    pub(crate) file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<u64>,
    pub(crate) detail: String,
}

impl Fault {
    pub(crate) fn of_file(class: FaultClass, file: impl Into<String>, detail: impl Into<String>) -> Self {
        let (file, detail) = (file.into(), detail.into());
        Self { class, seq: None, last: None, file, offset: None, detail }
    }

    pub(crate) fn of_record(class: FaultClass, seq: u64, file: &str, offset: u64, detail: String) -> Self {
        Self { class, seq: Some(seq), last: None, file: file.to_owned(), offset: Some(offset), detail }
    }

    /// Extends this fault by `next` if that is the same fault of the following record. Returns `true` if so.
    fn take(&mut self, next: &Self) -> bool {
        let adjoins = self.last.or(self.seq).and_then(|last| last.checked_add(1)) == next.seq;
        let same = self.class == next.class && self.file == next.file && self.detail == next.detail;
        if same && adjoins && next.seq.is_some() {
            self.last = next.last.or(next.seq);
        }
        same && adjoins && next.seq.is_some()
    }
}

/// Formats as `class: seq N (to M), file at byte K: detail`.
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

/// Joins equal faults of consecutive records.
pub(crate) fn joined(mut faults: Vec<Fault>) -> Vec<Fault> {
    // Faults of the whole log first, then in the order of records.
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
