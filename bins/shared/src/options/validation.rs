use lucid_notary::client::{Metrics, ReloadingFiles, Verifier};
use lucid_policy::{Policy, Strictness};
use snafu::{Snafu, ensure};

use super::verifier::{VerifierArgs, VerifierArgsError};

use super::policy::{PolicyArgs, PolicyArgsError};

/// Validation options, to be flattened into a program's arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Validation")]
pub struct ValidationArgs {
    /// Deny pods if an auditor image has no digest, its digest is not notarized, or the Verifier is unavailable.
    /// Without it, each of these is a warning. Needs --verifier-url or --verifier-allowlist-file.
    #[arg(long, env = "LUCID_STRICT_NOTARIZATION", value_name = "BOOL", default_value = "false")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub strict_notarization: bool,

    /// Options of the Verifier's client.
    #[command(flatten)]
    pub verifier: VerifierArgs,

    /// Options of the policy.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// The options of validation contradict each other, or one of them is unusable.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum ArgsError {
    /// Strict notarization without a Verifier would reject every pod.
    #[snafu(display(
        "strict notarization (LUCID_STRICT_NOTARIZATION) needs a Verifier: set LUCID_VERIFIER_URL to its http or \
         https URL, or LUCID_VERIFIER_ALLOWLIST_FILE"
    ))]
    StrictWithoutVerifier,
    /// The client of the Verifier could not be created.
    #[snafu(transparent)]
    Verifier {
        /// Unusable option and reason.
        source: VerifierArgsError,
    },
    /// The policy could not be created.
    #[snafu(transparent)]
    Policy {
        /// Error of the policy's options.
        source: PolicyArgsError,
    },
}

impl ValidationArgs {
    /// Returns the policy, which follows changes of the exemptions file.
    ///
    /// # Errors
    ///
    /// Returns an error if the exemptions file cannot be read or parsed.
    pub fn policy(&self) -> Result<ReloadingFiles<Policy>, ArgsError> {
        let strictness = if self.strict_notarization { Strictness::Strict } else { Strictness::Lenient };
        Ok(self.policy.policy(strictness)?)
    }

    /// Returns the client of the Verifier, or `None` if neither a URL nor an allowlist is configured.
    ///
    /// # Errors
    ///
    /// Returns an error if one of its options is unusable, or strict notarization is enabled without a Verifier.
    pub fn verifier(&self, metrics: &Metrics) -> Result<Option<Verifier>, ArgsError> {
        let verifier = self.verifier.verifier(metrics)?;
        ensure!(verifier.is_some() || !self.strict_notarization, StrictWithoutVerifierSnafu);
        Ok(verifier)
    }
}
