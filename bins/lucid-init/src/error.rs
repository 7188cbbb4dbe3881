//! Errors and exit codes.

use lucid_chain::keys;
use snafu::Snafu;

use crate::{environment, proof::NotProven};

/// The redirect could not be installed or verified. [`Error::exit_code`] identifies the phase.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
pub(crate) enum Error {
    #[snafu(display(
        "failed to read the arguments: expected --print nft|iptables|ip6tables, --help, --version or nothing; found \
         `{found}`"
    ))]
    Usage { found: String },

    #[snafu(display(
        "failed to read the environment: {} is not set; the operator sets it when it adds this container to a pod",
        keys::REDIRECT_ENV
    ))]
    NoPlan,

    #[snafu(display("{source} (environment variable {})", keys::REDIRECT_ENV))]
    Plan { source: lucid_chain::Error },

    #[snafu(display(
        "failed to read the environment: {}: expected one of auto, nft, iptables; found {found:?}",
        environment::BACKEND
    ))]
    Backend { found: String },

    #[snafu(display("failed to install the redirect: {errors}; {advice}"))]
    Install { errors: String, advice: String },

    #[snafu(display(
        "failed to prove the redirect that {tool} installed: {source}; another network plugin or init container may \
         have rules of its own for these ports (see `nft list ruleset`); {}",
        without_rules()
    ))]
    Proof { tool: &'static str, source: NotProven },
}

pub(crate) fn without_rules() -> String {
    format!("the annotation {}: env on the pod does without network rules", keys::INTERCEPT)
}

impl Error {
    /// Returns the exit code of the process: 1 if no tool installs the rules, 2 for invalid arguments or environment,
    /// 3 if the installed rules have no effect.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Install { .. } => 1,
            Self::Usage { .. } | Self::NoPlan | Self::Plan { .. } | Self::Backend { .. } => 2,
            Self::Proof { .. } => 3,
        }
    }
}
