//! Resources that are short.

use std::fmt;

/// A resource of which the pod-level `spec.resources` have too little.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shortage {
    /// `requests` or `limits`.
    pub(crate) list: &'static str,
    /// Name of the resource.
    pub(crate) resource: String,
    /// Quantity in the pod.
    pub(crate) found: String,
    /// Quantity that the containers of the pod need, as `at least 1` or `more than 1`.
    pub(crate) expected: String,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { list, resource, found, expected } = self;
        write!(f, "{list}.{resource}: expected {expected}, found {found}")
    }
}

impl Shortage {
    pub(crate) fn join(shortages: &[Self]) -> String {
        shortages.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}
