//! Composition of everything that a process with webhooks needs.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use http::{Request, Response};
use http_body_util::Full;
use kube::Client;
use lucid_webhook::{AdminServer, Condition, Metrics, Readiness, Router, Server};
use prometheus_client::registry::Registry;

use crate::Error;
use crate::serving::certificates::Serving;
use crate::serving::rbac::{self, MissingPermissions, Needs};
use crate::serving::registration::Registration;
use crate::serving::watches::Watches;

/// Maximum delay of the registration until the process is synced.
const SYNC_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum size of a request body: twice the largest object that etcd stores by default (1.5 MiB), with every byte
/// escaped to six as the API server does with `<`, `>` and `&`, plus a margin. A pod too large for the webhook could
/// not be created, or not audited.
const BODY_LIMIT: usize = 20 * 1024 * 1024;

/// A process that is about to serve webhooks. It already answers probes.
pub(super) struct Host<'a> {
    needs: Needs<'a>,
    pub(super) client: Client,
    pub(super) readiness: Readiness,
    server: Server,
    metrics: Metrics,
    certificates: Serving,
    certified: Condition,
    serving: Condition,
    shutdown: Shared<BoxFuture<'static, ()>>,
}

impl<'a> Host<'a> {
    /// Binds the ports, and starts to serve `/healthz`, `/readyz` and `/metrics`. The latter contains `registry`, to
    /// which this adds the metrics of webhooks and certificates.
    ///
    /// Missing RBAC permissions are reported in the log and by the metric `lucid_missing_permissions`, in a background task.
    /// Missing vital permissions keep `/readyz` failing anyway, and the others may be granted later.
    ///
    /// # Errors
    ///
    /// Returns an error if an option is invalid, an address is unavailable or no API server is configured. Waiting
    /// helps with none of these.
    pub(super) async fn bind(needs: Needs<'a>, mut registry: Registry) -> Result<Self, Error> {
        let args = needs.serving;
        let shutdown =
            crate::shutdown_signal().map_err(Error::with_context("failed to listen for signals"))?;
        let metrics = Metrics::new(&mut registry);
        let missing_permissions = MissingPermissions::new(&mut registry);
        let certificate_metrics = lucid_certs::metrics::Metrics::new(&mut registry);
        let certificates = Serving::new(needs.program, args, certificate_metrics).await?;
        let watches = Watches::default();
        watches.register(&mut registry);
        let unknown = Error::with_context("failed to find the API server (in the cluster, or by KUBECONFIG)");
        let client = watches.client().await.map_err(unknown)?;
        tokio::spawn(rbac::watch(client.clone(), needs.permissions(), missing_permissions));

        let admin = AdminServer::bind(args.admin_listen).await;
        let admin = admin.map_err(Error::with_context("LUCID_ADMIN_LISTEN"))?;
        let server = Server::bind(args.listen).await.map_err(Error::with_context("LUCID_LISTEN"))?;
        let readiness = Readiness::default();
        let server = server.with_lame_duck(args.lame_duck()).with_readiness(readiness.clone());
        tracing::info!(webhooks = %server.local_addr(), admin = %admin.local_addr(), "listening");
        tokio::spawn(watches.keep(readiness.condition("watches")));
        let certified = readiness.condition("certificates");
        let serving = readiness.condition("serving");
        tokio::spawn(admin.serve(readiness.clone(), registry));
        let shutdown = shutdown.boxed().shared();
        Ok(Self { needs, client, readiness, server, metrics, certificates, certified, serving, shutdown })
    }

    /// Serves and registers the webhooks of `router` until SIGTERM or SIGINT. Retries while the API server is
    /// unreachable or rejects requests. Connections wait for the first certificate.
    ///
    /// Registration waits for `synced`, so that the API server does not call a replica that cannot answer. The wait is
    /// short: only a registered webhook can report to users why it is not synced.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server would reject a registration, or the task for certificates and registration
    /// ends.
    pub(super) async fn serve(self, router: Router, synced: Condition) -> Result<(), Error> {
        let Self { needs, client, server, metrics, certificates, certified, serving, shutdown, .. } = self;
        let router = router.with_metrics(metrics).with_body_limit(BODY_LIMIT);
        let router = router.service("/healthz", tower::service_fn(healthy));
        let options = &needs.serving.certificates;
        let router = match options.client_ca {
            Some(_) => router.with_client_certificates(),
            None => router,
        };
        let registration = Registration::new(client.clone(), needs, &router)?;

        let tls = certificates.tls.clone();
        let first_certificate = certificates.certificates.first_certificate();
        tokio::spawn(certified.follow(certificates.certificates.ready()));
        let keeping = tokio::spawn({
            let (program, args, shutdown) = (needs.program, needs.serving.clone(), shutdown.clone());
            async move {
                tokio::time::timeout(SYNC_PATIENCE, synced.wait()).await.ok();
                let certificates =
                    certificates.run(program, &args, client, registration.trust_targets(), shutdown.clone());
                tokio::select! {
                    () = certificates => {}
                    never = registration.keep(args.certificates.publishes_trust(), shutdown) => match never {},
                }
            }
        });

        serving.set(true);
        tracing::info!("ready");
        let mut ended = None;
        {
            let mut leaving = pin!(async {
                tokio::select! {
                    biased;
                    () = shutdown => {}
                    // Without this task no certificate is renewed, so the process exits.
                    end = keeping => ended = Some(end),
                }
                serving.set(false);
            });
            let is_leaving = tokio::select! {
                biased;
                () = &mut leaving => true,
                () = first_certificate => false,
            };
            if !is_leaving {
                server.serve(tls, router, leaving).await;
            }
        }
        tracing::info!("stopped");
        let Some(end) = ended else { return Ok(()) };
        let how =
            end.err().map_or_else(|| "it returned before shutdown".to_owned(), |error| error.to_string());
        Err(Error::new(format!("the task for certificates and registration ended: {how}")))
    }
}

/// Liveness probe on the webhook port, for clients that cannot reach the other one.
async fn healthy(_: Request<Bytes>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("ok\n")))
}
