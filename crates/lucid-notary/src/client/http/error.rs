use std::error::Error;
use std::time::Duration;

use reqwest::StatusCode;
use snafu::Snafu;

use crate::digest::Digest;

/// Why the Verifier gave no answer that can be trusted.
///
/// Each message names the Verifier by its origin (`https://host:port`) and what went wrong, so it can be shown by
/// itself.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum VerifierError {
    /// No complete answer came in time.
    #[snafu(display("failed to ask the Verifier at {origin}: no answer within {timeout:?}"))]
    Timeout {
        /// The Verifier's origin.
        origin: String,
        /// How long one ask may take.
        timeout: Duration,
    },
    /// The connection could not be made, or broke.
    #[snafu(display("failed to ask the Verifier at {origin}: {}", root_cause(&**source)))]
    Transport {
        /// The Verifier's origin.
        origin: String,
        /// What the HTTP client said.
        #[snafu(source(from(reqwest::Error, Box::from)))]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The status is another one than 200. Redirects are not followed.
    #[snafu(display(
        "failed to ask the Verifier at {origin}: it answered with status {status}; accepted is 200 OK"
    ))]
    Status {
        /// The Verifier's origin.
        origin: String,
        /// The status of the answer.
        status: StatusCode,
    },
    /// The answer is too long.
    #[snafu(display(
        "failed to ask the Verifier at {origin}: its answer is too long; accepted are at most {limit} bytes"
    ))]
    TooLong {
        /// The Verifier's origin.
        origin: String,
        /// The greatest length that is accepted, in bytes.
        limit: usize,
    },
    /// The answer does not parse.
    #[snafu(display(
        "failed to read the answer of the Verifier at {origin}: {fault}; \
         accepted is {{\"digest\":\"sha256:…\",\"notarized\":true}}"
    ))]
    Malformed {
        /// The Verifier's origin.
        origin: String,
        /// What is wrong with it, quoted and cut to a readable length.
        fault: String,
    },
    /// The answer is about another digest than the one asked for.
    #[snafu(display(
        "refused the answer of the Verifier at {origin}: it is about {answered} and not about {asked}"
    ))]
    OtherDigest {
        /// The Verifier's origin.
        origin: String,
        /// The digest asked for.
        asked: Digest,
        /// The digest in the answer, quoted and cut to a readable length.
        answered: String,
    },
}

impl VerifierError {
    /// Whether the Verifier is out of order, so that asks about other digests would fare no better: it does not answer in
    /// time, cannot be reached, answers with status 408, 429 or 5xx, or with something that is no answer at all.
    ///
    /// Other statuses are none: what is asked for is chosen by whoever writes a pod, and must not look like an outage.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Transport { .. } | Self::Malformed { .. } => true,
            Self::Status { status, .. } => is_of_overload(*status) || status.is_server_error(),
            Self::TooLong { .. } | Self::OtherDigest { .. } => false,
        }
    }

    /// Whether the same ask, made again, may fare better: not when TLS failed or the answer made no sense.
    pub(in crate::client) fn is_worth_a_retry(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Transport { source, .. } => !is_of_tls(&**source),
            Self::Status { status, .. } => is_of_overload(*status) || status.is_server_error(),
            Self::Malformed { .. } | Self::TooLong { .. } | Self::OtherDigest { .. } => false,
        }
    }

    /// One word for labels of metrics.
    pub(in crate::client) fn name(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "timeout",
            Self::Transport { .. } => "transport",
            Self::Status { .. } => "status",
            Self::TooLong { .. } => "too_long",
            Self::Malformed { .. } => "malformed",
            Self::OtherDigest { .. } => "other_digest",
        }
    }
}

fn is_of_overload(status: StatusCode) -> bool {
    matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

/// Whether the two could not agree on TLS, in contrast to a connection that broke. The causes of one are not public types
/// of the HTTP client, but their kind is: what rustls refuses comes as invalid data.
fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
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

/// The last error of the chain. An HTTP client wraps "connection refused" several times; this is what helps.
pub(super) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
