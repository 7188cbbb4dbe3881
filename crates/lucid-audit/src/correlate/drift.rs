use std::fmt;

use serde::Serialize;

/// Kind of difference between a log and the API server's audit log. Serialized and formatted in kebab-case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DriftClass {
    /// Sequence numbers are missing from the log.
    Gap,
    /// A record appears twice in the log, or two requests have the same anchor.
    Duplicate,
    /// The log has forked: two anchors for one sequence number, or a checkpoint whose root does not match the records.
    Fork,
    /// The log has fewer records than before.
    Shrink,
    /// The API server recorded a decision that no log contains.
    Missing,
    /// A log contains a decision of a request that the API server did not record.
    Orphan,
    /// A record differs from the one that was anchored or read before, or breaks the chain.
    Rewritten,
    /// Records have remained unsealed for too long.
    UnsealedTail,
    /// The log's checkpoint is missing, unreadable or not signed by a trusted key.
    KeyChange,
}

impl DriftClass {
    pub(super) const ALL: [Self; 9] = [
        Self::Gap,
        Self::Duplicate,
        Self::Fork,
        Self::Shrink,
        Self::Missing,
        Self::Orphan,
        Self::Rewritten,
        Self::UnsealedTail,
        Self::KeyChange,
    ];
}

impl fmt::Display for DriftClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// One difference between a log and the API server's audit log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    pub(super) class: DriftClass,
    /// Name of the log; empty if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) log: String,
    /// Sequence number of the record, or of the first one in a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seq: Option<u64>,
    /// Sequence number of the last record in a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<u64>,
    #[serde(rename = "auditID", skip_serializing_if = "String::is_empty")]
    pub(crate) audit_id: String,
    pub(crate) detail: String,
}

impl Drift {
    pub(super) fn new(class: DriftClass, log: &str, seq: Option<u64>, detail: impl Into<String>) -> Self {
        let (log, detail) = (log.to_owned(), detail.into());
        Self { class, log, seq, last: None, audit_id: String::new(), detail }
    }

    pub(super) fn of_request(self, audit_id: String) -> Self {
        Self { audit_id, ..self }
    }

    /// Returns `true` if `other` extends this lost range at the end of a log by one record.
    pub(super) fn is_followed_by(&self, other: &Self) -> bool {
        let next = self.last.or(self.seq).and_then(|last| last.checked_add(1));
        let same = (self.class, &self.log) == (other.class, &other.log) && other.last.is_none();
        self.class == DriftClass::Shrink && same && next.is_some() && next == other.seq
    }
}

/// Formats as `class: log, seq N: detail (auditID …)`.
impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.class)?;
        if !self.log.is_empty() {
            write!(f, "{}, ", self.log)?;
        }
        match (self.seq, self.last) {
            (Some(first), Some(last)) => write!(f, "seq {first} to {last}: ")?,
            (Some(seq), None) => write!(f, "seq {seq}: ")?,
            _ => {}
        }
        write!(f, "{}", self.detail.escape_debug())?;
        if !self.audit_id.is_empty() {
            write!(f, " (auditID {})", self.audit_id.escape_debug())?;
        }
        Ok(())
    }
}
