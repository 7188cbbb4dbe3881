use lucid_notary::client::{BuildError, FileError};
use lucid_webhook::TokenFileError;
use snafu::Snafu;

/// The options contradict each other, or one of them is unusable.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum ArgsError {
    /// Strict notarization without a Verifier would reject every pod.
    #[snafu(display(
        "strict notarization (LUCID_STRICT_NOTARIZATION) needs a Verifier: set LUCID_VERIFIER_URL to its http or \
         https URL, or LUCID_VERIFIER_ALLOWLIST_FILE"
    ))]
    StrictWithoutVerifier,
    /// An option of the Verifier's client has no effect without its URL.
    #[snafu(display("found {found} without LUCID_VERIFIER_URL; accepted are both or neither"))]
    NoUrl {
        /// Environment variable that is set.
        found: &'static str,
    },
    /// The client of the Verifier rejects the value of an option.
    #[snafu(display("failed to use {variable}: {source}"))]
    Client {
        /// Environment variable of the option.
        variable: &'static str,
        /// Error of the client. Does not quote the URL, which may contain a password.
        source: BuildError,
    },
    /// A file cannot be read, or its content is invalid.
    #[snafu(display("{variable}: {source}"))]
    File {
        /// Environment variable of the file.
        variable: &'static str,
        /// Path and error.
        source: FileError,
    },
    /// A token file cannot be used.
    #[snafu(display("{variable}: {source}"))]
    Token {
        /// Environment variable of the file.
        variable: &'static str,
        /// Path and error.
        source: TokenFileError,
    },
}
