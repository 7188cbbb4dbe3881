//! Responses of the Verifier, or of another source of verdicts.

use crate::verdict::NotaryVerdict;

/// The response about a digest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The digest is registered.
    Notarized,
    /// The digest is not registered.
    NotNotarized,
    /// The digest has signatures, but none that a policy accepts.
    NotSigned {
        /// Text that says what was expected and found.
        reason: String,
    },
}

impl From<Answer> for NotaryVerdict {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Notarized => Self::Notarized,
            Answer::NotNotarized => Self::NotNotarized,
            Answer::NotSigned { reason } => Self::NotSigned { reason },
        }
    }
}
