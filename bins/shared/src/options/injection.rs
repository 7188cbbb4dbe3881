//! Options of injection. Processes that inject chains and processes that validate them need the same values.

use std::num::NonZeroU16;

use lucid_chain::{AuditMode, Direction, Intercept, Overrides, PortList, SidecarMode, SkipPolicy};
use lucid_notary::ImageReference;

use crate::names::{parse_namespace, parse_object_name};

use lucid_admission::ChainSettings;

/// Defaults for pods without their own settings, and overrides of pod annotations.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Injection")]
pub struct InjectionArgs {
    /// Chain of pods without one in their annotations or namespace, such as `injection,toxicity`. By default
    /// lucid-guardrails-auditor twice.
    #[arg(long, env = "LUCID_CHAIN", value_name = "AUDITORS", value_delimiter = ',')]
    #[arg(value_parser = parse_auditor)]
    pub chain: Option<Vec<String>>,

    /// Audit mode of all pods, overriding their annotations: enforce or observe. By default the pod's setting, then
    /// that of `auditors.yaml`, then enforce.
    #[arg(long, env = "LUCID_AUDIT_MODE", value_name = "MODE")]
    pub audit_mode: Option<AuditMode>,

    /// Model ports of all pods, such as 8080,8085, overriding their annotations. By default the pod's setting, then that
    /// of `auditors.yaml`, then the port that the pod's declared ports and probes single out, then 5000.
    #[arg(long, env = "LUCID_TARGET_PORT", value_name = "PORTS")]
    pub target_port: Option<PortList>,

    /// Direction of audited traffic in all pods, overriding their annotations: inbound, outbound or both. By default
    /// the pod's setting, then that of `auditors.yaml`, then inbound.
    #[arg(long, env = "LUCID_DIRECTION", value_name = "DIRECTION")]
    pub direction: Option<Direction>,

    /// Kind of auditor containers in all pods, overriding their annotations: auto, containers or native. By default the
    /// pod's setting, then that of `auditors.yaml`, then auto, which uses native sidecars in pods that run to
    /// completion, such as those of Jobs.
    #[arg(long, env = "LUCID_SIDECAR_MODE", value_name = "MODE")]
    pub sidecar_mode: Option<SidecarMode>,

    /// Redirection of traffic to the chain in all pods, overriding their annotations: redirect (network rules, which
    /// need NET_ADMIN in an init container) or env. By default the pod's setting, then that of `auditors.yaml`, then
    /// redirect, or env if Pod Security forbids NET_ADMIN.
    #[arg(long, env = "LUCID_INTERCEPT", value_name = "INTERCEPT")]
    pub intercept: Option<Intercept>,

    /// Port of other hosts that identifies model calls, for directions outbound and both. By default the setting of
    /// `auditors.yaml`, then 8000.
    #[arg(long, value_name = "PORT", value_parser = parse_port)]
    pub outbound_port: Option<NonZeroU16>,

    /// Image of the init container that installs the network rules. By default the image of this version.
    #[arg(long, env = "LUCID_INIT_IMAGE", value_name = "IMAGE")]
    pub init_image: Option<ImageReference>,

    /// Image of lucid-egress, the last hop of outbound traffic, unless `auditors.yaml` names one. By default the image of
    /// this version.
    #[arg(long, env = "LUCID_EGRESS_IMAGE", value_name = "IMAGE")]
    pub egress_image: Option<ImageReference>,

    /// Secrets in the pods' namespaces to pull the injected images with, such as `registry,mirror`. By default none are
    /// added to those of the pod.
    #[arg(long, env = "LUCID_IMAGE_PULL_SECRETS", value_name = "NAMES", value_delimiter = ',')]
    #[arg(value_parser = parse_secret)]
    pub image_pull_secrets: Vec<String>,

    /// Pods in which the annotation `lucid.computing/skip-audit` is honoured: true for all, false for none, or the
    /// service accounts under which they run, such as `team-a/batch,team-b/default`. Users who may create pods in a
    /// namespace may use any of its service accounts.
    #[arg(long, env = "LUCID_ALLOW_SKIP", value_name = "PODS", default_value = "false", value_parser = parse_skip)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_skip: SkipPolicy,
}

impl InjectionArgs {
    /// Returns the settings for planning.
    #[must_use]
    pub fn settings(&self) -> ChainSettings {
        ChainSettings {
            chain: self.chain.clone(),
            overrides: Overrides {
                audit_mode: self.audit_mode,
                target_port: self.target_port,
                direction: self.direction,
                sidecar_mode: self.sidecar_mode,
                intercept: self.intercept,
                outbound_port: self.outbound_port,
            },
            skip: self.allow_skip.clone(),
            init_image: self.init_image.clone(),
            egress_image: self.egress_image.clone(),
            image_pull_secrets: self.image_pull_secrets.clone(),
        }
    }
}

/// Unknown auditors are reported once the catalogue is known.
fn parse_auditor(text: &str) -> Result<String, &'static str> {
    let name = text.trim();
    if name.is_empty() { Err("expected auditors' names separated by commas") } else { Ok(name.to_owned()) }
}

fn parse_secret(text: &str) -> Result<String, &'static str> {
    let name = text.trim();
    parse_object_name(name).map_err(|_| "expected names of Secrets separated by commas")
}

fn parse_skip(text: &str) -> Result<SkipPolicy, &'static str> {
    let account = |text: &str| {
        let (namespace, name) = text.trim().split_once('/')?;
        Some(format!("{}/{}", parse_namespace(namespace).ok()?, parse_object_name(name).ok()?))
    };
    match text {
        "true" => Ok(SkipPolicy::Always),
        "false" => Ok(SkipPolicy::Never),
        accounts => accounts
            .split(',')
            .map(account)
            .collect::<Option<_>>()
            .map(SkipPolicy::ServiceAccounts)
            .ok_or("expected true, false or service accounts as namespace/name, separated by commas"),
    }
}

fn parse_port(text: &str) -> Result<NonZeroU16, &'static str> {
    text.parse().map_err(|_| "expected 1 to 65535")
}
