//! Names of a server in its certificate.

use std::net::IpAddr;

use rustls::pki_types::{DnsName, ServerName};

use crate::error::Error;

/// DNS names and IP addresses by which a server is called, without duplicates, in the order in which they
/// were added.
///
/// An API server calls a webhook registered by Service (`clientConfig.service`) as
/// `<service>.<namespace>.svc`, regardless of the address that it dials. It calls a webhook registered by URL
/// (`clientConfig.url`) by the host of the URL. For a server behind a Service, start with
/// [`for_services`](Self::for_services) and [add](Self::with_host) the hosts of URLs, if any. For a server
/// that is called by URL only, typically outside of the cluster, use [`for_hosts`](Self::for_hosts).
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
    /// Subset of the names by which API servers call.
    called: Vec<ServerName<'static>>,
}

impl ServingNames {
    /// Creates the names of Services in one namespace: each Service bare and with the suffixes
    /// `.<namespace>`, `.<namespace>.svc` and `.<namespace>.svc.cluster.local`.
    ///
    /// # Errors
    ///
    /// Returns an error if `services` is empty, or if a Service or the namespace is not an RFC 1123 label.
    pub fn for_services(namespace: &str, services: &[&str]) -> Result<Self, Error> {
        check_label("namespace", namespace)?;
        let problem = "failed to name the server: at least one Service is expected";
        let first = services.first().ok_or_else(|| Error::new(problem))?;
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

    /// Creates the names of a server without a Service, from the hosts of its URLs: DNS names or IP
    /// addresses.
    ///
    /// # Errors
    ///
    /// Returns an error if `hosts` is empty, or if a host is invalid; see [`with_host`](Self::with_host).
    ///
    /// ```
    /// use lucid_certs::ServingNames;
    ///
    /// let names = ServingNames::for_hosts(&["127.0.0.1"])?; // https://127.0.0.1:8443/validate
    /// # assert_eq!(names.ip_addresses(), ["127.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
    /// # Ok::<(), lucid_certs::Error>(())
    /// ```
    pub fn for_hosts(hosts: &[&str]) -> Result<Self, Error> {
        let problem = "failed to name the server: at least one host is expected";
        let first = hosts.first().ok_or_else(|| Error::new(problem))?;
        hosts.iter().try_fold(Self::none(first), |names, host| names.with_host(host))
    }

    /// Creates an empty set. The common name is limited to 64 characters; it is informational and never
    /// verified.
    fn none(common_name: &str) -> Self {
        Self {
            common_name: common_name.chars().take(64).collect(),
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            called: Vec::new(),
        }
    }

    /// Adds a DNS name or an IP address, for webhooks registered by URL.
    ///
    /// # Errors
    ///
    /// Returns an error if `host` is neither. IPv6 addresses must be given without the brackets of a URL.
    pub fn with_host(mut self, host: &str) -> Result<Self, Error> {
        let called = self.add(host)?;
        if !self.called.contains(&called) {
            self.called.push(called);
        }
        Ok(self)
    }

    fn add(&mut self, host: &str) -> Result<ServerName<'static>, Error> {
        match ServerName::try_from(host.to_ascii_lowercase()) {
            Ok(ServerName::DnsName(name)) if !name.as_ref().ends_with('.') => {
                if !self.dns_names.contains(&name) {
                    self.dns_names.push(name.clone());
                }
                Ok(ServerName::DnsName(name))
            }
            Ok(ServerName::IpAddress(address)) => {
                if !self.ip_addresses.contains(&address.into()) {
                    self.ip_addresses.push(address.into());
                }
                Ok(ServerName::IpAddress(address))
            }
            _ => Err(Error::new(format!(
                "failed to accept {host:?} as a host: expected a DNS name without wildcard and trailing dot, or \
                 an IP address without brackets and port"
            ))),
        }
    }

    /// Returns the DNS names in lower case.
    pub fn dns_names(&self) -> impl Iterator<Item = &str> {
        self.dns_names.iter().map(AsRef::as_ref)
    }

    /// Returns the IP addresses.
    #[must_use]
    pub fn ip_addresses(&self) -> &[IpAddr] {
        &self.ip_addresses
    }

    /// Returns the first Service, or the first host truncated to 64 characters.
    pub(crate) fn common_name(&self) -> &str {
        &self.common_name
    }

    /// Returns the names by which API servers call: `<service>.<namespace>.svc` of each Service, and the
    /// hosts of URLs.
    pub(crate) fn called(&self) -> impl Iterator<Item = &ServerName<'static>> {
        self.called.iter()
    }

    pub(crate) fn server_names(&self) -> impl Iterator<Item = ServerName<'static>> {
        let dns_names = self.dns_names.iter().cloned().map(ServerName::DnsName);
        dns_names.chain(self.ip_addresses.iter().map(|ip| ServerName::IpAddress((*ip).into())))
    }
}

fn check_label(what: &str, name: &str) -> Result<(), Error> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let valid = (1..=63).contains(&name.len())
        && name.chars().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if valid {
        return Ok(());
    }
    Err(Error::new(format!(
        "failed to accept {name:?} as the name of a {what}: expected 1 to 63 lower-case letters, digits and inner dashes \
         (RFC 1123 label)"
    )))
}
