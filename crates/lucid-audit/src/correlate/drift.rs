use std::fmt;

use serde::Serialize;

/// How two records of the same decisions differ: a log and the API server's audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DriftClass {
    /// Numbers are missing in the log.
    Gap,
    /// A record stands in the log twice, or two requests have the same anchor.
    Duplicate,
    /// The log has two histories: two anchors for one number, or a checkpoint whose root the records do not have.
    Fork,
    /// The log has fewer records than it had.
    Shrink,
    /// The API server knows of a decision that is in no log.
    Missing,
    /// A log has a decision of which the API server knows nothing.
    Orphan,
    /// A record is another than it was when the API server was told of it.
    Rewritten,
    /// Records have not been sealed for long.
    UnsealedTail,
    /// The log is sealed by another key.
    KeyChange,
}

impl DriftClass {
    /// All of them, so that each can be counted from the beginning.
    pub const ALL: [Self; 9] = [
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

    /// Its name: lower case with hyphens.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::Duplicate => "duplicate",
            Self::Fork => "fork",
            Self::Shrink => "shrink",
            Self::Missing => "missing",
            Self::Orphan => "orphan",
            Self::Rewritten => "rewritten",
            Self::UnsealedTail => "unsealed-tail",
            Self::KeyChange => "key-change",
        }
    }
}

impl fmt::Display for DriftClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Drift {
    /// What kind of difference.
    pub class: DriftClass,
    /// The log, as it was named; empty when it is not known which.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub log: String,
    /// The record, or the first of several in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The last of several in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// The request, by its id in the API server's audit log.
    #[serde(rename = "auditID", skip_serializing_if = "String::is_empty")]
    pub audit_id: String,
    /// What was found.
    pub detail: String,
}

impl Drift {
    /// Whether the other one goes on where the end of a log that was lost begins.
    pub(super) fn is_followed_by(&self, other: &Self) -> bool {
        let next = self.last.or(self.seq).and_then(|last| last.checked_add(1));
        let same = (self.class, &self.log) == (other.class, &other.log) && other.last.is_none();
        self.class == DriftClass::Shrink && same && next.is_some() && next == other.seq
    }
}

/// `class: log, seq N: what was found (auditID …)`
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
