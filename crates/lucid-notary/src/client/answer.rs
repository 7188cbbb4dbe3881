//! Responses of the Verifier.

use crate::verdict::NotaryVerdict;

/// The Verifier's response about a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The digest is registered.
    Notarized,
    /// The digest is not registered.
    NotNotarized,
}

impl From<Answer> for NotaryVerdict {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Notarized => Self::Notarized,
            Answer::NotNotarized => Self::NotNotarized,
        }
    }
}
