//! Shared parts of Lucid's proxies: headers of a forwarded HTTP message, listeners, and the causes of errors.
#![doc = include_str!("../README.md")]

use std::{
    error::Error,
    io::{self, ErrorKind},
    iter,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use http::{
    HeaderMap, HeaderName, HeaderValue, Uri, Version,
    header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING, UPGRADE, VIA},
    request::Parts,
    uri::{Authority, Scheme},
};
use tokio::net::TcpListener;

/// `X-Forwarded-For`: addresses of the clients that a request came from.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Removes hop-by-hop headers (RFC 9110, section 7.6.1): the known ones and those listed in `Connection`, except for headers
/// that later hops judge the message by, or trust.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    const HOP_BY_HOP: [HeaderName; 6] = [
        CONNECTION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
    ];
    // `Transfer-Encoding` overrides `Content-Length` (RFC 9112, section 6.3).
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let listed = list(headers, CONNECTION).filter_map(|name| name.parse().ok());
    let listed: Vec<HeaderName> = listed.filter(|name| !is_end_to_end(name)).collect();
    for name in listed.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Returns `true` for headers that `Connection` cannot remove. A caller could otherwise hide them from the next hop.
fn is_end_to_end(name: &HeaderName) -> bool {
    const NAMES: [HeaderName; 5] = [
        HOST,
        VIA,
        FORWARDED_FOR,
        HeaderName::from_static("traceparent"),
        HeaderName::from_static("tracestate"),
    ];
    let is_named = |prefix: &&str| name.as_str().starts_with(prefix);
    NAMES.contains(name) || ["content-", "lucid-"].iter().any(is_named)
}

/// Returns the elements of a list header, in one line or several.
pub fn list(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Returns the protocol to which a request upgrades. An offer of HTTP/2 may be ignored.
pub fn upgrade(headers: &HeaderMap) -> Option<&str> {
    list(headers, UPGRADE).find(|protocol| !protocol.eq_ignore_ascii_case("h2c"))
}

/// Appends `peer` to `X-Forwarded-For`, whose last address is therefore the one that connected to the pod.
///
/// Only the first proxy of a pod appends it. Later ones are called from within the pod. Addresses written by external
/// callers precede it.
pub fn append_client(headers: &mut HeaderMap, peer: IpAddr) {
    // Some servers, such as WSGI, treat `_` in a name like `-`.
    let is_alias = |name: &&HeaderName| {
        let bytes = name.as_str().bytes().map(|byte| if byte == b'_' { b'-' } else { byte });
        **name != FORWARDED_FOR && bytes.eq(FORWARDED_FOR.as_str().bytes())
    };
    let others: Vec<HeaderName> = headers.keys().filter(is_alias).cloned().collect();
    for name in others {
        headers.remove(name);
    }
    // A dual-stack socket reports IPv4 addresses as IPv4-mapped IPv6 addresses.
    let peer = peer.to_canonical();
    if peer.is_loopback() && headers.contains_key(FORWARDED_FOR) {
        return;
    }
    let before = headers.get_all(FORWARDED_FOR).into_iter().map(HeaderValue::as_bytes);
    let mut all: Vec<&[u8]> = before.collect();
    let peer = peer.to_string();
    all.push(peer.as_bytes());
    // Infallible: it consists of valid values and an address.
    if let Ok(value) = HeaderValue::from_bytes(&all.join(&b", "[..])) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Appends a proxy to `Via` (RFC 9110, section 7.6.3), which received the message in `version`.
pub fn append_via(headers: &mut HeaderMap, version: Version, name: &str) {
    // `Via` has the version without `HTTP/`.
    let version = format!("{version:?}");
    let version = version.strip_prefix("HTTP/").unwrap_or(&version);
    if let Ok(value) = format!("{version} {name}").parse() {
        headers.append(VIA, value);
    }
}

/// Writes the host of the URI to `Host`. The URI has one in requests to a proxy and in HTTP/2.
pub fn insert_host(request: &mut Parts) {
    let host = request.uri.authority().and_then(|authority| {
        // Without user information.
        let host = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, host)| host);
        host.parse::<HeaderValue>().ok()
    });
    if let Some(host) = host {
        request.headers.insert(HOST, host);
    }
}

