//! What a certificate that is made can differ in

use std::time::Duration;

use super::{BACKDATE, CA_LIFETIME, SERVING_LIFETIME};
use crate::key::KeyAlgorithm;

/// What a new authority is like: ECDSA P-256, valid for [`CA_LIFETIME`], begun [`BACKDATE`] ago, unless said otherwise
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaParams {
    /// The kind of its key
    pub algorithm: KeyAlgorithm,
    /// How long it is valid from now on
    pub lifetime: Duration,
    /// How far in the past its validity begins
    pub backdate: Duration,
}

impl Default for CaParams {
    fn default() -> Self {
        Self { algorithm: KeyAlgorithm::default(), lifetime: CA_LIFETIME, backdate: BACKDATE }
    }
}

impl CaParams {
    /// With another kind of key
    #[must_use]
    pub fn with_algorithm(self, algorithm: KeyAlgorithm) -> Self {
        Self { algorithm, ..self }
    }

    /// Valid for so long from now on, but not beyond the year 9999
    #[must_use]
    pub fn with_lifetime(self, lifetime: Duration) -> Self {
        Self { lifetime, ..self }
    }

    /// Begun so long ago
    #[must_use]
    pub fn with_backdate(self, backdate: Duration) -> Self {
        Self { backdate, ..self }
    }
}

/// What a new serving certificate is like: ECDSA P-256 whatever the authority has, valid for [`SERVING_LIFETIME`],
/// unless said otherwise
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeafParams {
    /// The kind of its key
    pub algorithm: KeyAlgorithm,
    /// How long it is valid from now on, if its authority is
    pub lifetime: Duration,
}

impl Default for LeafParams {
    fn default() -> Self {
        Self { algorithm: KeyAlgorithm::default(), lifetime: SERVING_LIFETIME }
    }
}

impl LeafParams {
    /// With another kind of key
    #[must_use]
    pub fn with_algorithm(self, algorithm: KeyAlgorithm) -> Self {
        Self { algorithm, ..self }
    }

    /// Valid for so long from now on, but not longer than its authority
    #[must_use]
    pub fn with_lifetime(self, lifetime: Duration) -> Self {
        Self { lifetime, ..self }
    }
}
