use std::path::PathBuf;
use std::time::Duration;

use lucid_audit::{OpenError, Recorder};
use lucid_notary::client::{BuildError, HttpVerifier};
use lucid_policy::{Policy, Strictness};
use snafu::{ResultExt, Snafu};

use crate::policy_args::{PolicyArgs, PolicyArgsError};

/// The options of validation, to be flattened into a binary's own arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Validation")]
pub struct ValidationArgs {
    /// Refuse pods whose auditor images carry no digest, or one that the Verifier does not know as notarized, or
    /// when it cannot be asked. Without it, each of these is a warning. Needs --verifier-url.
    #[arg(long, env = "LUCID_STRICT_NOTARIZATION", value_name = "BOOL", default_value = "false")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub strict_notarization: bool,

    /// The Verifier: where `/registry/check?digest=` is asked, such as `http://lucid-verifier.lucid-system.svc:8080`.
    /// Without it no digest can be verified.
    #[arg(long, env = "LUCID_VERIFIER_URL", value_name = "URL")]
    pub verifier_url: Option<String>,

    /// How long one answer of the Verifier may take, in milliseconds.
    #[arg(long, env = "LUCID_VERIFIER_TIMEOUT_MS", value_name = "MILLISECONDS", default_value = "2000")]
    #[arg(value_parser = lucid_process::within(1_u64..=30_000))]
    pub verifier_timeout_ms: u64,

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
         https URL"
    ))]
    StrictWithoutVerifier,
    /// The client could not be made.
    #[snafu(display("failed to use LUCID_VERIFIER_URL: {source}"))]
    Verifier {
        /// What is wrong. The URL is not quoted: it may hold a password.
        source: BuildError,
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
    /// When the exemptions cannot be read.
    pub fn policy(&self) -> Result<Policy, ArgsError> {
        let strictness = if self.strict_notarization { Strictness::Strict } else { Strictness::Lenient };
        Ok(self.policy.policy(strictness)?)
    }

    /// The client of the Verifier, if there is one.
    ///
    /// # Errors
    ///
    /// When the URL is unusable, or missing where strictness needs it.
    pub fn verifier(&self) -> Result<Option<HttpVerifier>, ArgsError> {
        let Some(url) = &self.verifier_url else {
            return if self.strict_notarization { StrictWithoutVerifierSnafu.fail() } else { Ok(None) };
        };
        let builder = HttpVerifier::builder(url).timeout(Duration::from_millis(self.verifier_timeout_ms));
        builder.build().context(VerifierSnafu).map(Some)
    }
}

/// How many decisions stay in memory.
const RECENT_DECISIONS: usize = 1000;

/// Where decisions are kept, to be flattened into a binary's own arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Record")]
pub struct DecisionArgs {
    /// Also append every decision to this file, one line of JSON each. By default the last 1,000 are kept in memory only.
    #[arg(long, env = "LUCID_DECISION_LOG", value_name = "FILE")]
    pub decision_log: Option<PathBuf>,
}

/// The file for decisions cannot be written.
#[derive(Debug, Snafu)]
#[snafu(display("LUCID_DECISION_LOG: {source}"))]
pub struct DecisionLogError {
    source: OpenError,
}

impl DecisionArgs {
    /// What keeps decisions.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened.
    pub fn recorder(&self) -> Result<Recorder, DecisionLogError> {
        let recorder = Recorder::new(RECENT_DECISIONS);
        match &self.decision_log {
            Some(path) => recorder.with_file(path).context(DecisionLogSnafu),
            None => Ok(recorder),
        }
    }
}
