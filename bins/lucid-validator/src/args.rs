use lucid_notary::client::{Metrics, Reread, Verifier};
use lucid_policy::{Policy, Strictness};
use snafu::{Snafu, ensure};

use crate::verifier::{VerifierArgs, VerifierArgsError};

use crate::policy_args::{PolicyArgs, PolicyArgsError};

/// The options of validation, to be flattened into a binary's own arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Validation")]
pub struct ValidationArgs {
    /// Refuse pods whose auditor images carry no digest, or one that the Verifier does not know as notarized, or
    /// when it cannot be asked. Without it, each of these is a warning. Needs --verifier-url or --verifier-allowlist-file.
    #[arg(long, env = "LUCID_STRICT_NOTARIZATION", value_name = "BOOL", default_value = "false")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub strict_notarization: bool,

    /// Options of the Verifier's client.
    #[command(flatten)]
    pub verifier: VerifierArgs,

    /// Options of what is judged besides images.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// The options of validation contradict each other, or do not make a Verifier client.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum ArgsError {
    /// Nobody could be asked, so every pod would be refused.
    #[snafu(display(
        "strict notarization (LUCID_STRICT_NOTARIZATION) needs a Verifier: set LUCID_VERIFIER_URL to its http or \
         https URL, or LUCID_VERIFIER_ALLOWLIST_FILE"
    ))]
    StrictWithoutVerifier,
    /// The client of the Verifier could not be made.
    #[snafu(transparent)]
    Verifier {
        /// Which option is wrong, and why.
        source: VerifierArgsError,
    },
    /// There is no policy.
    #[snafu(transparent)]
    Policy {
        /// What is wrong.
        source: PolicyArgsError,
    },
}

impl ValidationArgs {
    /// How pods are judged.
    ///
    /// # Errors
    ///
    /// When the exemptions cannot be read now.
    pub fn policy(&self) -> Result<Reread<Policy>, ArgsError> {
        let strictness = if self.strict_notarization { Strictness::Strict } else { Strictness::Lenient };
        Ok(self.policy.policy(strictness)?)
    }

    /// The client of the Verifier, if there is one.
    ///
    /// # Errors
    ///
    /// When one of its options is unusable, or it is missing where strictness needs it.
    pub fn verifier(&self, metrics: &Metrics) -> Result<Option<Verifier>, ArgsError> {
        let verifier = self.verifier.verifier(metrics)?;
        ensure!(verifier.is_some() || !self.strict_notarization, StrictWithoutVerifierSnafu);
        Ok(verifier)
    }
}