/// Directs a request to a server, with its method, path, query and headers, by HTTP/1.1.
///
/// A body whose length is unknown, `is_streamed`, is sent in chunks: hyper omits that of a `GET` otherwise.
pub fn direct(request: &mut Parts, scheme: Scheme, authority: Authority, is_streamed: bool) {
    if is_streamed && !request.headers.contains_key(CONTENT_LENGTH) {
        request.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    let path = request.uri.path_and_query().cloned();
    let mut uri = Uri::default().into_parts();
    uri.scheme = Some(scheme);
    uri.authority = Some(authority);
    uri.path_and_query = path.or(uri.path_and_query);
    request.uri = Uri::from_parts(uri).unwrap_or_default();
    request.version = Version::HTTP_11;
}

/// Returns the causes of an error. The messages of hyper omit them.
pub fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> + Clone {
    iter::successors(error.source(), |&cause| cause.source())
}

/// Listens on all addresses. The containers of a pod call each other at `localhost`, which resolves to `::1` first; an
/// unused address would leave the port to other processes of the pod.
///
/// # Errors
///
/// Returns an error if the port is not available.
pub async fn listen(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        // The pod has no IPv6.
        Err(error) if error.kind() != ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded_for(before: &[&str], peer: &str) -> String {
        let mut headers = HeaderMap::new();
        for value in before {
            headers.append(FORWARDED_FOR, value.parse().unwrap());
        }
        append_client(&mut headers, peer.parse().unwrap());
        let values: Vec<_> =
            headers.get_all(FORWARDED_FOR).into_iter().map(|value| value.to_str().unwrap()).collect();
        values.join(" | ")
    }

    #[test]
    fn the_last_address_is_the_one_that_connected_to_the_pod() {
        for (before, peer, expected) in [
            (&[][..], "10.0.0.9", "10.0.0.9"),
            (&[], "::ffff:10.0.0.9", "10.0.0.9"),
            (&[], "fd00::9", "fd00::9"),
            // Existing values from a caller or proxy come first.
            (&["1.2.3.4", "5.6.7.8"], "10.0.0.9", "1.2.3.4, 5.6.7.8, 10.0.0.9"),
            // The previous auditor or an application in the pod calls.
            (&["10.0.0.9"], "127.0.0.1", "10.0.0.9"),
            (&["10.0.0.9"], "::1", "10.0.0.9"),
            (&[], "::ffff:127.0.0.1", "127.0.0.1"),
        ] {
            assert_eq!(forwarded_for(before, peer), expected, "{before:?} {peer}");
        }
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn no_other_spelling_of_the_header_passes() {
        let mut headers = HeaderMap::new();
        for name in ["x_forwarded_for", "x-forwarded_for", "x_other"] {
            headers.insert(name, "1.2.3.4".parse().unwrap());
        }
        append_client(&mut headers, IpAddr::from([127, 0, 0, 1]));
        assert_eq!(names(&headers), ["x-forwarded-for", "x_other"]);
    }

    #[test]
    fn hop_by_hop_headers_are_not_forwarded() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("upgrade", "websocket"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("authorization", "Bearer a"),
            ("trailer", "x-checksum"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        remove_hop_by_hop(&mut headers);
        assert_eq!(names(&headers), ["authorization", "trailer"]);
    }

    #[test]
    fn connection_cannot_hide_headers_that_later_hops_depend_on() {
        for name in [
            "content-type",
            "content-encoding",
            "content-length",
            "content-language",
            "host",
            "lucid-route",
            "lucid-other",
            "traceparent",
            "tracestate",
            "via",
            "x-forwarded-for",
        ] {
            for listed in
                [&[name.to_owned()][..], &[format!("close,{}", name.to_uppercase()), "x".to_owned()]]
            {
                let mut headers = HeaderMap::new();
                for value in listed {
                    headers.append(CONNECTION, value.parse().unwrap());
                }
                headers.insert(name, "1".parse().unwrap());
                headers.insert("x", "1".parse().unwrap());
                remove_hop_by_hop(&mut headers);
                assert_eq!(headers.get(name).unwrap(), "1", "{listed:?}");
                assert_eq!(headers.contains_key("x"), listed.len() == 1, "{listed:?}");
            }
        }
    }
}
