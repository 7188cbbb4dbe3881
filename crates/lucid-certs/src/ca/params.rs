//! Parameters of generated certificates.

use std::time::Duration;

use super::{CA_LIFETIME, SERVING_LIFETIME};
use crate::key::KeyAlgorithm;

/// Parameters of a new CA. Defaults: ECDSA P-256, valid for [`CA_LIFETIME`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaParams {
    /// Key algorithm.
    pub algorithm: KeyAlgorithm,
    /// Validity period, counted from the time of issue.
    pub lifetime: Duration,
}

impl Default for CaParams {
    fn default() -> Self {
        Self { algorithm: KeyAlgorithm::default(), lifetime: CA_LIFETIME }
    }
}

impl CaParams {
    /// Sets the key algorithm.
    #[must_use]
    pub fn with_algorithm(self, algorithm: KeyAlgorithm) -> Self {
        Self { algorithm, ..self }
    }

    /// Sets the validity period, counted from the time of issue. It never extends beyond the year 9999.
    #[must_use]
    pub fn with_lifetime(self, lifetime: Duration) -> Self {
        Self { lifetime, ..self }
    }
}

/// Parameters of a new serving certificate. Defaults: ECDSA P-256, regardless of the CA's algorithm, valid
/// for [`SERVING_LIFETIME`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeafParams {
    /// Key algorithm.
    pub algorithm: KeyAlgorithm,
    /// Validity period, counted from the time of issue and limited by that of the CA.
    pub lifetime: Duration,
}

impl Default for LeafParams {
    fn default() -> Self {
        Self { algorithm: KeyAlgorithm::default(), lifetime: SERVING_LIFETIME }
    }
}

impl LeafParams {
    /// Sets the key algorithm.
    #[must_use]
    pub fn with_algorithm(self, algorithm: KeyAlgorithm) -> Self {
        Self { algorithm, ..self }
    }

    /// Sets the validity period, counted from the time of issue and limited by that of the CA.
    #[must_use]
    pub fn with_lifetime(self, lifetime: Duration) -> Self {
        Self { lifetime, ..self }
    }
}
