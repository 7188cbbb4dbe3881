//! An operator from start to end.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Body;
use kube::Client;
use lucid_certs::{Certificates, ServerTls, Timing};
use prometheus_client::registry::Registry;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt, service_fn};

use super::Registration;
use crate::registration::{Configurations, Endpoint};
use crate::{AdminServer, Readiness, RequestBody, Router, Server};

/// An operator that serves the webhooks of a router, with its own certificate authority, and keeps them registered.
/// Any number of replicas run the same one.
///
/// ```no_run
/// # use lucid_webhook::{BoxError, Router};
/// # async fn run(router: Router) -> Result<(), BoxError> {
/// use lucid_webhook::operator::Operator;
/// use lucid_webhook::shutdown_signal;
///
/// let client = kube::Client::try_default().await?;
/// Operator::new("widgets", "widgets-system", router).run(client, shutdown_signal()?).await
/// # }
/// ```
///
/// | object | name |
/// |---|---|
/// | Service in front of the replicas, port 443 to 8443 | `widgets` in `widgets-system` |
/// | webhook configurations ([`Registration`]) | `widgets` |
/// | Secret with the authority ([`SelfManaged`](lucid_certs::SelfManaged)), created if there is none | `widgets-ca` |
///
/// Webhooks of built-in resources are not called for objects in the operator's own namespace, unless their
/// namespaceSelector names it: its pods would wait for a webhook that only they serve.
///
/// `/readyz` waits for a certificate that the API server trusts and for the first complete registration. Without a
/// permission, the process stays unready, logs the reason and retries.
///
/// The permissions are those of [`Registration`] and [`SelfManaged`](lucid_certs::SelfManaged).
#[derive(Debug)]
#[must_use]
pub struct Operator {
    configurations: Configurations,
    namespace: String,
    router: Router,
    fallback: Option<App>,
    listen: SocketAddr,
    admin_listen: SocketAddr,
    timing: Timing,
    readiness: Readiness,
    registry: Registry,
}

type App = BoxCloneSyncService<Request<RequestBody>, Response<UnsyncBoxBody<Bytes, BoxError>>, Infallible>;

impl Operator {
    /// Creates the operator `name`, called by the Service `name` of `namespace`. It serves webhooks on port 8443, and
    /// `/healthz`, `/readyz` and `/metrics` on port 8080.
    pub fn new(name: impl Into<String>, namespace: impl Into<String>, router: Router) -> Self {
        let (name, namespace) = (name.into(), namespace.into());
        let endpoint = Endpoint::service(&namespace, &name);
        Self {
            configurations: Configurations::new(name, endpoint).without_namespace(&namespace),
            namespace,
            router,
            fallback: None,
            listen: (Ipv4Addr::UNSPECIFIED, 8443).into(),
            admin_listen: (Ipv4Addr::UNSPECIFIED, 8080).into(),
            timing: Timing::default(),
            readiness: Readiness::default(),
            registry: Registry::default(),
        }
    }

    /// Registers `endpoint` in place of the Service, such as `Endpoint::url("https://10.0.0.9:8443")` for a process
    /// that runs outside of the cluster during development. The certificate is for its name. Objects in the operator's
    /// namespace stay excluded.
    pub fn with_endpoint(self, endpoint: Endpoint) -> Self {
        Self { configurations: self.configurations.with_endpoint(endpoint), ..self }
    }

    /// Sets the addresses of the webhooks and of `/healthz`, `/readyz` and `/metrics`.
    pub fn with_addresses(self, listen: SocketAddr, admin_listen: SocketAddr) -> Self {
        Self { listen, admin_listen, ..self }
    }

