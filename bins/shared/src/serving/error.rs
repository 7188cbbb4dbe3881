use snafu::Snafu;

use super::HostError;
use crate::options::{ArgsError, DecisionLogError};

/// A program could not start, or failed.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum RunError {
    /// The options contradict each other, or one of them is unusable.
    #[snafu(transparent)]
    Args {
        /// Option, and accepted values.
        source: ArgsError,
    },
    /// The decision log cannot be set up.
    #[snafu(transparent)]
    DecisionLog {
        /// Error of the log.
        source: DecisionLogError,
    },
    /// The webhooks cannot be served.
    #[snafu(transparent)]
    Host {
        /// Error of the host.
        source: HostError,
    },
}
