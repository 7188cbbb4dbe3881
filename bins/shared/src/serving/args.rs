//! Options of a process that serves webhooks.

use std::net::SocketAddr;
use std::time::Duration;

use lucid_certs::ServingNames;
use lucid_webhook::registration::{Configurations, Endpoint};
use url::Url;

use crate::serving::certificate_args::CertificateArgs;
use crate::serving::{NAME_LABEL, Program};

/// Options of a process that serves webhooks, to be flattened into a program's arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct ServingArgs {
    /// Namespace of this process, its Secrets, its Service and the auditor catalogue. Pods in it are never changed or
    /// validated.
    #[arg(long, env = "LUCID_NAMESPACE", value_name = "NAME", default_value = "lucid-system")]
    #[arg(value_parser = crate::parse_namespace)]
    pub namespace: String,

    /// Address on which the webhooks are served over TLS.
    #[arg(long, env = "LUCID_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    #[arg(value_parser = crate::parse_address)]
    pub listen: SocketAddr,

    /// Address on which /healthz, /readyz and /metrics are served over plain HTTP.
    #[arg(long, env = "LUCID_ADMIN_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    #[arg(value_parser = crate::parse_address)]
    pub admin_listen: SocketAddr,

    /// Seconds to keep serving after SIGTERM, until API servers stop calling this replica.
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    #[arg(value_parser = crate::within(0_u64..=300))]
    pub lame_duck_seconds: u64,

    /// Register the webhooks under this https URL instead of the Service, for a process outside the cluster. The
    /// serving certificate then also covers the host of the URL.
    #[arg(long, env = "LUCID_WEBHOOK_URL", value_name = "URL", value_parser = parse_webhook_url)]
    #[arg(help_heading = "Registration")]
    pub webhook_url: Option<Url>,

    /// Timeout of webhook calls in seconds. A request to a hanging replica waits this long.
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    #[arg(value_parser = crate::within(2_i32..=30))]
    #[arg(help_heading = "Registration")]
    pub webhook_timeout_seconds: i32,

    /// Options of certificates.
    #[command(flatten)]
    pub certificates: CertificateArgs,
}

/// Parses the URL under which webhooks are registered, for clap's `value_parser`.
///
/// # Errors
///
/// Returns an error if the API server would reject the URL or its host cannot be in a certificate.
pub fn parse_webhook_url(text: &str) -> Result<Url, String> {
    const EXPECTED: &str = "expected https://HOST[:PORT][/PATH] without user, query and fragment";
    let url: Url = text.parse().map_err(|error| format!("{error}, {EXPECTED}"))?;
    let plain = url.username().is_empty() && url.password().is_none();
    let names = |host: String| ServingNames::for_services("default", &["webhook"])?.with_host(&host);
    if url.scheme() != "https"
        || host_of(&url).is_none_or(|host| names(host).is_err())
        || !plain
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err(EXPECTED.to_owned());
    }
    Ok(url)
}

fn host_of(url: &Url) -> Option<String> {
    match url.host()? {
        url::Host::Ipv6(address) => Some(address.to_string()),
        host => Some(host.to_string()),
    }
}

impl ServingArgs {
    /// Names of a serving certificate for these Services and the host of the webhook URL.
    pub(crate) fn serving_names(&self, services: &[&str]) -> Result<ServingNames, lucid_certs::Error> {
        let names = ServingNames::for_services(&self.namespace, services)?;
        match self.webhook_url.as_ref().and_then(host_of) {
            Some(host) => names.with_host(&host),
            None => Ok(names),
        }
    }

    /// Returns the registration of the webhooks, without their rules.
    pub fn configurations(&self, program: Program) -> Configurations {
        let endpoint = match &self.webhook_url {
            Some(url) => Endpoint::url(url.to_string()),
            None => Endpoint::service(&self.namespace, program.service),
        };
        let configurations = Configurations::new(program.name, endpoint)
            .with_label(NAME_LABEL, program.name)
            // Otherwise AKS adds a namespaceSelector to the webhooks, which the registration removes again.
            .with_label("admissions.enforcer/disabled", "true");
        match self.certificates.annotation(program, &self.namespace) {
            Some((key, value)) => configurations.with_annotation(key, value),
            None => configurations,
        }
    }

    pub(crate) const fn lame_duck(&self) -> Duration {
        Duration::from_secs(self.lame_duck_seconds)
    }
}
