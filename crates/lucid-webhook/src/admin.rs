//! Liveness, readiness and metrics on a port of their own, over plain HTTP.

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

/// What has to hold before this process wants requests. Cheap to clone; all clones are the same.
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

/// One condition of a [`Readiness`], false at first.
#[derive(Clone, Debug)]
pub struct Condition {
    readiness: Readiness,
    name: &'static str,
}

impl Readiness {
    /// Adds a condition, by a name that an operator understands.
    #[must_use]
    pub fn condition(&self, name: &'static str) -> Condition {
        let condition = Condition { readiness: self.clone(), name };
        condition.set(false);
        condition
    }

    /// The conditions that do not hold; ready means there are none.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        self.0.borrow().iter().filter(|(_, holds)| !**holds).map(|(name, _)| *name).collect()
    }

    /// Completes as soon as all conditions hold, or as soon as one is missing.
    pub(crate) async fn reaches(&self, ready: bool) {
        let mut conditions = self.0.subscribe();
        // The sender lives in `self`: this cannot end otherwise.
        let _ = conditions.wait_for(|conditions| conditions.values().all(|holds| *holds) == ready).await;
    }
}

impl Condition {
    /// Says whether the condition holds.
    pub fn set(&self, holds: bool) {
        self.readiness.0.send_if_modified(|conditions| conditions.insert(self.name, holds) != Some(holds));
    }

    /// Keeps the condition as `source` says, such as the `ready` of certificates, for as long as it is polled. When nobody is
    /// left who could say, it holds no more.
    pub async fn follow(self, mut source: watch::Receiver<bool>) {
        loop {
            self.set(*source.borrow_and_update());
            if source.changed().await.is_err() {
                return self.set(false);
            }
        }
    }

    /// Completes as soon as the condition holds.
    pub async fn wait(&self) {
        let mut conditions = self.readiness.0.subscribe();
        let holds = |conditions: &BTreeMap<_, _>| conditions.get(self.name).copied().unwrap_or(false);
        // The sender lives in `self`: this cannot end without the condition.
        let _ = conditions.wait_for(holds).await;
    }
}

/// Serves `/healthz` (200 while the process runs), `/readyz` (200, or 503 and what is missing) and `/metrics`
/// (OpenMetrics text).
#[derive(Debug)]
pub struct AdminServer(Server);

impl AdminServer {
    /// Takes the address.
    ///
    /// # Errors
    ///
    /// When the address cannot be listened on.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        Ok(Self(Server::bind(address).await?))
    }

    /// The address in use; its port is never 0.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// Serves for as long as the future is polled; dropping it ends all connections.
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
