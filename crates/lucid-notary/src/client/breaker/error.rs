use std::time::Duration;

use snafu::Snafu;

/// The Verifier was not asked, because it was out of order the last times that it was.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("the Verifier is not asked for now: it failed too often in a row (circuit breaker open)"))]
#[non_exhaustive]
pub struct BreakerOpen {
    /// After this long it is tried again. Zero while it is being tried.
    pub retry_after: Duration,
}

impl BreakerOpen {
    pub(super) const fn new(retry_after: Duration) -> Self {
        Self { retry_after }
    }
}
