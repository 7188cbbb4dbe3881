use serde::{Deserialize, Serialize};

use crate::merkle::{Hash, leaf_hash};

/// Position and hash of a record, to be stored outside the log. An anchor's holder can check that the log still contains the
/// record unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Anchor {
    /// Position of the record in the log, from 0. Leaf index in the tree.
    pub seq: u64,
    /// Leaf hash of the record's line (RFC 6962, section 2.1).
    pub(crate) leaf: Hash,
    /// Number of records in the log when this one became durable.
    pub size: u64,
}

impl Anchor {
    /// Returns `true` if the anchor is that of this line, the record at its position.
    #[must_use]
    pub fn is_of(&self, record: &[u8]) -> bool {
        self.leaf == leaf_hash(record)
    }
}
