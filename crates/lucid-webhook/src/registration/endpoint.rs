//! Endpoints of webhook servers.

use http::Uri;
#[cfg(feature = "operator")]
use lucid_certs::ServingNames;
use snafu::ensure;

use super::{RegistrationError, RegistrationSnafu};
use lucid_text::names::is_dns_label;

/// Endpoint of the webhook server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(pub(super) Address);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Service { namespace: String, name: String, port: u16 },
    Url(String),
}

impl Endpoint {
    /// Port 443 of a Service. The serving certificate needs the DNS name `<name>.<namespace>.svc`.
    #[must_use]
    pub fn service(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self(Address::Service { namespace: namespace.into(), name: name.into(), port: 443 })
    }

    /// A URL `https://host[:port][/path]`, to which the webhook's path is appended; for a server outside of the
    /// cluster.
    #[must_use]
    pub fn url(url: impl Into<String>) -> Self {
        Self(Address::Url(url.into()))
    }

    /// Sets the port of the Service. A URL contains its own.
    #[must_use]
    pub fn with_port(mut self, number: u16) -> Self {
        if let Address::Service { port, .. } = &mut self.0 {
            *port = number;
        }
        self
    }

    #[cfg(feature = "operator")]
    pub(super) fn serving_names(&self) -> Result<ServingNames, lucid_certs::Error> {
        match &self.0 {
            Address::Service { namespace, name, .. } => ServingNames::for_services(namespace, &[name]),
            Address::Url(url) => {
                let uri = url.parse::<Uri>().unwrap_or_default();
                let host = uri.host().unwrap_or(url);
                ServingNames::for_hosts(&[host.trim_matches(['[', ']'])])
            }
        }
    }

    pub(super) fn validate(&self) -> Result<(), RegistrationError> {
        match &self.0 {
            Address::Service { namespace, name, port } => {
                let is_valid = is_dns_label(namespace) && is_dns_label(name) && *port != 0;
                ensure!(
                    is_valid,
                    RegistrationSnafu {
                        problem: format!(
                            "service {namespace}/{name}, port {port}: expected names and a port from 1 to 65535"
                        )
                    }
                );
            }
            Address::Url(url) => {
                let is_valid = url.parse::<Uri>().is_ok_and(|uri| {
                    let authority = uri.authority().map(|authority| authority.as_str());
                    uri.scheme_str() == Some("https")
                        && uri.host().is_some_and(|host| !host.is_empty())
                        && authority.is_some_and(|authority| !authority.contains('@'))
                });
                ensure!(
                    is_valid && !url.contains(['?', '#']),
                    RegistrationSnafu {
                        problem: format!(
                            "URL {url:?}: expected https://host[:port][/path], without user, query and fragment"
                        )
                    }
                );
            }
        }
        Ok(())
    }
}
