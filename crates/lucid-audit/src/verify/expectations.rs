use crate::anchor::Anchor;
use crate::checkpoint::Checkpoint;
use crate::note::{Note, VerifierKey};

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

/// Earlier state of a log, stored where its writer cannot change it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Since {
    /// An earlier checkpoint.
    Checkpoint(Checkpoint),
    /// The anchor of a record.
    Anchor(Anchor),
}
