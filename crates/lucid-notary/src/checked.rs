//! A verdict, and how it came about.

use std::fmt;
use std::time::Duration;

use crate::verdict::Verdict;

/// What is known about a digest, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// What is known.
    pub verdict: Verdict,
    /// From where.
    pub provenance: Provenance,
}

impl Checked {
    /// A verdict from there.
    #[must_use]
    pub const fn new(verdict: Verdict, provenance: Provenance) -> Self {
        Self { verdict, provenance }
    }
}

/// The verdict, and where it comes from unless that is the Verifier: `notarized (last known good, 34 s old)`.
impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verdict, provenance } = self;
        match provenance {
            Provenance::Asked | Provenance::Cached { .. } => write!(f, "{verdict}"),
            Provenance::Allowlist | Provenance::LastKnownGood { .. } => write!(f, "{verdict} ({provenance})"),
        }
    }
}

/// Where a verdict comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provenance {
    /// The Verifier was asked for it, now.
    Asked,
    /// The Verifier was asked before, and what came of it is still taken to be so.
    Cached {
        /// How long ago.
        age: Duration,
    },
    /// The digest is on a list; the Verifier was not asked.
    Allowlist,
    /// The Verifier cannot be asked now; this is what it answered when it could.
    LastKnownGood {
        /// How long ago.
        age: Duration,
    },
}

impl Provenance {
    /// One word for labels of metrics: `asked`, `cached`, `allowlist` or `last_known_good`.
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