    /// Serves requests for paths that the router does not have with `app`, such as an axum router. They come from any
    /// client, without authentication.
    pub fn with_fallback<S, B>(self, app: S) -> Self
    where
        S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self { fallback: Some(boxed(app)), ..self }
    }

    /// Adds a label to the webhook configurations.
    ///
    /// On AKS, add `admissions.enforcer/disabled: "true"`. Without it, AKS adds a namespaceSelector to the webhooks,
    /// which the operator removes again.
    pub fn with_label(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { configurations: self.configurations.with_label(key, value), ..self }
    }

    /// Adds an annotation to the webhook configurations.
    pub fn with_annotation(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { configurations: self.configurations.with_annotation(key, value), ..self }
    }

    /// Sets the durations of rotations.
    pub fn with_timing(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// Adds the conditions of `readiness` to those of `/readyz`.
    pub fn with_readiness(self, readiness: Readiness) -> Self {
        Self { readiness, ..self }
    }

    /// Adds the metrics of `registry` to those of `/metrics`.
    pub fn with_registry(self, registry: Registry) -> Self {
        Self { registry, ..self }
    }

    /// Runs until `shutdown` completes and the requests in flight are answered.
    ///
    /// Connections wait until the first certificate is available. The webhooks are registered after that, so a process
    /// that cannot bind its ports leaves no registration behind. After `shutdown` nothing is written, and requests are
    /// answered until API servers have noticed ([`Server::serve`]).
    ///
    /// # Errors
    ///
    /// Returns an error if a name is invalid, the API server would reject the registration, or a port is not available.
    pub async fn run(
        self,
        client: Client,
        shutdown: impl Future<Output = ()> + Clone + Send + 'static,
    ) -> Result<(), BoxError> {
        let Self { configurations, namespace, router, fallback, timing, readiness, mut registry, .. } = self;
        let name = configurations.name().to_owned();
        let names = configurations.serving_names();
        let registration = Registration::new(client.clone(), configurations, &router)?;
        let certificates = Certificates::new(names?)
            .with_timing(timing)
            .with_targets(registration.targets())
            .with_metrics(&mut registry);
        let authority = certificates.self_managed(client, &namespace, &format!("{name}-ca"))?;
        let authority = authority.with_reporter(name.into());
        let tls = ServerTls::new(certificates.resolver()).build()?;
        let app = app(router.with_metrics(&mut registry), fallback);
        let admin = AdminServer::bind(self.admin_listen).await?;
        let server = Server::bind(self.listen).await?.with_readiness(readiness.clone());
        tracing::info!(webhooks = %server.local_addr(), admin = %admin.local_addr(), "listening");

        let trusted = readiness.condition("certificate trusted").follow(certificates.ready());
        let registered = readiness.condition("registered");
        let mut present = registration.present();
        // Only once: a registration that is changed later says nothing about this replica.
        let registered = async move { registered.set(present.wait_for(|present| *present).await.is_ok()) };
        let first_certificate = certificates.first_certificate();
        let serve = async {
            let is_leaving = tokio::select! {
                () = first_certificate => false,
                () = shutdown.clone() => true,
            };
            if !is_leaving {
                server.serve(tls, app, shutdown.clone()).await;
            }
        };
        let background = futures::future::join4(
            admin.serve(readiness, registry).map(drop),
            trusted,
            registered,
            certificates.run(authority, shutdown.clone()),
        );
        // The administrative server never ends, so neither does the background.
        tokio::select! {
            () = serve => {}
            _ = background => {}
        }
        Ok(())
    }
}

/// Passes requests for paths of `router` to it, and others to `fallback`.
fn app(router: Router, fallback: Option<App>) -> App {
    let Some(fallback) = fallback else { return boxed(router) };
    let webhooks = boxed(router.clone());
    BoxCloneSyncService::new(service_fn(move |request: Request<RequestBody>| {
        let is_webhook = router.serves(request.uri().path());
        if is_webhook { webhooks.clone() } else { fallback.clone() }.oneshot(request)
    }))
}

fn boxed<S, B>(app: S) -> App
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let boxed = |response: Response<B>| response.map(|body| body.map_err(Into::into).boxed_unsync());
    BoxCloneSyncService::new(app.map_response(boxed))
}
