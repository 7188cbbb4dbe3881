use std::time::Duration;

use snafu::Snafu;

/// There was no answer in time, however often the Verifier was asked.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("the Verifier gave no answer within {limit:?}"))]
#[non_exhaustive]
pub struct DeadlineExceeded {
    /// How long an ask may take.
    pub limit: Duration,
}

impl DeadlineExceeded {
    pub(super) const fn new(limit: Duration) -> Self {
        Self { limit }
    }
}
