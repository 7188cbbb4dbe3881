//! Settings of `lucid-egress`, the last hop of chains that audit outbound traffic.

use std::{collections::BTreeMap, fmt, net::IpAddr, num::NonZeroU16, str::FromStr, sync::Arc};

use lucid_text::Excerpt;
use serde::{Deserialize, Serialize};

use crate::{error::Error, keys};

/// Parameters of `lucid-egress`, passed as JSON in [`EGRESS_ENV`](crate::keys::EGRESS_ENV).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Egress {
    /// Port that the network rules redirect to. Without network rules there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intake: Option<NonZeroU16>,
    /// Port of the first auditor.
    pub first: NonZeroU16,
    /// Port that the last auditor forwards to.
    pub exit: NonZeroU16,
    /// Port of the model in the pod.
    pub model: NonZeroU16,
    /// `true` for a native sidecar, which the kubelet stops after the applications.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub native: bool,
    /// Destination of requests to the first auditor; the model in the pod if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// Allowed destinations of redirected connections; all if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_hosts: Option<AllowedHosts>,
}

impl Egress {
    /// Parses the value of [`EGRESS_ENV`](crate::keys::EGRESS_ENV).
    ///
    /// # Errors
    /// Returns an error if the text has another form.
    pub fn from_json(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    pub(crate) fn to_json(&self) -> String {
        // Numbers and strings cannot fail to serialize.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Base URL that outbound traffic goes to.
///
/// ```
/// let upstream: lucid_chain::Upstream = "https://api.example.com/v1/".parse()?;
/// assert_eq!((upstream.origin(), upstream.path()), ("https://api.example.com", "/v1"));
/// assert!("ftp://api.example.com".parse::<lucid_chain::Upstream>().is_err());
/// # Ok::<(), lucid_chain::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Upstream {
    url: Arc<str>,
    /// Length of the part before the path.
    origin: usize,
}

impl Upstream {
    pub(crate) const EXPECTED: &'static str =
        "an http or https URL without user, query and fragment, such as https://api.example.com/v1";

    /// Parses the namespace annotation [`keys::UPSTREAM`]. An invalid one is ignored, and the problem is returned.
    pub(crate) fn from_annotations(annotations: &BTreeMap<String, String>) -> (Option<Self>, Option<String>) {
        match annotations.get(keys::UPSTREAM).map(|url| url.trim().parse()).transpose() {
            Ok(upstream) => (upstream, None),
            Err(Error { .. }) => (None, Some(format!("{}: expected {}", keys::UPSTREAM, Self::EXPECTED))),
        }
    }

    /// Returns scheme, host and port, such as `https://api.example.com`.
    pub fn origin(&self) -> &str {
        &self.url[..self.origin]
    }

    /// Returns the path without a slash at the end; empty if there is none.
    pub fn path(&self) -> &str {
        &self.url[self.origin..]
    }

    pub(crate) fn host_and_port(&self) -> (&str, u16) {
        let (scheme, authority) = self.origin().split_once("://").unwrap_or_default();
        let default = if scheme == "https" { 443 } else { 80 };
        let (host, port) = split_port(authority).unwrap_or((authority, None));
        (host, port.unwrap_or(default))
    }
}

impl FromStr for Upstream {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            let (scheme, rest) = text.split_once("://")?;
            let scheme = Some(scheme.to_ascii_lowercase()).filter(|it| it == "http" || it == "https")?;
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let (host, _) = split_port(authority)?;
            let is_path = |it: u8| it.is_ascii_graphic() && !matches!(it, b'?' | b'#' | b'$' | b'"' | b'\\');
            if !(is_name(host) || host.parse::<IpAddr>().is_ok()) || !path.bytes().all(is_path) {
                return None;
            }
            let origin = format!("{scheme}://{}", authority.to_ascii_lowercase());
            let url = format!("{origin}{}", path.trim_end_matches('/'));
            Some(Self { url: url.into(), origin: origin.len() })
        };
        parse().ok_or_else(|| invalid(text, Self::EXPECTED))
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// Hosts that outbound traffic may reach: names (`llm.models.svc`), names with a wildcard (`*.example.com`), both with
/// an optional port (`llm.models.svc:8000`), addresses and networks (`10.0.0.0/8`, `fd00::/8`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AllowedHosts(Arc<[Pattern]>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Name {
        /// Lower-case name; a suffix that begins with a dot if there is a wildcard.
        name: String,
        port: Option<u16>,
    },
    Network {
        /// As written, in lower case and with a length: the backstop cannot normalize addresses.
        text: String,
        address: IpAddr,
        length: u8,
    },
}

