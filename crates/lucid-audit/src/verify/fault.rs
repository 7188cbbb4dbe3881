use std::fmt;

use serde::Serialize;

/// Kind of fault in a log. Serialized and formatted in kebab-case; docs/audit-log.md says
/// what each means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FaultClass {
    Checkpoint,
    Signature,
    KeyChange,
    Origin,
    Witness,
    Unsealed,
    Fork,
    Framing,
    Gap,
    Duplicate,
    Inserted,
    Reordered,
    Rewritten,
    Chain,
    Shrink,
    Segment,
    Tile,
    Bundle,
    UnsealedTail,
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
