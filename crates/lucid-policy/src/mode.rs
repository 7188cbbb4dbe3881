//! Enforcement of the policy.

use std::str::FromStr;

use snafu::Snafu;

/// Handling of auditor images that are not known to be notarized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Refuses the pod; for production.
    Strict,
    /// Warns; for development.
    #[default]
    Lenient,
}

/// Enforcement of findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// No finding refuses pods. All are recorded and reported as warnings.
    #[default]
    Audit,
    /// All findings of [`Severity::Deny`](crate::Severity::Deny) refuse pods; image findings subject to [`Strictness`].
    Enforce,
}

impl Mode {
    /// Returns `audit` or `enforce`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::Enforce => "enforce",
        }
    }
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        match text {
            "audit" => Ok(Self::Audit),
            "enforce" => Ok(Self::Enforce),
            found => UnknownModeSnafu { found }.fail(),
        }
    }
}

/// Error of parsing a [`Mode`].
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("expected audit or enforce, found {found:?}"))]
pub struct UnknownMode {
    found: String,
}
