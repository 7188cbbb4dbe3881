use serde::Deserialize;

use crate::verdict::Verdict;

/// What the Verifier answered about a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The digest is registered.
    Notarized,
    /// The digest is not registered.
    NotNotarized,
}

impl From<Answer> for Verdict {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Notarized => Self::Notarized,
            Answer::NotNotarized => Self::NotNotarized,
        }
    }
}

/// The answer on the wire: `{"digest":"sha256:…","notarized":true}`.
#[derive(Debug, Deserialize)]
pub(super) struct AnswerBody {
    pub(super) digest: String,
    pub(super) notarized: bool,
}
