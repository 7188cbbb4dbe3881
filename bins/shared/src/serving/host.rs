//! Composition of everything that a process with webhooks needs.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use http::{Request, Response};
use http_body_util::Full;
use kube::Client;
use kube::runtime::events::Recorder;
use lucid_webhook::registration::RegistrationError;
use lucid_webhook::{AdminServer, BindError, Condition, Metrics, Readiness, Router, Server};
use prometheus_client::registry::Registry;
use snafu::{ResultExt, Snafu};

use crate::serving::Program;
use crate::serving::args::ServingArgs;
use crate::serving::certificates::{CertificatesError, Serving};
use crate::serving::rbac::{self, MissingPermissions, Needs};
use crate::serving::registration::{self, Register, RegistrationTarget};
use crate::serving::watches::Watches;

/// Maximum delay of the registration until the process is synced.
const SYNC_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum size of a request body: twice the largest object that etcd stores by default (1.5 MiB), with every byte
/// escaped to six as the API server does with `<`, `>` and `&`, plus a margin. A pod too large for the webhook could
/// not be created, or not audited.
const BODY_LIMIT: usize = 20 * 1024 * 1024;

/// A process could not start serving, or stopped unexpectedly.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum HostError {
    /// The handlers of SIGTERM and SIGINT cannot be installed.
    #[snafu(display("failed to listen for signals: {source}"))]
    Signals {
        /// Error of the operating system.
        source: io::Error,
    },
    /// The certificates cannot be set up.
    #[snafu(transparent)]
    Certificates {
        /// Error of the setup.
        source: CertificatesError,
    },
    /// The API server is not configured.
    #[snafu(display("failed to find the API server (in the cluster, or by KUBECONFIG): {source}"))]
    Client {
        /// Configurations that were tried.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// An address is unavailable.
    #[snafu(display("{variable}: {source}"))]
    Bind {
        /// Environment variable of the address.
        variable: &'static str,
        /// Address and error.
        source: BindError,
    },
    /// The task for certificates and registration ended unexpectedly.
    #[snafu(display("the task for certificates and registration ended: {how}"))]
    Ended {
        /// Panic message, if known.
        how: String,
    },
    /// The API server would reject the registration.
    #[snafu(display("failed to register the webhooks: {source}"))]
    Registration {
        /// Invalid setting.
        source: RegistrationError,
    },
}

/// Creates the registry of a process's metrics, whose names begin with `lucid_`.
pub(crate) fn registry() -> Registry {
    Registry::with_prefix("lucid")
}

/// A process that is about to serve webhooks. It already answers probes.
pub(crate) struct Host {
    program: Program,
    args: ServingArgs,
    client: Client,
    server: Server,
    metrics: Metrics,
    certificates: Serving,
    readiness: Readiness,
    certified: Condition,
    serving: Condition,
    shutdown: Shared<BoxFuture<'static, ()>>,
    /// `false` if another program registers the validating webhooks. Until the removal of an earlier registration has
    /// propagated, API servers still call this process.
    registers_validating: bool,
}

impl Host {
    /// Binds the ports, and starts to serve `/healthz`, `/readyz` and `/metrics`. The latter contains `registry`, the
    /// [`registry`] of the process, to which this adds the metrics of webhooks and certificates.
    ///
    /// Missing RBAC permissions are reported in the log and by the metric `lucid_missing_permissions`, in a background task.
    /// Missing vital permissions keep `/readyz` failing anyway, and the others may be granted later.
    ///
    /// # Errors
    ///
    /// Returns an error if an option is invalid, an address is unavailable or no API server is configured. Waiting
    /// helps with none of these.
    pub(crate) async fn bind(needs: Needs<'_>, mut registry: Registry) -> Result<Self, HostError> {
        let Needs { program, serving: args, .. } = needs;
        let shutdown = crate::shutdown_signal().context(SignalsSnafu)?.boxed().shared();
        let metrics = Metrics::new(&mut registry);
        let missing_permissions = MissingPermissions::new(&mut registry);
        let certs_metrics = lucid_certs::metrics::Metrics::new(&mut registry);
        let certificates = Serving::new(program, args, certs_metrics).await?;
        let watches = Watches::default();
        watches.register(&mut registry);
        let client = watches.client().await.context(ClientSnafu)?;
        tokio::spawn(rbac::watch(client.clone(), needs.permissions(), missing_permissions));

        let admin = AdminServer::bind(args.admin_listen);
        let admin = admin.await.context(BindSnafu { variable: "LUCID_ADMIN_LISTEN" })?;
        let server = Server::bind(args.listen).await.context(BindSnafu { variable: "LUCID_LISTEN" })?;
        let readiness = Readiness::default();
        let server = server.with_lame_duck(args.lame_duck()).with_readiness(readiness.clone());
        tracing::info!(webhooks = %server.local_addr(), admin = %admin.local_addr(), "listening");
        tokio::spawn(watches.keep(readiness.condition("watches")));
        let certified = readiness.condition("certificates");
        let serving = readiness.condition("serving");
        tokio::spawn(admin.serve(readiness.clone(), registry));
        let args = args.clone();
        Ok(Self {
            program,
            args,
            client,
            server,
            metrics,
            certificates,
            readiness,
            certified,
            serving,
            shutdown,
            registers_validating: needs.validates,
        })
    }

