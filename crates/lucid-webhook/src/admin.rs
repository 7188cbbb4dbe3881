//! Liveness, readiness and metrics on a separate port, over plain HTTP.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tower::service_fn;

use crate::readiness::Readiness;
use crate::server::{RequestBody, Server, Tls};

/// Serves `/healthz` (200 while the process runs), `/readyz` (200, or 503 and the missing conditions) and `/metrics`
/// (OpenMetrics text).
#[derive(Debug)]
pub struct AdminServer(Server);

impl AdminServer {
    /// Binds to `address`.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is in use or not available on this host.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self(Server::bind(address).await?))
    }

    /// The address in use; its port is never 0.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// Serves for as long as the future is polled; dropping it closes all connections.
    pub async fn serve(self, readiness: Readiness, registry: Registry) -> Infallible {
        let registry = Arc::new(registry);
        let service = service_fn(move |request: Request<RequestBody>| {
            std::future::ready(Ok(respond(&request, &readiness, &registry)))
        });
        self.0.serve(Tls::plain(), service, std::future::pending()).await;
        std::future::pending().await
    }
}

fn respond(
    request: &Request<RequestBody>,
    readiness: &Readiness,
    registry: &Registry,
) -> Response<Full<Bytes>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let (status, content_type, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, TEXT, "ok\n".to_owned()),
        (&Method::GET | &Method::HEAD, "/readyz") => match readiness.missing() {
            missing if missing.is_empty() => (StatusCode::OK, TEXT, "ok\n".to_owned()),
            missing => {
                (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not ready: {}\n", missing.join(", ")))
            }
        },
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let mut text = String::new();
            match encode(&mut text, registry) {
                Ok(()) => (StatusCode::OK, METRICS, text),
                Err(error) => {
                    (StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("failed to encode: {error}\n"))
                }
            }
        }
        (_, "/healthz" | "/readyz" | "/metrics") => {
            (StatusCode::METHOD_NOT_ALLOWED, TEXT, "use GET\n".to_owned())
        }
        _ => (StatusCode::NOT_FOUND, TEXT, "only /healthz, /readyz and /metrics are here\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