impl AllowedHosts {
    pub(crate) const EXPECTED: &'static str =
        "hosts separated by commas, such as llm.models.svc, *.example.com:8000, 10.0.0.0/8";

    /// Returns `true` if an entry matches this name and port. Names are case-insensitive, and a dot at their end is
    /// ignored.
    pub fn allow_name(&self, host: &str, port: u16) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.0.iter().any(|pattern| match pattern {
            Pattern::Name { name, port: only } => {
                let matches = if name.starts_with('.') { host.ends_with(name) } else { host == *name };
                matches && only.is_none_or(|only| only == port)
            }
            Pattern::Network { .. } => false,
        })
    }

    /// Returns `true` if an entry is this address or contains it.
    pub fn allow_address(&self, address: IpAddr) -> bool {
        self.0.iter().any(|pattern| match pattern {
            Pattern::Name { .. } => false,
            Pattern::Network { address: network, length, .. } => match (network, address.to_canonical()) {
                (IpAddr::V4(network), IpAddr::V4(address)) => {
                    (network.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(*length)
                }
                (IpAddr::V6(network), IpAddr::V6(address)) => {
                    (network.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(*length)
                }
                _ => false,
            },
        })
    }

    pub(crate) fn allow_upstream(&self, upstream: &Upstream) -> bool {
        let (host, port) = upstream.host_and_port();
        host.parse().map_or_else(|_| self.allow_name(host, port), |address| self.allow_address(address))
    }
}

impl FromStr for AllowedHosts {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let items = text.split(|it: char| it == ',' || it.is_whitespace()).filter(|item| !item.is_empty());
        let patterns = items.map(str::parse).collect::<Result<Vec<_>, _>>()?;
        match patterns.is_empty() {
            true => Err(invalid(text, Self::EXPECTED)),
            false => Ok(Self(patterns.into())),
        }
    }
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let network = || {
            let (written, length) = text.split_once('/').map_or((text, None), |(it, len)| (it, Some(len)));
            let address: IpAddr = written.parse().ok()?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let length = length.map_or(Some(most), |length| length.parse().ok().filter(|it| *it <= most))?;
            let text = format!("{}/{length}", written.to_ascii_lowercase());
            Some(Self::Network { text, address, length })
        };
        let name = || {
            let (host, port) = split_port(text)?;
            let bare = host.strip_prefix("*.").unwrap_or(host);
            let name = host.strip_prefix('*').unwrap_or(host).to_ascii_lowercase();
            is_name(bare).then_some(Self::Name { name, port })
        };
        network().or_else(name).ok_or_else(|| invalid(text, AllowedHosts::EXPECTED))
    }
}

impl fmt::Display for AllowedHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, pattern) in self.0.iter().enumerate() {
            f.write_str(if place == 0 { "" } else { ", " })?;
            match pattern {
                Pattern::Name { name, port } => {
                    write!(f, "{}{name}", if name.starts_with('.') { "*" } else { "" })?;
                    if let Some(port) = port {
                        write!(f, ":{port}")?;
                    }
                }
                Pattern::Network { text, .. } => f.write_str(text)?,
            }
        }
        Ok(())
    }
}

fn invalid(found: &str, expected: &str) -> Error {
    Error::new(format!("expected {expected}; found {}", Excerpt(found)))
}

macro_rules! impl_string {
    ($($type:ident)+) => {$(
        impl TryFrom<String> for $type {
            type Error = Error;

            fn try_from(text: String) -> Result<Self, Error> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    )+};
}

impl_string! { Upstream AllowedHosts }

/// Splits `host`, `host:port`, `[address]` or `[address]:port`.
pub(crate) fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some(""))?)
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    match port {
        "" if authority.ends_with(':') => None,
        "" => Some((host, None)),
        port => Some((host, Some(port.parse::<NonZeroU16>().ok()?.get()))),
    }
}

fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_'))
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_has_a_host_and_a_port() {
        for (url, host) in [
            ("https://api.example.com", ("api.example.com", 443)),
            ("HTTP://LLM/V1/", ("llm", 80)),
            ("http://[fd00::1]:81/a/b", ("fd00::1", 81)),
        ] {
            assert_eq!(url.parse::<Upstream>().unwrap().host_and_port(), host, "{url}");
        }
    }
}
