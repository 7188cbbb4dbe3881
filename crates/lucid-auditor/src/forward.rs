//! Forwarding to the next auditor or the model.

use std::net::IpAddr;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::header::{
    self, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING,
};
use hyper::http::request::Parts;
use hyper::http::uri::{Authority, Scheme};
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use crate::body::Body;

/// Connect timeout of the next hop, which is in the same pod.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Idle timeout of connections to the next hop. A request sent while the peer closes is lost, so this side closes first:
/// model servers wait for 2 s (gunicorn), 5 s (uvicorn, Node.js) or longer.
const IDLE_LIMIT: Duration = Duration::from_secs(1);

/// Forwards requests to the next hops.
#[derive(Debug)]
pub(crate) struct Forwarder {
    client: Client<HttpConnector, Body>,
    /// For gRPC, which needs HTTP/2: with prior knowledge.
    http2: Client<HttpConnector, Body>,
    /// Identifies this auditor as the sender.
    id: String,
}

impl Forwarder {
    pub(crate) fn new(id: &str) -> Self {
        let mut connector = HttpConnector::new();
        // Do not delay pieces of a request.
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_LIMIT));
        let mut client = Client::builder(TokioExecutor::new());
        // Idle connections are closed only with a timer.
        client.pool_idle_timeout(IDLE_LIMIT).pool_timer(TokioTimer::new());
        let http1 = client.build(connector.clone());
        let http2 = client.http2_only(true).build(connector);
        Self { client: http1, http2, id: id.to_owned() }
    }

    /// Forwards a request of `peer` to `next` with its method, path, query and headers.
    pub(crate) async fn send(
        &self,
        next: &Authority,
        peer: IpAddr,
        parts: Parts,
        body: Body,
    ) -> Result<Response<Incoming>, Error> {
        let is_grpc = is_grpc(&parts);
        let mut request = self.request(next, peer, parts, body);
        if is_grpc {
            *request.version_mut() = Version::HTTP_2;
            for name in [CONNECTION, TRANSFER_ENCODING, HOST] {
                request.headers_mut().remove(name);
            }
            return self.http2.request(request).await;
        }
        self.client.request(request).await
    }

    /// Forwards a request that upgrades to another protocol, such as WebSocket, and connects both sides.
    pub(crate) async fn tunnel(
        &self,
        next: &Authority,
        peer: IpAddr,
        parts: Parts,
        body: Body,
        upgrade: OnUpgrade,
    ) -> Result<Response<Incoming>, Error> {
        let protocol = parts.headers.get(header::UPGRADE).cloned();
        let mut request = self.request(next, peer, parts, body);
        if let Some(protocol) = protocol {
            request.headers_mut().insert(header::UPGRADE, protocol);
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        }
        let mut response = self.client.request(request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let model = hyper::upgrade::on(&mut response);
            tokio::spawn(async move {
                if let (Ok(caller), Ok(model)) = tokio::join!(upgrade, model) {
                    let (mut caller, mut model) = (TokioIo::new(caller), TokioIo::new(model));
                    let _ = tokio::io::copy_bidirectional(&mut caller, &mut model).await;
                }
            });
        }
        Ok(response)
    }

    fn request(&self, next: &Authority, peer: IpAddr, parts: Parts, body: Body) -> Request<Body> {
        let Parts { method, uri, version, mut headers, .. } = parts;
        let accepts_trailers = listed(&headers, TE).any(|coding| coding.eq_ignore_ascii_case("trailers"));
        // First, so that `Connection: x-forwarded-for` does not remove the address.
        remove_hop_by_hop(&mut headers);
        append_client(&mut headers, peer);
        append_via(&mut headers, version, &self.id);
        if accepts_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            // A hop-by-hop header must be listed (RFC 9110, section 10.1.4).
            headers.insert(CONNECTION, HeaderValue::from_static("TE"));
        }
        // Otherwise hyper omits the body of a GET.
        if body.size_hint().exact().is_none() && !headers.contains_key(CONTENT_LENGTH) {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        // `Host` is kept unless the URI has a host, as in requests to a proxy.
        if let Some(host) = uri.authority().and_then(|host| host_of(host).parse().ok()) {
            headers.insert(HOST, host);
        }
        let mut to = Uri::default().into_parts();
        to.scheme = Some(Scheme::HTTP);
        to.authority = Some(next.clone());
        to.path_and_query = uri.into_parts().path_and_query.or(to.path_and_query);
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from_parts(to).unwrap_or_default();
        *request.headers_mut() = headers;
        *request.version_mut() = Version::HTTP_11;
        request
    }
}

/// Returns host and port without user information.
fn host_of(authority: &Authority) -> &str {
    authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, host)| host)
}

/// Removes hop-by-hop headers (RFC 9110, section 7.6.1): the known ones and those listed in `Connection`.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    // `Transfer-Encoding` overrides `Content-Length` (RFC 9112, section 6.3).
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    const HOP_BY_HOP: [HeaderName; 6] = [
        CONNECTION,
        TE,
        TRANSFER_ENCODING,
        header::UPGRADE,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
    ];
    let named: Vec<HeaderName> = listed(headers, CONNECTION).filter_map(|name| name.parse().ok()).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Returns the transfer coding of a body, unless it is `chunked` alone (RFC 9112 section 6.1). hyper decodes no other.
pub(crate) fn transfer_coding(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(TRANSFER_ENCODING).into_iter();
    let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    let coding = values.join(", ");
    (!values.is_empty() && !coding.eq_ignore_ascii_case("chunked")).then_some(coding)
}

/// Returns `true` for a request to change to another protocol. An offer of HTTP/2 may be ignored.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    listed(headers, header::UPGRADE).any(|protocol| !protocol.eq_ignore_ascii_case("h2c"))
}

/// Returns `true` for gRPC, which needs HTTP/2.
pub(crate) fn is_grpc(parts: &Parts) -> bool {
    let content_type = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    parts.version == Version::HTTP_2
        && content_type.is_some_and(|value| value.to_ascii_lowercase().starts_with(b"application/grpc"))
}

/// Returns the elements of a list header, in one line or several.
fn listed(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Appends `peer` to `X-Forwarded-For`, whose last address is therefore the one that connected to the pod.
///
/// Only the first auditor of a chain appends it. Later ones are called from within the pod. Addresses written by external
/// callers precede it.
fn append_client(headers: &mut HeaderMap, peer: IpAddr) {
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

/// Appends this auditor to `Via` (RFC 9110, section 7.6.3).
fn append_via(headers: &mut HeaderMap, version: Version, id: &str) {
    // `Via` has the version without `HTTP/`.
    let version = format!("{version:?}");
    let version = version.strip_prefix("HTTP/").unwrap_or(&version);
    if let Ok(value) = format!("{version} {id}").parse() {
        headers.append(header::VIA, value);
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

    #[test]
    fn no_other_spelling_of_the_header_passes() {
        let mut headers = HeaderMap::new();
        for name in ["x_forwarded_for", "x-forwarded_for", "x_other"] {
            headers.insert(name, "1.2.3.4".parse().unwrap());
        }
        append_client(&mut headers, IpAddr::from([127, 0, 0, 1]));
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["x-forwarded-for", "x_other"]);
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
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["authorization", "trailer"]);
    }
}
