//! Conversion of a webhook's request to the requested pod.

use lucid_chain::{PodError, PodView};
use lucid_webhook::{AdmissionRequest, RawObject};
use snafu::{Snafu, ensure};

/// A request does not contain a readable pod.
#[derive(Debug, Snafu)]
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

/// Parses `object`, one of the objects in `request`, as a pod.
///
/// # Errors
///
/// Returns an error if the request is about another kind, or the pod cannot be parsed.
pub fn pod_of<'a>(request: &AdmissionRequest, object: &'a RawObject) -> Result<PodView<'a>, RequestError> {
    ensure!(request.kind.is("", "v1", "Pod"), NotAPodSnafu { found: request.kind.to_string() });
    Ok(PodView::from_json(object.as_bytes())?)
}
