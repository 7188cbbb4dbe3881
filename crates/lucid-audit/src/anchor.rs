use serde::{Deserialize, Serialize};

use crate::merkle::Hash;

/// Where a record is in the log, to be kept outside of it: who holds an anchor can tell whether the log still says what
/// it said then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Anchor {
    /// The record's place in the log, from 0: its leaf index in the tree.
    pub seq: u64,
    /// The hash of its line (RFC 6962, section 2.1, of a leaf).
    pub leaf: Hash,
    /// How many records the log had when this one had become durable.
    pub size: u64,
}
