//! The verdict on a digest.

use std::fmt;

/// The result of looking up a digest at the Verifier.
///
/// Failures have a variant of their own: treating them as "not notarized" blames the image for an outage, and
/// treating them as "notarized" fails open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The digest is registered.
    Notarized,
    /// The digest is not registered.
    NotNotarized,
    /// The Verifier could not be reached, or its answer could not be trusted.
    Unknown {
        /// Human-readable cause, including the address of the Verifier.
        reason: String,
    },
}

impl Verdict {
    /// Returns `true` for [`Verdict::Notarized`].
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
