//! Hosting of webhooks: [`Host`] binds the ports, obtains a certificate as [`ServingArgs`] configures, keeps the webhooks
//! registered, answers probes and drains connections at shutdown. [`rbac`] checks the RBAC permissions for that.

mod args;
mod certificates;
mod error;
mod host;
pub mod rbac;
mod registration;
mod watches;

use kube::runtime::events::Reporter;

pub use args::{ServingArgs, parse_webhook_url};
pub use certificates::{CertificateArgs, CertificatesError, Source};
pub use error::RunError;
pub use host::{Host, HostError, registry};
pub use registration::NAME_LABEL;

/// Names of a process that serves webhooks.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Name of the webhook configurations, and field manager of their fields; with the suffixes `-ca`, `-tls` and
    /// `-cert`, name of the Secrets and of cert-manager's Certificate
    pub name: &'static str,
    /// Name of the Service in front of the process
    pub service: &'static str,
}

/// The operator.
pub const OPERATOR: Program = Program { name: "lucid-operator", service: "lucid-operator-webhook" };
/// The validator in a process of its own.
pub const VALIDATOR: Program = Program { name: "lucid-validator", service: "lucid-validator-webhook" };

impl Program {
    /// Returns the reporter of the program's events.
    #[must_use]
    pub fn reporter(self) -> Reporter {
        Reporter { controller: self.name.to_owned(), instance: std::env::var("HOSTNAME").ok() }
    }
}
