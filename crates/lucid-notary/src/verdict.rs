//! What is known about one digest.

use std::fmt;

/// What the Verifier knows about a digest, as far as it could be asked.
///
/// "Could not ask" is a verdict of its own: who treats it as "not notarized" blames the image for an outage, who
/// treats it as "notarized" fails open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The digest is registered.
    Notarized,
    /// The Verifier answered that the digest is not registered.
    NotNotarized,
    /// The Verifier could not be asked, or its answer could not be trusted.
    Unknown {
        /// Why, for people: it names the Verifier and what went wrong.
        reason: String,
    },
}

impl Verdict {
    /// Whether the digest is known to be notarized.
    #[must_use]
    pub fn is_notarized(&self) -> bool {
        matches!(self, Self::Notarized)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Notarized => f.write_str("notarized"),
            Self::NotNotarized => f.write_str("not notarized"),
            Self::Unknown { reason } => write!(f, "unknown: {reason}"),
        }
    }
}
