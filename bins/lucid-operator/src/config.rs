//! What the operator is told at start.

use std::num::NonZeroU16;

use lucid_chain::{AuditMode, Direction};
use lucid_serving::ServingArgs;
use lucid_validator::{DecisionArgs, ValidationArgs};

use crate::registration::FailurePolicy;

/// The options of `lucid-operator run`. Each has an environment variable; a flag wins over it.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// Options of serving.
    #[command(flatten)]
    pub(crate) serving: ServingArgs,

    /// Options of the record.
    #[command(flatten)]
    pub(crate) decisions: DecisionArgs,

    /// Options of registration.
    #[command(flatten)]
    pub(crate) registration: RegistrationArgs,

    /// Options of injection.
    #[command(flatten)]
    pub(crate) injection: InjectionArgs,

    /// Options of validation.
    #[command(flatten)]
    pub(crate) validation: ValidationArgs,
}

/// How the API server is told of the webhooks.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Registration")]
pub(crate) struct RegistrationArgs {
    /// What happens to pods of enabled namespaces while the mutating webhook cannot be asked. With Ignore pods may
    /// run without audit. The validating webhook is always Fail.
    #[arg(long, env = "LUCID_FAILURE_POLICY", value_name = "POLICY", default_value = "Fail")]
    pub(crate) failure_policy: FailurePolicy,

    /// Register the validating webhook too. With false that is left to `lucid-validator run`, which has to run then.
    #[arg(long, env = "LUCID_VALIDATE", value_name = "BOOL", default_value = "true")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) validate: bool,
}

/// What pods get when they do not say otherwise, and what wins over what they say.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Injection")]
pub(crate) struct InjectionArgs {
    /// The chain of pods whose annotations and namespace name none, such as `injection,toxicity`. The built-in
    /// default is lucid-guardrails-auditor twice.
    #[arg(long, env = "LUCID_CHAIN", value_name = "AUDITORS", value_delimiter = ',')]
    #[arg(value_parser = parse_auditor)]
    pub(crate) chain: Option<Vec<String>>,

    /// Audit mode of every pod, whatever its annotation says: enforce or observe.
    #[arg(long, env = "LUCID_AUDIT_MODE", value_name = "MODE")]
    pub(crate) audit_mode: Option<AuditMode>,

    /// Port of the model in every pod, whatever its annotation says.
    #[arg(long, env = "LUCID_TARGET_PORT", value_name = "PORT", value_parser = parse_port)]
    pub(crate) target_port: Option<NonZeroU16>,

    /// Traffic the chain stands in, in every pod, whatever its annotation says: inbound, outbound or both.
    #[arg(long, env = "LUCID_DIRECTION", value_name = "DIRECTION")]
    pub(crate) direction: Option<Direction>,

    /// Honour the annotation `lucid.computing/skip-audit`.
    #[arg(long, env = "LUCID_ALLOW_SKIP", value_name = "BOOL", default_value = "false")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) allow_skip: bool,
}

/// Whether there is such an auditor shows when the catalogue is known.
fn parse_auditor(text: &str) -> Result<String, &'static str> {
    let name = text.trim();
    if name.is_empty() {
        Err("accepted are auditors' names separated by commas")
    } else {
        Ok(name.to_owned())
    }
}

fn parse_port(text: &str) -> Result<NonZeroU16, &'static str> {
    text.parse().map_err(|_| "accepted is 1 to 65535")
}
