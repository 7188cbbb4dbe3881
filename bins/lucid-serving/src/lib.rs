//! What Lucid processes that serve webhooks do the same way.
//!
//! [`Host`] takes the ports, has a certificate from wherever [`ServingArgs`] says, keeps the webhooks registered, answers
//! the probes and ends with a lame duck. [`rights`] knows what that takes of the cluster's RBAC. What the webhooks answer is for each process to say.

mod args;
mod certificates;
mod host;
mod registration;
pub mod rights;
mod watches;

use kube::runtime::events::Reporter;

pub use args::{ServingArgs, parse_webhook_url};
pub use certificates::{CertificateArgs, CertificatesError, Source};
pub use host::{Host, HostError, registry};
pub use registration::NAME_LABEL;

/// A process that serves webhooks: what everything about it is called.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its webhook configurations, and the owner of the fields in them; with `-ca`, `-tls` and `-cert` the Secrets and
    /// cert-manager's Certificate
    pub name: &'static str,
    /// The Service in front of it
    pub service: &'static str,
}

impl Program {
    /// Who reports its events.
    #[must_use]
    pub fn reporter(self) -> Reporter {
        Reporter { controller: self.name.to_owned(), instance: std::env::var("HOSTNAME").ok() }
    }
}
