//! Parameters of generated certificates.

use std::time::Duration;

use crate::key::KeyAlgorithm;

/// Parameters of a new certificate. Defaults: ECDSA P-256, valid for [`CA_LIFETIME`](super::CA_LIFETIME) or
/// [`SERVING_LIFETIME`](super::SERVING_LIFETIME).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IssueParams {
    pub(super) algorithm: KeyAlgorithm,
    pub(super) lifetime: Option<Duration>,
}

impl IssueParams {
    /// Sets the key algorithm.
    #[must_use]
    pub fn with_algorithm(self, algorithm: KeyAlgorithm) -> Self {
        Self { algorithm, ..self }
    }

    /// Sets the validity period, counted from the time of issue. It ends with that of the CA, and never extends
    /// beyond the year 9999.
    #[must_use]
    pub fn with_lifetime(self, lifetime: Duration) -> Self {
        Self { lifetime: Some(lifetime), ..self }
    }
}