    /// Returns a client for the API server.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Adds a condition to `/readyz`.
    pub(crate) fn condition(&self, name: &'static str) -> Condition {
        self.readiness.condition(name)
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
    pub(crate) async fn serve(self, router: Router, synced: Condition) -> Result<(), HostError> {
        let Self {
            program, args, client, server, metrics, certificates, certified, serving, shutdown, ..
        } = self;
        let router = router.with_metrics(metrics).with_body_limit(BODY_LIMIT);
        let router = router.service("/healthz", tower::service_fn(healthy));
        let router =
            if args.certificates.client_ca.is_some() { router.with_client_certificates() } else { router };
        let recorder = Recorder::new(client.clone(), program.reporter());
        let configurations = args.configurations(program);
        let registering = Register { name: program.name, client: &client, recorder: &recorder };
        let mutating = registering.mutating(&configurations, &router).context(RegistrationSnafu)?;
        let validating = registering.validating(&configurations, &router).context(RegistrationSnafu)?;
        let validating = validating.filter(|_| self.registers_validating);
        let targets = mutating.into_iter().chain(validating).filter(|_| args.certificates.registers());
        let targets = targets.collect();
        if !self.registers_validating && args.certificates.registers() {
            tokio::spawn(registration::withdraw_validating(program.name, client.clone()));
        }

        let tls = certificates.tls.clone();
        let first_certificate = certificates.certificates.first_certificate();
        tokio::spawn(certified.follow(certificates.ready.clone()));
        let keeping = tokio::spawn({
            let shutdown = shutdown.clone();
            async move {
                tokio::time::timeout(SYNC_PATIENCE, synced.wait()).await.ok();
                register(program, args, client, certificates, targets, shutdown).await;
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
        match ended {
            None => Ok(()),
            Some(end) => EndedSnafu {
                how: end
                    .err()
                    .map_or_else(|| "it returned before shutdown".to_owned(), |error| error.to_string()),
            }
            .fail(),
        }
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("program", &self.program).finish_non_exhaustive()
    }
}

/// Liveness probe on the webhook port, for clients that cannot reach the other one.
async fn healthy(_: Request<Bytes>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("ok\n")))
}

/// Keeps the webhooks registered and their certificate trusted. Stops writing at shutdown: a late write would restore
/// objects that an uninstallation removes.
async fn register(
    program: Program,
    args: ServingArgs,
    client: Client,
    certificates: Serving,
    targets: Vec<Arc<dyn RegistrationTarget>>,
    shutdown: impl Future<Output = ()> + Clone,
) {
    let bundles = targets.iter().map(|target| Arc::clone(target).as_target());
    let bundles = bundles.collect::<Vec<_>>();
    let certificates = certificates.run(program, &args, client, bundles, shutdown.clone());
    if args.certificates.publishes_trust() || !args.certificates.registers() {
        return certificates.await;
    }
    // The bundle is managed externally.
    tokio::select! {
        biased;
        () = shutdown => {}
        () = certificates => {}
        () = registration::keep(targets) => {}
    }
}
