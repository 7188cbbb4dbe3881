//! Errors of the HTTP client.

use std::error::Error;
use std::iter::successors;
use std::time::Duration;

use reqwest::StatusCode;
use snafu::Snafu;
use tower::BoxError;

use crate::digest::Digest;

/// A request to the Verifier failed, or its response cannot be trusted.
///
/// Messages name the origin of the Verifier (`https://host:port`) and the cause, so that they can be shown on their
/// own.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum VerifierError {
    /// The response was not complete in time.
    #[snafu(display("failed to query the Verifier at {origin}: no response within {timeout:?}"))]
    Timeout {
        /// Origin of the Verifier.
        origin: String,
        /// Timeout of one request.
        timeout: Duration,
    },
    /// The connection failed.
    #[snafu(display("failed to query the Verifier at {origin}: {}", root_cause(&**source)))]
    Transport {
        /// Origin of the Verifier.
        origin: String,
        /// Error of the HTTP client.
        #[snafu(source(from(reqwest::Error, Box::from)))]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The status of the response is not 200. Redirects are not followed.
    #[snafu(display("failed to query the Verifier at {origin}: expected status 200 OK, found {status}"))]
    Status {
        /// Origin of the Verifier.
        origin: String,
        /// Status of the response.
        status: StatusCode,
    },
    /// The response body is too long.
    #[snafu(display(
        "failed to query the Verifier at {origin}: the response is longer than the limit of {limit} bytes"
    ))]
    TooLong {
        /// Origin of the Verifier.
        origin: String,
        /// Maximum length in bytes.
        limit: usize,
    },
    /// The response body cannot be parsed.
    #[snafu(display(
        "failed to parse the response of the Verifier at {origin}: {fault}; \
         expected {{\"digest\":\"sha256:…\",\"notarized\":true}}"
    ))]
    Malformed {
        /// Origin of the Verifier.
        origin: String,
        /// Parse error, quoted and truncated.
        fault: String,
    },
    /// The response names a digest other than the requested one.
    #[snafu(display(
        "rejected the response of the Verifier at {origin}: expected {requested}, found {answered}"
    ))]
    OtherDigest {
        /// Origin of the Verifier.
        origin: String,
        /// Requested digest.
        requested: Digest,
        /// Digest in the response, quoted and truncated.
        answered: String,
    },
    /// The response does not prove that its verdict is in the Verifier's log.
    #[snafu(display("rejected the response of the Verifier at {origin}: {fault}"))]
    Unproven {
        /// Origin of the Verifier.
        origin: String,
        /// Fault of the proof.
        fault: String,
    },
}

impl VerifierError {
    /// Returns the first error of this type in the chain of sources.
    pub(super) fn find(error: &BoxError) -> Option<&Self> {
        let source: &(dyn Error + 'static) = &**error;
        successors(Some(source), |&error| error.source()).find_map(<dyn Error>::downcast_ref)
    }

    /// Returns `true` if the error means that the Verifier is unavailable, so that requests for other digests would
    /// fail as well: timeouts, failed connections, the statuses 408, 429 and 5xx, and malformed responses.
    ///
    /// Other statuses are not outages. The author of a pod controls the requested digests and must not be able to
    /// simulate an outage.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Transport { .. } | Self::Malformed { .. } => true,
            Self::Status { status, .. } => is_overload(*status) || status.is_server_error(),
            Self::TooLong { .. } | Self::OtherDigest { .. } | Self::Unproven { .. } => false,
        }
    }

    /// Returns `true` if the same request may succeed when retried. TLS failures and invalid responses are permanent.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Transport { source, .. } => !is_tls_failure(&**source),
            Self::Status { status, .. } => is_overload(*status) || status.is_server_error(),
            Self::Malformed { .. }
            | Self::TooLong { .. }
            | Self::OtherDigest { .. }
            | Self::Unproven { .. } => false,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "timeout",
            Self::Transport { .. } => "transport",
            Self::Status { .. } => "status",
            Self::TooLong { .. } => "too_long",
            Self::Malformed { .. } => "malformed",
            Self::OtherDigest { .. } => "other_digest",
            Self::Unproven { .. } => "unproven",
        }
    }
}

fn is_overload(status: StatusCode) -> bool {
    matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

/// Returns `true` for TLS failures, as opposed to broken connections. Their error types are private to the HTTP
/// client, so they are recognized by the `io::ErrorKind` that rustls failures have, `InvalidData`.
fn is_tls_failure(error: &(dyn Error + 'static)) -> bool {
    let is_connect = error.downcast_ref().is_some_and(reqwest::Error::is_connect);
    let mut cause = error;
    while let Some(next) = cause.source() {
        let kind = next.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        if is_connect && kind == Some(std::io::ErrorKind::InvalidData) {
            return true;
        }
        cause = next;
    }
    false
}

/// Returns the message of the innermost error. The HTTP client wraps errors such as "connection refused" several
/// times.
pub(super) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
