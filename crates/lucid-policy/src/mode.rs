//! Enforcement of the policy.

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
    /// Only image findings refuse pods, subject to [`Strictness`]. Other findings are recorded and reported as
    /// warnings.
    #[default]
    Images,
    /// No finding refuses pods. All are recorded and reported as warnings.
    Audit,
    /// All findings of [`Severity::Deny`](crate::Severity::Deny) refuse pods; image findings subject to [`Strictness`].
    Enforce,
}
