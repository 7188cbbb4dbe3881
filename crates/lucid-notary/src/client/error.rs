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
    #[snafu(display("failed to ask the Verifier at {origin}: {}", root_cause(source)))]
    Transport {
        /// The Verifier's origin.
        origin: String,
        /// What the HTTP client said.
        source: reqwest::Error,
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

/// The last error of the chain. An HTTP client wraps "connection refused" several times; this is what helps.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
