//! Why a command cannot do its work at all.

use std::io;
use std::path::PathBuf;

use lucid_chain::{CatalogueError, ConfigurationError, NamespaceChainError};
use snafu::Snafu;

/// Why a command cannot do its work at all. What is wrong with single documents it writes to standard error.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum OfflineError {
    /// A file cannot be read.
    #[snafu(display("failed to read {}: {source}", path.display()))]
    File {
        /// Which; `-` is standard input.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The catalogue is none.
    #[snafu(display("failed to read --config: {source}"))]
    Catalogue {
        /// What is wrong where.
        source: CatalogueError,
    },
    /// The chain names an unknown auditor.
    #[snafu(transparent)]
    Configuration {
        /// Which.
        source: ConfigurationError,
    },
    /// The file of --namespace-config holds something else.
    #[snafu(display(
        "failed to read --namespace-config {}: {problem}, accepted is one ConfigMap {} as a manifest",
        path.display(),
        lucid_chain::keys::NAMESPACE_CONFIG_MAP
    ))]
    NamespaceConfig {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The namespace's chain is none.
    #[snafu(display("failed to read --namespace-config: {source}"))]
    NamespaceChain {
        /// What is wrong where.
        source: NamespaceChainError,
    },
    /// The file holds no review that the webhook would answer.
    #[snafu(display("failed to review {}: {problem}", path.display()))]
    Review {
        /// Which file.
        path: PathBuf,
        /// What the webhook said.
        problem: String,
    },
    /// Nobody reads what is written.
    #[snafu(display("failed to write the result: {source}"))]
    Output {
        /// What the system said.
        source: io::Error,
    },
}

impl OfflineError {
    /// Whether the command was called wrongly, rather than unable to write.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::Output { .. })
    }
}
