//! Reasons why an annotation cannot be honored.

use std::{fmt, time::Duration};

use lucid_text::with_causes;
use snafu::Snafu;

use crate::target::TargetError;

#[derive(Debug, Snafu)]
#[snafu(display("{problem}"))]
pub(super) struct Problem {
    pub(super) reason: &'static str,
    problem: String,
    /// `true` if a retry may succeed although no dependency changes.
    pub(super) is_transient: bool,
    /// `true` if users of the object can act on it, such as when the API server rejects a request, but not while
    /// it is unreachable. Such problems are reported by an event.
    pub(super) is_actionable: bool,
}

impl Problem {
    fn permanent(reason: &'static str, problem: impl Into<String>) -> Self {
        Self { reason, problem: problem.into(), is_transient: false, is_actionable: true }
    }

    pub(super) fn malformed(problem: impl Into<String>) -> Self {
        Self::permanent("MalformedAnnotation", problem)
    }

    pub(super) fn not_allowed(problem: impl Into<String>) -> Self {
        Self::permanent("CANotAllowed", problem)
    }

    pub(super) fn not_found(problem: impl Into<String>) -> Self {
        Self::permanent("CANotFound", problem)
    }

    pub(super) fn unusable(problem: impl Into<String>) -> Self {
        Self::permanent("CANotUsable", problem)
    }

    pub(super) fn unreadable(problem: impl Into<String>) -> Self {
        Self { is_transient: true, ..Self::unusable(problem) }
    }

    pub(super) fn api(action: &str, object: impl fmt::Display, error: &kube::Error) -> Self {
        let problem = format!("failed to {action} {object}: {}", with_causes(error));
        Self { reason: "CANotInjected", problem, is_transient: true, is_actionable: is_client_error(error) }
    }

    pub(super) fn timed_out(after: Duration) -> Self {
        let problem = format!("the API server did not respond within {} s", after.as_secs());
        Self { reason: "CANotInjected", problem, is_transient: true, is_actionable: false }
    }
}

impl From<TargetError> for Problem {
    fn from(error: TargetError) -> Self {
        let is_actionable = match &error {
            TargetError::Api { source, .. } => source.downcast_ref().is_some_and(is_client_error),
            _ => true,
        };
        let is_transient = !matches!(error, TargetError::Unfit { .. });
        Self { reason: "CANotInjected", problem: with_causes(&error), is_transient, is_actionable }
    }
}

fn is_client_error(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}
