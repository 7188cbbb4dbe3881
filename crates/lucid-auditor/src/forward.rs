//! Forwarding to the next auditor or the model.

use std::net::IpAddr;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::header::{self, CONNECTION, HOST, HeaderMap, HeaderValue, TE, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::http::uri::{Authority, Scheme};
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use crate::body::Body;

/// Connect timeout of the next hop, which is in the same pod.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Idle timeout of connections to the next hop. A request sent while the peer closes is lost, so this side closes first:
/// model servers wait for 2 s (gunicorn), 5 s (uvicorn, Node.js) or longer.
const IDLE_LIMIT: Duration = Duration::from_secs(1);

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

    fn request(&self, next: &Authority, peer: IpAddr, mut parts: Parts, body: Body) -> Request<Body> {
        let accepts_trailers =
            lucid_proxy::list(&parts.headers, TE).any(|coding| coding.eq_ignore_ascii_case("trailers"));
        lucid_proxy::remove_hop_by_hop(&mut parts.headers);
        lucid_proxy::append_client(&mut parts.headers, peer);
        lucid_proxy::append_via(&mut parts.headers, parts.version, &self.id);
        if accepts_trailers {
            parts.headers.insert(TE, HeaderValue::from_static("trailers"));
            // A hop-by-hop header must be listed (RFC 9110, section 10.1.4).
            parts.headers.insert(CONNECTION, HeaderValue::from_static("TE"));
        }
        lucid_proxy::insert_host(&mut parts);
        let is_streamed = body.size_hint().exact().is_none();
        lucid_proxy::direct(&mut parts, Scheme::HTTP, next.clone(), is_streamed);
        parts.extensions.clear();
        Request::from_parts(parts, body)
    }
}

/// Returns the transfer coding of a body, unless it is `chunked` alone (RFC 9112 section 6.1). hyper decodes no other.
pub(crate) fn transfer_coding(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(TRANSFER_ENCODING).into_iter();
    let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    let coding = values.join(", ");
    (!values.is_empty() && !coding.eq_ignore_ascii_case("chunked")).then_some(coding)
}

/// Returns `true` for gRPC, which needs HTTP/2.
pub(crate) fn is_grpc(parts: &Parts) -> bool {
    let content_type = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    parts.version == Version::HTTP_2
        && content_type.is_some_and(|value| value.to_ascii_lowercase().starts_with(b"application/grpc"))
}
