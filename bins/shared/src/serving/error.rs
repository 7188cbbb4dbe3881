use snafu::Snafu;

use super::HostError;
use crate::options::{ArgsError, AuditEndpointError, DecisionLogError};

/// A program could not start, or failed.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum RunError {
    /// The options contradict each other.
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
    /// A token of `/audit` cannot be used.
    #[snafu(transparent)]
    Audit {
        /// Error of the token file.
        source: AuditEndpointError,
    },
    /// The webhooks cannot be served.
    #[snafu(transparent)]
    Host {
        /// Error of the host.
        source: HostError,
    },
}
