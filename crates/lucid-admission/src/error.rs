//! Errors of the webhooks.

use lucid_chain::PodError;
use lucid_policy::SubjectError;
use snafu::Snafu;

use crate::cluster::NotSynced;
use crate::names::{VALIDATE_NAME, WORKLOADS_NAME};

/// A request does not contain a readable pod.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum RequestError {
    /// The object is not a pod.
    #[snafu(display("expected a core/v1 Pod, found {found}; is the webhook registered for something else?"))]
    NotAPod {
        /// Group, version and kind of the object.
        found: String,
    },
    /// The pod cannot be parsed.
    #[snafu(transparent)]
    Pod {
        /// Field and error.
        source: PodError,
    },
}

/// A pod could not be injected.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum InjectError {
    /// The request is not about a readable pod.
    #[snafu(transparent)]
    Request {
        /// Field and error.
        source: RequestError,
    },
    /// The configuration is not synchronized yet.
    #[snafu(transparent)]
    NotSynced {
        /// Missing part of the configuration.
        source: NotSynced,
    },
}

/// A request could not be evaluated.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum ValidateError {
    /// The kind of the object is unknown to the webhook.
    #[snafu(display(
        "expected a core/v1 Pod in {VALIDATE_NAME}, or a workload with a pod template in {WORKLOADS_NAME}; found {found}; \
         is the webhook registered for something else?"
    ))]
    UnknownKind {
        /// Group, version and kind of the object.
        found: String,
    },
    /// The request does not contain a readable pod or template.
    #[snafu(transparent)]
    Subject {
        /// Field and error.
        source: SubjectError,
    },
    /// The configuration is not known yet.
    #[snafu(transparent)]
    NotSynced {
        /// Missing part of the configuration.
        source: NotSynced,
    },
}
