//! Endpoints of webhook servers.

use http::Uri;
use snafu::ensure;

use super::{RegistrationError, RegistrationSnafu};
use crate::names::is_dns_label;

/// Endpoint of the webhook server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Endpoint {
    /// A Service. The serving certificate needs the DNS name `<name>.<namespace>.svc`.
    Service {
        /// Namespace of the Service.
        namespace: String,
        /// Name of the Service.
        name: String,
        /// Port of the Service.
        port: u16,
    },
    /// A URL `https://host[:port][/path]`, to which the webhook's path is appended; for a server outside of the
    /// cluster.
    Url(String),
}

impl Endpoint {
    /// Port 443 of a Service.
    #[must_use]
    pub fn service(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self::Service { namespace: namespace.into(), name: name.into(), port: 443 }
    }

    pub(super) fn validate(&self) -> Result<(), RegistrationError> {
        match self {
            Self::Service { namespace, name, port } => {
                let is_valid = is_dns_label(namespace) && is_dns_label(name) && *port != 0;
                ensure!(
                    is_valid,
                    RegistrationSnafu {
                        problem: format!(
                            "service {namespace}/{name}, port {port}: accepted are names and a port from 1 to 65535"
                        )
                    }
                );
            }
            Self::Url(url) => {
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
                            "URL {url:?}: accepted is https://host[:port][/path], without user, query and fragment"
                        )
                    }
                );
            }
        }
        Ok(())
    }
}
