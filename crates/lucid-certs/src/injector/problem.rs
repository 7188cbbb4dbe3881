//! Reasons why an annotation cannot be honored.

use std::{io, path::PathBuf};

use snafu::Snafu;

use crate::target::TargetError;

#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
pub(super) enum Problem {
    #[snafu(display("annotation {annotation} is {value:?}; accepted is NAMESPACE/NAME"))]
    Malformed { annotation: &'static str, value: String },
    #[snafu(display("{problem}"))]
    NotAllowed { problem: String },
    #[snafu(display("{problem}"))]
    NotFound { problem: String },
    #[snafu(display("{problem}"))]
    Unusable { problem: String },
    #[snafu(display("failed to read the CA of the API server from {}", path.display()))]
    File { path: PathBuf, source: io::Error },
    #[snafu(transparent)]
    Target { source: TargetError },
    #[snafu(display("failed to {action} {object}"))]
    Api {
        action: &'static str,
        object: String,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    #[snafu(display("the API server did not answer within {seconds} s"))]
    TimedOut { seconds: u64 },
}

impl Problem {
    pub(super) fn not_allowed(problem: impl Into<String>) -> Self {
        Self::NotAllowed { problem: problem.into() }
    }

    pub(super) fn not_found(problem: impl Into<String>) -> Self {
        Self::NotFound { problem: problem.into() }
    }

    pub(super) fn unusable(problem: impl Into<String>) -> Self {
        Self::Unusable { problem: problem.into() }
    }

    /// Returns `true` if a retry may succeed although no dependency changes.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Api { .. } | Self::TimedOut { .. } | Self::File { .. } => true,
            Self::Target { source } => !matches!(source, TargetError::Unfit { .. }),
            _ => false,
        }
    }

    /// Returns the reason of the event.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "MalformedAnnotation",
            Self::NotAllowed { .. } => "CANotAllowed",
            Self::NotFound { .. } => "CANotFound",
            Self::Unusable { .. } | Self::File { .. } => "CANotUsable",
            Self::Target { .. } | Self::Api { .. } | Self::TimedOut { .. } => "CANotInjected",
        }
    }

    /// Returns `true` if the problem should be reported by an event: users of the object can act on it, such
    /// as when the API server rejects a request, but not while it is unreachable.
    pub(super) fn is_actionable(&self) -> bool {
        match self {
            Self::Api { source, .. } => is_client_error(source),
            Self::Target { source: TargetError::Api { source, .. } } => {
                source.downcast_ref().is_some_and(is_client_error)
            }
            Self::TimedOut { .. } => false,
            _ => true,
        }
    }
}

fn is_client_error(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}
