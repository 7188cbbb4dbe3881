//! A verdict with its provenance.

use std::fmt;
use std::time::Duration;

use crate::verdict::Verdict;

/// The verdict on a digest, with its provenance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// The verdict.
    pub verdict: Verdict,
    /// Origin of the verdict.
    pub provenance: Provenance,
}

impl Checked {
    /// Creates a verdict with its provenance.
    #[must_use]
    pub const fn new(verdict: Verdict, provenance: Provenance) -> Self {
        Self { verdict, provenance }
    }
}

/// Formats the verdict, with its provenance unless it is a current answer of the Verifier: `notarized (last known
/// good, 34 s old)`.
impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verdict, provenance } = self;
        match provenance {
            Provenance::Asked | Provenance::Cached { .. } => write!(f, "{verdict}"),
            Provenance::Allowlist | Provenance::LastKnownGood { .. } => write!(f, "{verdict} ({provenance})"),
        }
    }
}

/// Origin of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provenance {
    /// A request to the Verifier.
    Asked,
    /// A cached result of an earlier request.
    Cached {
        /// Time since the answer.
        age: Duration,
    },
    /// The allowlist; the Verifier was not queried.
    Allowlist,
    /// An earlier answer, used while the Verifier is unavailable.
    LastKnownGood {
        /// Time since the answer.
        age: Duration,
    },
}

impl Provenance {
    /// Returns the value of a metric label: `asked`, `cached`, `allowlist` or `last_known_good`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Cached { .. } => "cached",
            Self::Allowlist => "allowlist",
            Self::LastKnownGood { .. } => "last_known_good",
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("asked"),
            Self::Cached { age } => write!(f, "cached, {} s old", age.as_secs()),
            Self::Allowlist => f.write_str("allowlist"),
            Self::LastKnownGood { age } => write!(f, "last known good, {} s old", age.as_secs()),
        }
    }
}
