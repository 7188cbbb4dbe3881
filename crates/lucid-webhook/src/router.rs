//! Routes HTTP paths to webhooks.

use std::convert::Infallible;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Body;
use prometheus_client::registry::Registry;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service};

use crate::conversion::Converter;
use crate::exchange;
use crate::metrics::Metrics;
use crate::peer_certificate::PeerCertificate;
use crate::registration::WebhookRegistration;
use crate::route::{Bodies, Route, Target};
use crate::webhook::Webhook;

/// Maps paths to webhooks. A router is a [`tower::Service`] of HTTP requests, so it can be tested, wrapped and served
/// like any other.
///
/// ```
/// use lucid_webhook::{AdmissionRequest, AdmissionResponse, Router, Webhook};
///
/// async fn greet(request: AdmissionRequest) -> AdmissionResponse {
///     AdmissionResponse::allow().with_warning(format!("hello {}", request.user_info.username))
/// }
///
/// let router = Router::new().webhook("/greet", Webhook::validating("greet.example.com", greet));
/// ```
#[derive(Clone, Default)]
pub struct Router {
    /// In insertion order, which is the order in which mutating webhooks are called.
    routes: Arc<Vec<Route>>,
    metrics: Option<Metrics>,
    bodies: Bodies,
    client_certificates: bool,
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.routes.iter().map(|route| (&route.path, &route.name))).finish()
    }
}

impl Router {
    /// Creates a router without webhooks: every path is answered with 404.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves a webhook at `path` (such as `/mutate`). If two webhooks share a path, every call to it fails.
    #[must_use]
    pub fn webhook(self, path: impl Into<Arc<str>>, webhook: Webhook) -> Self {
        let path = absolute(path.into());
        let registration = webhook.registration.clone().at(&path);
        let (name, target) = (Arc::clone(&webhook.name), Target::Admission(webhook.into_shared()));
        self.route(Route { registration: Some(Arc::new(registration)), ..plain(path, name, target) })
    }

    /// Serves the conversion of one custom resource at `path` (such as `/convert`). Metrics label it with kind and
    /// group, such as `CronTab.stable.example.com`.
    #[must_use]
    pub fn convert(self, path: impl Into<Arc<str>>, converter: Converter) -> Self {
        let name = format!("{}.{}", converter.kind(), converter.group());
        self.route(plain(absolute(path.into()), name.into(), Target::Conversion(converter)))
    }

