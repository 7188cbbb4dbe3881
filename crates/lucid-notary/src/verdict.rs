//! Verdicts on digests, and their provenance.

use std::fmt;
use std::time::Duration;

/// The result of looking up a digest at the Verifier, or of verifying its signatures.
///
/// Failures have a variant of their own: treating them as "not notarized" blames the image for an outage, and
/// treating them as "notarized" fails open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NotaryVerdict {
    /// The digest is registered.
    Notarized,
    /// The digest is not registered.
    NotNotarized,
    /// The digest has signatures, but none that the policy of the image accepts.
    NotSigned {
        /// Text that names the file, and what was expected and found.
        reason: String,
    },
    /// The Verifier could not be reached, or its response could not be trusted.
    Unknown {
        /// Human-readable cause, including the address of the Verifier.
        reason: String,
    },
}

impl NotaryVerdict {
    /// Returns `true` for [`NotaryVerdict::Notarized`].
    #[must_use]
    pub fn is_notarized(&self) -> bool {
        matches!(self, Self::Notarized)
    }

    #[cfg(feature = "client")]
    pub(crate) fn unknown(reason: impl fmt::Display) -> Self {
        Self::Unknown { reason: reason.to_string() }
    }
}

impl fmt::Display for NotaryVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Notarized => f.write_str("notarized"),
            Self::NotNotarized => f.write_str("not notarized"),
            Self::NotSigned { reason } => write!(f, "not notarized: {reason}"),
            Self::Unknown { reason } => write!(f, "unknown: {reason}"),
        }
    }
}

/// The verdict on a digest, with its provenance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckedVerdict {
    /// The verdict.
    pub verdict: NotaryVerdict,
    /// Origin of the verdict.
    pub provenance: Provenance,
}

impl CheckedVerdict {
    /// Creates a verdict with its provenance.
    #[must_use]
    pub const fn new(verdict: NotaryVerdict, provenance: Provenance) -> Self {
        Self { verdict, provenance }
    }
}

/// Formats the verdict, followed by ` (allowlist)` or ` (signatures)` if these decided instead of the Verifier.
impl fmt::Display for CheckedVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verdict, provenance } = self;
        match provenance {
            Provenance::Verifier | Provenance::Cached { .. } => write!(f, "{verdict}"),
            Provenance::Allowlist | Provenance::Signatures => write!(f, "{verdict} ({})", provenance.name()),
        }
    }
}

/// Origin of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provenance {
    /// A request to the Verifier.
    Verifier,
    /// A cached result of an earlier request.
    Cached {
        /// Time since the response.
        age: Duration,
    },
    /// The allowlist; the Verifier was not queried.
    Allowlist,
    /// Signatures on the digest.
    Signatures,
}

impl Provenance {
    /// Returns the value of a metric label: `verifier`, `cached`, `allowlist` or `signatures`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Verifier => "verifier",
            Self::Cached { .. } => "cached",
            Self::Allowlist => "allowlist",
            Self::Signatures => "signatures",
        }
    }
}
