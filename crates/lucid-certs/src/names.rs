//! The names a serving certificate carries

use std::net::IpAddr;

use rustls::pki_types::{DnsName, ServerName};
use snafu::{OptionExt, Snafu, ensure};

/// Why a name was refused
#[derive(Debug, Snafu, PartialEq, Eq)]
#[non_exhaustive]
pub enum NamesError {
    /// No Service was named
    #[snafu(display("failed to name the server: at least one Service is expected"))]
    NoService,
    /// No host was named
    #[snafu(display("failed to name the server: at least one host is expected"))]
    NoHost,
    /// The name of a Service or namespace is not one Kubernetes knows
    #[snafu(display(
        "failed to accept {name:?} as the name of a {what}: 1 to 63 lower-case letters, digits and \
         inner dashes are accepted (RFC 1123 label)"
    ))]
    Label {
        /// `Service` or `namespace`
        what: &'static str,
        /// What was given
        name: String,
    },
    /// A host is neither a DNS name nor an IP address
    #[snafu(display(
        "failed to accept {host:?} as a host: a DNS name without wildcard and trailing dot, or an IP \
         address without brackets and port, is accepted"
    ))]
    Host {
        /// What was given
        host: String,
    },
}

/// The DNS names and IP addresses under which a server is called, without duplicates, in the order
/// they were added.
///
/// An API server calls a webhook registered by Service as `<service>.<namespace>.svc`, whatever
/// address it dials (`clientConfig.service`); one registered by URL under the URL's host
/// (`clientConfig.url`). So begin with [`for_services`](Self::for_services) for a server behind a Service, and add the
/// hosts of URLs [to it](Self::with_host), if it is called by these too; and with [`for_hosts`](Self::for_hosts) for one
/// that is called by URL alone, outside of the cluster as a rule.
///
/// ```
/// use lucid_certs::ServingNames;
///
/// let names = ServingNames::for_services("lucid-system", &["lucid-operator"])?.with_host("127.0.0.1")?;
/// assert_eq!(
///     names.dns_names().collect::<Vec<_>>(),
///     [
///         "lucid-operator",
///         "lucid-operator.lucid-system",
///         "lucid-operator.lucid-system.svc",
///         "lucid-operator.lucid-system.svc.cluster.local",
///     ],
/// );
/// assert_eq!(names.ip_addresses(), ["127.0.0.1".parse::<std::net::IpAddr>()?]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServingNames {
    common_name: String,
    dns_names: Vec<DnsName<'static>>,
    ip_addresses: Vec<IpAddr>,
    /// Those of them that an API server calls
    called: Vec<ServerName<'static>>,
}

impl ServingNames {
    /// The names under which a cluster resolves the Services of one namespace: each bare, and with
    /// `.<namespace>`, `.<namespace>.svc` and `.<namespace>.svc.cluster.local` behind it.
    ///
    /// # Errors
    ///
    /// When there is no Service, or the name of one or of the namespace is not an RFC 1123 label.
    pub fn for_services(namespace: &str, services: &[&str]) -> Result<Self, NamesError> {
        check_label("namespace", namespace)?;
        let first = services.first().context(NoServiceSnafu)?;
        let mut names = Self::none(first);
        for service in services {
            check_label("Service", service)?;
            names.add(service)?;
            names.add(&format!("{service}.{namespace}"))?;
            let called = names.add(&format!("{service}.{namespace}.svc"))?;
            names.called.push(called);
            names.add(&format!("{service}.{namespace}.svc.cluster.local"))?;
        }
        Ok(names)
    }

    /// The hosts of the URLs by which a server is called that has no Service: DNS names or IP addresses.
    ///
    /// # Errors
    ///
    /// When there is no host, and as [`with_host`](Self::with_host).
    ///
    /// ```
    /// use lucid_certs::ServingNames;
    ///
    /// let names = ServingNames::for_hosts(&["127.0.0.1"])?; // https://127.0.0.1:8443/validate
    /// # assert_eq!(names.ip_addresses(), ["127.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
    /// # Ok::<(), lucid_certs::NamesError>(())
    /// ```
    pub fn for_hosts(hosts: &[&str]) -> Result<Self, NamesError> {
        let first = hosts.first().context(NoHostSnafu)?;
        hosts.iter().try_fold(Self::none(first), |names, host| names.with_host(host))
    }

    /// 64 characters is the limit of a common name. It tells people which server this is; nothing is verified by it.
    fn none(common_name: &str) -> Self {
        Self {
            common_name: common_name.chars().take(64).collect(),
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            called: Vec::new(),
        }
    }

    /// Adds a DNS name or an IP address, for webhooks that are registered by URL.
    ///
    /// # Errors
    ///
    /// When the host is neither; a URL's host as `[::1]` must come without its brackets.
    pub fn with_host(mut self, host: &str) -> Result<Self, NamesError> {
        let called = self.add(host)?;
        if !self.called.contains(&called) {
            self.called.push(called);
        }
        Ok(self)
    }

    fn add(&mut self, host: &str) -> Result<ServerName<'static>, NamesError> {
        let name = ServerName::try_from(host.to_ascii_lowercase()).ok().context(HostSnafu { host })?;
        match &name {
            ServerName::DnsName(name) if !name.as_ref().ends_with('.') => {
                if !self.dns_names.contains(name) {
                    self.dns_names.push(name.clone());
                }
            }
            ServerName::IpAddress(address) => {
                let address = IpAddr::from(*address);
                if !self.ip_addresses.contains(&address) {
                    self.ip_addresses.push(address);
                }
            }
            _ => return HostSnafu { host }.fail(),
        }
        Ok(name)
    }

    /// The DNS names, in lower case
    pub fn dns_names(&self) -> impl Iterator<Item = &str> {
        self.dns_names.iter().map(AsRef::as_ref)
    }

    /// The IP addresses
    #[must_use]
    pub fn ip_addresses(&self) -> &[IpAddr] {
        &self.ip_addresses
    }

    /// The first Service, or of the first host as much as fits
    pub(crate) fn common_name(&self) -> &str {
        &self.common_name
    }

    /// Under which API servers call: of each Service `<service>.<namespace>.svc`, and the hosts of URLs
    #[cfg(feature = "runtime")]
    pub(crate) fn called(&self) -> impl Iterator<Item = &ServerName<'static>> {
        self.called.iter()
    }

    /// What a client may ask for
    pub(crate) fn server_names(&self) -> impl Iterator<Item = ServerName<'static>> {
        let dns_names = self.dns_names.iter().cloned().map(ServerName::DnsName);
        dns_names.chain(self.ip_addresses.iter().map(|ip| ServerName::IpAddress((*ip).into())))
    }
}

fn check_label(what: &'static str, name: &str) -> Result<(), NamesError> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let valid = (1..=63).contains(&name.len())
        && name.chars().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-');
    ensure!(valid, LabelSnafu { what, name });
    Ok(())
}
