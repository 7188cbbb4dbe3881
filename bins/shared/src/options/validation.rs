//! Options of validation.

use lucid_notary::client::{ClientMetrics, Notary};
use lucid_policy::{Policy, Strictness};

use super::{NotaryArgs, PolicyArgs};
use crate::Error;

/// Validation options, to be flattened into a program's arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Validation")]
pub struct ValidationArgs {
    /// In mode enforce, deny pods if an auditor image has no digest, its digest is not notarized, or the Verifier is
    /// unavailable. Otherwise each of these is a warning. Needs --verifier-url, --verifier-allowlist-file or
    /// --signatures-directory.
    #[arg(long, env = "LUCID_STRICT_NOTARIZATION", value_name = "BOOL", default_value = "false")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub strict_notarization: bool,

    /// Options of the sources of verdicts.
    #[command(flatten)]
    pub sources: NotaryArgs,

    /// Options of the policy.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

impl ValidationArgs {
    /// Returns the policy.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let strictness = if self.strict_notarization { Strictness::Strict } else { Strictness::Lenient };
        self.policy.policy(strictness)
    }

    /// Returns the sources of verdicts as [`NotaryArgs::notary`] does.
    ///
    /// # Errors
    ///
    /// Returns an error if an option cannot be used, or the policy is strict and would deny every pod for lack of a source.
    pub fn notary(&self, metrics: &ClientMetrics) -> Result<Option<Notary>, Error> {
        let notary = self.sources.notary(metrics)?;
        if notary.is_none() && self.strict_notarization {
            return Err(Error::new(
                "strict notarization (LUCID_STRICT_NOTARIZATION) needs a Verifier: set LUCID_VERIFIER_URL to its http or \
                 https URL, or LUCID_VERIFIER_ALLOWLIST_FILE or LUCID_SIGNATURES_DIRECTORY",
            ));
        }
        Ok(notary)
    }
}
