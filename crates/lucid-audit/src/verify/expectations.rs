use crate::anchor::Anchor;
use crate::checkpoint::Checkpoint;
use crate::note::{Note, VerifierKey};

/// What is known of a log from elsewhere. The more of it there is, the less somebody can change who can write to the log's
/// directory.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Expectations {
    /// The keys one of which has signed the checkpoint. Without any, the file `vkey` in the log's directory is believed.
    pub keys: Vec<VerifierKey>,
    /// Which log it is.
    pub origin: Option<String>,
    /// What the log said earlier.
    pub since: Vec<Since>,
    /// Whether nothing may stand behind the checkpoint, because the writer has ended.
    pub sealed: bool,
    /// Witnesses that have to have cosigned a checkpoint of the log, with which its records are compared.
    pub witnesses: Vec<VerifierKey>,
    /// How many of the witnesses have to have signed; without it all of them.
    pub quorum: Option<usize>,
    /// The checkpoint that they have cosigned, as it was kept elsewhere, or as a witness gives it out. Without it the one in the log's
    /// directory is taken, which whoever can write there can replace with an earlier one.
    pub cosigned: Option<Note>,
}

/// What a log said earlier, kept where its writer cannot change it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Since {
    /// A checkpoint.
    Checkpoint(Checkpoint),
    /// The anchor of a record.
    Anchor(Anchor),
}
