//! Liveness, readiness and metrics on a separate port, over plain HTTP.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tower::service_fn;

use crate::server::{BindError, RequestBody, Server, Tls};

/// Readiness of this process: a set of named conditions. Clones share the conditions and are cheap.
///
/// ```
/// let readiness = lucid_webhook::Readiness::default();
/// let synced = readiness.condition("configuration synced");
/// assert_eq!(readiness.missing(), ["configuration synced"]);
/// synced.set(true);
/// assert!(readiness.missing().is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<watch::Sender<BTreeMap<&'static str, bool>>>);

/// A condition of a [`Readiness`], initially false.
#[derive(Clone, Debug)]
pub struct Condition {
    readiness: Readiness,
    name: &'static str,
}

impl Readiness {
    /// Adds a condition. `name` is shown by `/readyz`.
    #[must_use]
    pub fn condition(&self, name: &'static str) -> Condition {
        let condition = Condition { readiness: self.clone(), name };
        condition.set(false);
        condition
    }

    /// Names of the conditions that do not hold; the process is ready if there are none.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        self.0.borrow().iter().filter(|(_, holds)| !**holds).map(|(name, _)| *name).collect()
    }

    /// Completes when all conditions hold, or if `ready` is false, when one does not.
    pub(crate) async fn wait_until(&self, ready: bool) {
        let mut conditions = self.0.subscribe();
        // `self` holds the sender, so this only ends with the condition.
        let _ = conditions.wait_for(|conditions| conditions.values().all(|holds| *holds) == ready).await;
    }
}

impl Condition {
    /// Sets whether the condition holds.
    pub fn set(&self, holds: bool) {
        self.readiness.0.send_if_modified(|conditions| conditions.insert(self.name, holds) != Some(holds));
    }

    /// Follows `source`, such as `Certificates::ready`, for as long as the future is polled. When the sender is
    /// dropped, the condition becomes false and the future completes.
    pub async fn follow(self, mut source: watch::Receiver<bool>) {
        loop {
            self.set(*source.borrow_and_update());
            if source.changed().await.is_err() {
                return self.set(false);
            }
        }
    }

    /// Completes when the condition holds.
    pub async fn wait(&self) {
        let mut conditions = self.readiness.0.subscribe();
        let holds = |conditions: &BTreeMap<_, _>| conditions.get(self.name).copied().unwrap_or(false);
        // `self` holds the sender, so this only ends with the condition.
        let _ = conditions.wait_for(holds).await;
    }
}

/// Serves `/healthz` (200 while the process runs), `/readyz` (200, or 503 and the missing conditions) and `/metrics`
/// (OpenMetrics text).
#[derive(Debug)]
pub struct AdminServer(Server);

impl AdminServer {
    /// Binds to `address`.
    ///
    /// # Errors
    ///
    /// A [`BindError`] if the address is not available.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
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
