//! What the operator is told at start.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use lucid_certs::{NamesError, ServingNames};
use lucid_chain::{AuditMode, Direction};
use lucid_validator::{Scope, ValidationArgs};
use lucid_webhook::registration::{Configurations, Endpoint};
use url::Url;

use crate::certificates::CertificateArgs;
use crate::registration::{Calls, FailurePolicy, NAME, SERVICE};

/// The options of `lucid-operator run`. Each has an environment variable; a flag wins over it.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// The namespace the operator runs in: its Secret, its catalogue and its Service are there, and its pods are
    /// never touched.
    #[arg(long, env = "LUCID_NAMESPACE", value_name = "NAME", default_value = "lucid-system")]
    #[arg(value_parser = parse_namespace)]
    pub(crate) namespace: String,

    /// Where the webhooks are served, over TLS.
    #[arg(long, env = "LUCID_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    #[arg(value_parser = lucid_process::parse_address)]
    pub(crate) listen: SocketAddr,

    /// Where /healthz, /readyz and /metrics are served, over plain HTTP.
    #[arg(long, env = "LUCID_ADMIN_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    #[arg(value_parser = lucid_process::parse_address)]
    pub(crate) admin_listen: SocketAddr,

    /// How long to go on serving after SIGTERM, in seconds, so that API servers learn that this replica goes away.
    #[arg(long, env = "LUCID_LAME_DUCK_SECONDS", value_name = "SECONDS", default_value = "5")]
    #[arg(value_parser = lucid_process::within(0_u64..=300))]
    pub(crate) lame_duck_seconds: u64,

    /// Also append every decision to this file, one line of JSON each.
    #[arg(long, env = "LUCID_DECISION_LOG", value_name = "FILE")]
    pub(crate) decision_log: Option<PathBuf>,

    /// Options of registration.
    #[command(flatten)]
    pub(crate) registration: RegistrationArgs,

    /// Options of certificates.
    #[command(flatten)]
    pub(crate) certificates: CertificateArgs,

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
    /// Register the webhooks under this https URL instead of the Service `lucid-operator-webhook`; for an operator
    /// that runs outside the cluster. The serving certificate then covers its host as well.
    #[arg(long, env = "LUCID_WEBHOOK_URL", value_name = "URL", value_parser = parse_webhook_url)]
    pub(crate) webhook_url: Option<Url>,

    /// What happens to pods of enabled namespaces while the mutating webhook cannot be asked. With Ignore pods may
    /// run without audit. The validating webhook is always Fail.
    #[arg(long, env = "LUCID_FAILURE_POLICY", value_name = "POLICY", default_value = "Fail")]
    pub(crate) failure_policy: FailurePolicy,

    /// How long the API server waits for an answer, in seconds.
    #[arg(long, env = "LUCID_WEBHOOK_TIMEOUT_SECONDS", value_name = "SECONDS", default_value = "10")]
    #[arg(value_parser = lucid_process::within(2_i32..=30))]
    pub(crate) webhook_timeout_seconds: i32,
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

/// A DNS label (RFC 1123), as the API server wants a namespace to be called.
pub(crate) fn parse_namespace(text: &str) -> Result<String, &'static str> {
    const ACCEPTED: &str = "accepted are 1 to 63 of a-z, 0-9 and '-', with a letter or digit at both ends";
    if is_dns_label(text) { Ok(text.to_owned()) } else { Err(ACCEPTED) }
}

/// A DNS subdomain (RFC 1123), as the API server wants most objects to be called.
pub(crate) fn parse_object_name(text: &str) -> Result<String, &'static str> {
    const ACCEPTED: &str = "accepted are up to 253 characters: labels of a-z, 0-9 and '-', joined by '.'";
    let is_name = text.len() <= 253 && text.split('.').all(is_dns_label);
    if is_name { Ok(text.to_owned()) } else { Err(ACCEPTED) }
}

fn is_dns_label(text: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = text.bytes().next().zip(text.bytes().next_back());
    text.len() <= 63
        && ends.is_some_and(|(first, last)| is_alphanumeric(first) && is_alphanumeric(last))
        && text.bytes().all(|byte| is_alphanumeric(byte) || byte == b'-')
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

fn parse_webhook_url(text: &str) -> Result<Url, String> {
    const ACCEPTED: &str = "accepted is https://HOST[:PORT][/PATH] without user, query and fragment";
    let url: Url = text.parse().map_err(|error| format!("{error}; {ACCEPTED}"))?;
    let plain = url.username().is_empty() && url.password().is_none();
    let names = |host: String| ServingNames::for_services("default", &[SERVICE])?.with_host(&host);
    if url.scheme() != "https"
        || host_of(&url).is_none_or(|host| names(host).is_err())
        || !plain
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err(ACCEPTED.to_owned());
    }
    Ok(url)
}

/// The host of a URL, an IPv6 address without its brackets.
fn host_of(url: &Url) -> Option<String> {
    match url.host()? {
        url::Host::Ipv6(address) => Some(address.to_string()),
        host => Some(host.to_string()),
    }
}

impl RunArgs {
    /// What a serving certificate is for that covers these Services, and the host under which the operator is registered.
    pub(crate) fn serving_names(&self, services: &[&str]) -> Result<ServingNames, NamesError> {
        let names = ServingNames::for_services(&self.namespace, services)?;
        match self.registration.webhook_url.as_ref().and_then(host_of) {
            Some(host) => names.with_host(&host),
            None => Ok(names),
        }
    }

    /// The registration of the webhooks, but for what they are called for.
    pub(crate) fn configurations(&self) -> Configurations {
        let endpoint = match &self.registration.webhook_url {
            Some(url) => Endpoint::Url(url.to_string()),
            None => Endpoint::service(&self.namespace, SERVICE),
        };
        let configurations = Configurations::new(NAME, endpoint).with_label("app.kubernetes.io/name", NAME);
        match self.certificates.annotation(&self.namespace) {
            Some((key, value)) => configurations.with_annotation(key, value),
            None => configurations,
        }
    }

    /// What the webhooks are called for.
    #[must_use]
    pub(crate) fn calls(&self) -> Calls {
        Calls {
            scope: Scope::new(&self.namespace),
            failure_policy: self.registration.failure_policy,
            timeout_seconds: self.registration.webhook_timeout_seconds,
        }
    }

    /// How long to serve after SIGTERM.
    #[must_use]
    pub(crate) const fn lame_duck(&self) -> Duration {
        Duration::from_secs(self.lame_duck_seconds)
    }
}
