//! Hosting of webhooks: [`run_operator`] and [`run_validator`] bind the ports, obtain a certificate as [`ServingArgs`]
//! configures, keep the webhooks registered, answer probes and drain connections at shutdown. [`rbac`] checks the RBAC
//! permissions for that.

mod args;
mod certificate_args;
mod certificates;
pub mod rbac;
mod run;
mod watches;

use kube::runtime::events::Reporter;
use lucid_audit::note::is_name;

pub use args::{ServingArgs, parse_webhook_url};
pub(crate) use certificate_args::parse_duration;
pub use certificate_args::{CertificateArgs, Source};
pub use run::{run_operator, run_validator};

/// Label of objects with the name of the program.
pub const NAME_LABEL: &str = "app.kubernetes.io/name";

/// Names of a process that serves webhooks.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Name of the webhook configurations, and field manager of their fields; with the suffixes `-ca`, `-tls` and
    /// `-cert`, name of the Secrets and of cert-manager's Certificate
    pub name: &'static str,
    /// Name of the Service in front of the process
    pub service: &'static str,
    /// Service that is registered instead if the certificate of another issuer is valid for it only
    pub alternative_service: Option<&'static str>,
}

/// The operator.
pub const OPERATOR: Program = Program {
    name: "lucid-operator",
    service: "lucid-operator-webhook",
    alternative_service: Some("lucid-operator"),
};
/// The validator in a process of its own.
pub const VALIDATOR: Program = Program {
    name: "lucid-validator",
    service: "lucid-validator-webhook",
    // A StatefulSet's headless Service has the program's name.
    alternative_service: None,
};

impl Program {
    /// Returns the reporter of the program's events.
    #[must_use]
    pub fn reporter(self) -> Reporter {
        Reporter { controller: self.name.to_owned(), instance: replica() }
    }
}

/// Returns the name of this replica: the pod's name, or else the host's.
pub(crate) fn replica() -> Option<String> {
    let named = ["POD_NAME", "HOSTNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    named.chain(host()).map(|name| name.trim().to_owned()).find(|name| is_name(name))
}
