//! URIs in certificates, where Go parses them with `net/url`.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A URI that Go accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Uri {
    /// Its host is a domain name, which Go requires where name constraints apply.
    pub(super) has_domain: bool,
}

/// Parses a URI (RFC 3986). Go accepts some more, such as relative references and user information.
pub(super) fn parse(uri: &str) -> Option<Uri> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte);
    let is_escaped =
        |rest: &str| rest.get(..2).is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let (scheme, rest) = uri.split_once(':')?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !is_scheme || !uri.bytes().all(is_allowed) || !uri.split('%').skip(1).all(is_escaped) {
        return None;
    }
    let authority = rest.strip_prefix("//").and_then(|rest| rest.split(['/', '?', '#']).next());
    let Some(authority) = authority.filter(|authority| !authority.is_empty()) else {
        return Some(Uri { has_domain: false });
    };
    let (host, port) = match authority.rfind(':').filter(|_| !authority.ends_with(']')) {
        Some(at) => (&authority[..at], &authority[at + 1..]),
        None => (authority, ""),
    };
    let is_address = match host.strip_prefix('[') {
        Some(literal) => literal.strip_suffix(']')?.parse::<Ipv6Addr>().is_ok().then_some(true)?,
        None => host.parse::<Ipv4Addr>().is_ok(),
    };
    let is_name =
        host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) && is_domain(host);
    let is_valid =
        (is_address || is_name) && !host.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    is_valid.then_some(Uri { has_domain: !is_address })
}

/// Returns `true` for domain names as Go checks them: labels of printable ASCII, without a final dot.
pub(super) fn is_domain(name: &str) -> bool {
    name.is_empty()
        || name.split('.').all(|label| !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_graphic()))
}
