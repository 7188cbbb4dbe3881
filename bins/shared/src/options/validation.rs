use lucid_notary::client::{Metrics, ReloadingFiles, Verifier};
use lucid_policy::{Policy, Strictness};
use snafu::ensure;

use super::error::StrictWithoutVerifierSnafu;
use super::{ArgsError, PolicyArgs, VerifierArgs};

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

impl ValidationArgs {
    /// Returns the policy, which follows changes of the exemptions file.
    ///
    /// # Errors
    ///
    /// Returns an error if the exemptions file cannot be read or parsed.
    pub fn policy(&self) -> Result<ReloadingFiles<Policy>, ArgsError> {
        let strictness = if self.strict_notarization { Strictness::Strict } else { Strictness::Lenient };
        self.policy.policy(strictness)
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
