//! Which handler answers at which path.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Body;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

use crate::kind::WebhookKind;
use crate::metrics::Metrics;
use crate::response::AdmissionResponse;
use crate::review::AdmissionRequest;
use crate::{body, exchange};

/// Any error of a handler.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type Handler = BoxCloneSyncService<AdmissionRequest, AdmissionResponse, BoxError>;

#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) kind: WebhookKind,
    /// Label of the metrics; bounded, since it is the registered path.
    pub(crate) webhook: Arc<str>,
    pub(crate) handler: Handler,
}

/// Maps paths to webhooks. It is itself a [`tower::Service`] of HTTP requests, so that it can be tested, wrapped and
/// served like any other.
///
/// ```
/// use lucid_webhook::{AdmissionRequest, AdmissionResponse, Router};
/// use tower::service_fn;
///
/// let router = Router::new().validate(
///     "/validate",
///     service_fn(|request: AdmissionRequest| async move {
///         Ok::<_, std::convert::Infallible>(AdmissionResponse::allow().with_warning(request.name))
///     }),
/// );
/// ```
#[derive(Clone, Default)]
pub struct Router {
    routes: Arc<BTreeMap<String, Route>>,
    metrics: Option<Metrics>,
    bodies: body::Reader,
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.routes.iter().map(|(path, route)| (path, route.kind));
        f.debug_map().entries(kinds).finish()
    }
}

impl Router {
    /// A router without webhooks: every path is answered with 404.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves a mutating webhook at `path` (such as `/mutate`). A later one at the same path replaces it.
    #[must_use]
    pub fn mutate<H>(self, path: impl Into<String>, handler: H) -> Self
    where
        H: Service<AdmissionRequest, Response = AdmissionResponse> + Clone + Send + Sync + 'static,
        H::Future: Send + 'static,
        H::Error: Into<BoxError>,
    {
        self.route(WebhookKind::Mutating, path.into(), handler)
    }

    /// Serves a validating webhook at `path` (such as `/validate`). A later one at the same path replaces it.
    #[must_use]
    pub fn validate<H>(self, path: impl Into<String>, handler: H) -> Self
    where
        H: Service<AdmissionRequest, Response = AdmissionResponse> + Clone + Send + Sync + 'static,
        H::Future: Send + 'static,
        H::Error: Into<BoxError>,
    {
        self.route(WebhookKind::Validating, path.into(), handler)
    }

    /// Counts what the webhooks do.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// How many bytes a review may have, 7 MiB by default; a longer one is answered with 413.
    ///
    /// The API server escapes `<`, `>` and `&` with six bytes each when it writes JSON. Where that matters, twice six
    /// times the largest object that etcd stores (1.5 MiB by default) is the most that a review can need.
    #[must_use]
    pub fn with_body_limit(mut self, bytes: usize) -> Self {
        self.bodies.set_limit(bytes);
        self
    }

    fn route<H>(mut self, kind: WebhookKind, path: String, handler: H) -> Self
    where
        H: Service<AdmissionRequest, Response = AdmissionResponse> + Clone + Send + Sync + 'static,
        H::Future: Send + 'static,
        H::Error: Into<BoxError>,
    {
        let handler = BoxCloneSyncService::new(handler.map_err(Into::into));
        let route = Route { kind, webhook: path.as_str().into(), handler };
        Arc::make_mut(&mut self.routes).insert(path, route);
        self
    }
}

impl<B> Service<Request<B>> for Router
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let route = self.routes.get(request.uri().path()).cloned();
        let (metrics, bodies) = (self.metrics.clone(), self.bodies.clone());
        async move { Ok(exchange::answer(route, metrics.as_ref(), &bodies, request).await) }.boxed()
    }
}
