//! Options of injection. Processes that inject chains and processes that validate them need the same values.

use std::num::NonZeroU16;

use lucid_chain::{AuditMode, Direction, Intercept, Overrides, SidecarMode, SkipPolicy};
use lucid_notary::ImageReference;

use lucid_admission::Settings;

/// What pods get when they do not say otherwise, and what wins over what they say.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Injection")]
pub struct InjectionArgs {
    /// The chain of pods whose annotations and namespace name none, such as `injection,toxicity`. The built-in
    /// default is lucid-guardrails-auditor twice.
    #[arg(long, env = "LUCID_CHAIN", value_name = "AUDITORS", value_delimiter = ',')]
    #[arg(value_parser = parse_auditor)]
    pub chain: Option<Vec<String>>,

    /// Audit mode of every pod, whatever its annotation says: enforce or observe. By default what the pod or else
    /// `auditors.yaml` says, or else enforce.
    #[arg(long, env = "LUCID_AUDIT_MODE", value_name = "MODE")]
    pub audit_mode: Option<AuditMode>,

    /// Port of the model in every pod, whatever its annotation says. By default what the pod or else `auditors.yaml` says,
    /// or else a port that the pod declares, or 5000.
    #[arg(long, env = "LUCID_TARGET_PORT", value_name = "PORT", value_parser = parse_port)]
    pub target_port: Option<NonZeroU16>,

    /// Traffic the chain stands in, in every pod, whatever its annotation says: inbound, outbound or both. By default what
    /// the pod or else `auditors.yaml` says, or else inbound.
    #[arg(long, env = "LUCID_DIRECTION", value_name = "DIRECTION")]
    pub direction: Option<Direction>,

    /// Kind of the auditors' containers in every pod, whatever its annotation says: auto, containers or native. By default
    /// what the pod or else `auditors.yaml` says, or else auto: native in pods that come to an end, such as those of Jobs.
    #[arg(long, env = "LUCID_SIDECAR_MODE", value_name = "MODE")]
    pub sidecar_mode: Option<SidecarMode>,

    /// How traffic comes to the chain in every pod, whatever its annotation says: redirect (by network rules, which
    /// need NET_ADMIN in an init container) or env. By default what the pod or else `auditors.yaml` says, or else redirect,
    /// but env where Pod Security refuses NET_ADMIN.
    #[arg(long, env = "LUCID_INTERCEPT", value_name = "INTERCEPT")]
    pub intercept: Option<Intercept>,

    /// Port of other hosts to which calls are taken to be calls of a model, for directions outbound and both. By
    /// default what `auditors.yaml` says, or else 8000.
    #[arg(long, env = "LUCID_OUTBOUND_PORT", value_name = "PORT", value_parser = parse_port)]
    pub outbound_port: Option<NonZeroU16>,

    /// Image of the init container that installs the network rules. By default that of this version.
    #[arg(long, env = "LUCID_INIT_IMAGE", value_name = "IMAGE")]
    pub init_image: Option<ImageReference>,

    /// Names of Secrets in the pods' namespaces with which the injected images are pulled, such as `registry,mirror`.
    /// By default none are added to what the pods have.
    #[arg(long, env = "LUCID_IMAGE_PULL_SECRETS", value_name = "NAMES", value_delimiter = ',')]
    #[arg(value_parser = parse_secret)]
    pub image_pull_secrets: Vec<String>,

    /// Honour the annotation `lucid.computing/skip-audit` in every pod.
    #[arg(long, env = "LUCID_ALLOW_SKIP", value_name = "BOOL", default_value = "false")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_skip: bool,

    /// Honour it only in pods that run under one of these service accounts, such as `team-a/batch,team-b/default`. Whoever
    /// may create pods in a namespace may run them under its service accounts. By default under none.
    #[arg(long, env = "LUCID_ALLOW_SKIP_SERVICE_ACCOUNTS", value_name = "ACCOUNTS", value_delimiter = ',')]
    #[arg(value_parser = parse_service_account, conflicts_with = "allow_skip")]
    pub allow_skip_service_accounts: Vec<String>,
}

impl InjectionArgs {
    /// Returns the settings for planning.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            chain: self.chain.clone(),
            overrides: Overrides {
                audit_mode: self.audit_mode,
                target_port: self.target_port,
                direction: self.direction,
                sidecar_mode: self.sidecar_mode,
                intercept: self.intercept,
                outbound_port: self.outbound_port,
            },
            skip: self.skip(),
            init_image: self.init_image.clone(),
            image_pull_secrets: self.image_pull_secrets.clone(),
        }
    }

    fn skip(&self) -> SkipPolicy {
        match &self.allow_skip_service_accounts {
            _ if self.allow_skip => SkipPolicy::Always,
            listed if listed.is_empty() => SkipPolicy::Never,
            listed => SkipPolicy::ServiceAccounts(listed.iter().cloned().collect()),
        }
    }
}

/// Unknown auditors are reported once the catalogue is known.
fn parse_auditor(text: &str) -> Result<String, &'static str> {
    let name = text.trim();
    if name.is_empty() {
        Err("accepted are auditors' names separated by commas")
    } else {
        Ok(name.to_owned())
    }
}

fn parse_secret(text: &str) -> Result<String, &'static str> {
    let name = text.trim();
    if is_name(name) { Ok(name.to_owned()) } else { Err("accepted are names of Secrets separated by commas") }
}

fn parse_service_account(text: &str) -> Result<String, &'static str> {
    let account = text.trim();
    match account.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => Ok(account.to_owned()),
        _ => Err("accepted are service accounts as namespace/name, separated by commas"),
    }
}

/// Returns `true` if `text` is a DNS subdomain (RFC 1123).
fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        ends(label.as_bytes().first())
            && ends(label.as_bytes().last())
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

fn parse_port(text: &str) -> Result<NonZeroU16, &'static str> {
    text.parse().map_err(|_| "accepted is 1 to 65535")
}