    /// Serves any other service at `path`, for example a status page. Request bodies are read before the service is
    /// called; above 64 KiB the response is 413. Any client that can connect may call it, see
    /// [`with_client_certificates`](Self::with_client_certificates).
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use http_body_util::Full;
    /// use lucid_webhook::Router;
    ///
    /// let hello = tower::service_fn(async |_: Request<Bytes>| Ok(Response::new(Full::from("hello\n"))));
    /// let router = Router::new().service("/hello", hello);
    /// ```
    #[must_use]
    pub fn service<S>(self, path: impl Into<Arc<str>>, service: S) -> Self
    where
        S: Service<Request<Bytes>, Response = Response<Full<Bytes>>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        let path = absolute(path.into());
        let target = Target::Other(BoxCloneSyncService::new(service));
        self.route(plain(Arc::clone(&path), path, target))
    }

    /// Answers calls of webhooks with 403 unless the client presented a certificate.
    ///
    /// The TLS configuration verifies certificates: make them optional there. Conversions and [services](Self::service)
    /// stay open to clients without one, because API servers never present a certificate when they convert objects.
    #[must_use]
    pub fn with_client_certificates(mut self) -> Self {
        self.client_certificates = true;
        self
    }

    /// Registrations of the webhooks, in insertion order; see [`registration`](crate::registration).
    pub fn registrations(&self) -> impl Iterator<Item = &WebhookRegistration> {
        self.routes.iter().filter_map(|route| route.registration.as_deref())
    }

    #[cfg(feature = "operator")]
    pub(crate) fn conversions(&self) -> impl Iterator<Item = (&str, &Converter)> {
        self.routes.iter().filter_map(|route| match &route.target {
            Target::Conversion(converter) => Some((&*route.path, converter)),
            _ => None,
        })
    }

    #[cfg(feature = "operator")]
    pub(crate) fn serves(&self, path: &str) -> bool {
        self.routes.iter().any(|route| *route.path == *path)
    }

    fn route(mut self, mut route: Route) -> Self {
        if let Some(metrics) = &self.metrics {
            route.count(metrics);
        }
        let routes = Arc::make_mut(&mut self.routes);
        if let Some(other) = routes.iter_mut().find(|other| other.path == route.path) {
            tracing::error!(path = &*route.path, "{} and {} are at one path", other.name, route.name);
            other.target = Target::Conflict;
        }
        routes.push(route);
        self
    }

    /// Registers the metrics of all webhooks. Each router needs a registry of its own.
    ///
    /// | metric | labels | |
    /// |---|---|---|
    /// | `admission_requests_total` | webhook, operation, outcome | answered requests |
    /// | `admission_request_duration_seconds` | webhook | time from the arrival of the headers to the response |
    /// | `admission_requests_in_flight` | webhook | |
    /// | `admission_cut_total` | webhook, what | warnings and audit annotations that were changed or dropped for the API server |
    ///
    /// Operations are `CREATE`, `UPDATE`, `DELETE`, `CONNECT`, `CONVERT`, and empty if unknown. Outcomes are `allowed`,
    /// `patched`, `denied`, `skipped` (by the [`guard`](crate::guard)), `converted`, `errored`, `panicked`,
    /// `timed_out`, `cancelled` (the caller disconnected), `shed` and `bad_request`. A response of a failure action
    /// counts as the failure. Cardinality is bounded: webhooks are those of the router, the other labels are fixed
    /// sets, and no label comes from an object.
    #[must_use]
    pub fn with_metrics(mut self, registry: &mut Registry) -> Self {
        let metrics = Metrics::new(registry);
        for route in Arc::make_mut(&mut self.routes) {
            route.count(&metrics);
        }
        self.metrics = Some(metrics);
        self
    }

    /// Sets the maximum size of an AdmissionReview in bytes, 7 MiB by default. Larger ones are answered with 413.
    ///
    /// The API server escapes `<`, `>` and `&` with six bytes each when it writes JSON. An upper bound for a review is
    /// therefore twice six times the largest object that etcd stores (1.5 MiB by default).
    #[must_use]
    pub fn with_body_limit(mut self, bytes: usize) -> Self {
        self.bodies.admission.set_limit(bytes);
        self
    }

    /// Sets the maximum size of a ConversionReview in bytes, 64 MiB by default. Larger ones are answered with 413.
    ///
    /// A ConversionReview may carry any number of objects of up to 1.5 MiB each, such as all objects of a LIST.
    /// kube-apiserver 1.36 sends one object per review, also for a LIST: it converts objects as it reads them from
    /// etcd.
    #[must_use]
    pub fn with_conversion_limit(mut self, bytes: usize) -> Self {
        self.bodies.conversion.set_limit(bytes);
        self
    }
}

const fn plain(path: Arc<str>, name: Arc<str>, target: Target) -> Route {
    Route { path, name, registration: None, target, metrics: None }
}

fn absolute(path: Arc<str>) -> Arc<str> {
    if path.starts_with('/') { path } else { format!("/{path}").into() }
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
        let (routes, bodies) = (Arc::clone(&self.routes), self.bodies.clone());
        let is_unauthenticated =
            self.client_certificates && request.extensions().get::<PeerCertificate>().is_none();
        let response = async move {
            let route = routes.iter().find(|route| *route.path == *request.uri().path());
            exchange::respond(route, &bodies, request, is_unauthenticated).await
        };
        // Panics of handlers were caught before. This catches any other one.
        let response = AssertUnwindSafe(response).catch_unwind();
        response.map(|response| Ok(response.unwrap_or_else(|_panic| exchange::panicked()))).boxed()
    }
}
