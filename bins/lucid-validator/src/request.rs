//! From a webhook's request to the pod it is about.

use lucid_chain::{PodError, PodView};
use lucid_webhook::{AdmissionRequest, RawObject};
use snafu::{Snafu, ensure};

/// Why a request is not about a pod that can be read.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum RequestError {
    /// The object is none that Lucid knows.
    #[snafu(display("expected a core/v1 Pod, found {found}; is the webhook registered for something else?"))]
    NotAPod {
        /// What it is.
        found: String,
    },
    /// The pod cannot be read.
    #[snafu(transparent)]
    Pod {
        /// What is wrong where.
        source: PodError,
    },
}

/// Reads `object`, one of `request`'s, as a pod.
///
/// # Errors
///
/// When the request is about something else, or the pod cannot be read.
pub fn pod_of<'a>(request: &AdmissionRequest, object: &'a RawObject) -> Result<PodView<'a>, RequestError> {
    ensure!(request.kind.is("", "v1", "Pod"), NotAPodSnafu { found: request.kind.to_string() });
    Ok(PodView::from_json(object.as_bytes())?)
}
