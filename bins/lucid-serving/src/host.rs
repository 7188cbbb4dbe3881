//! Everything a process that serves webhooks needs, wired together.

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

use crate::Program;
use crate::args::ServingArgs;
use crate::certificates::{CertificatesError, Serving};
use crate::registration::{self, Register, RegistrationTarget};
use crate::rights::{self, MissingRights, Needs};
use crate::watches::Watches;

/// How long registration waits for the process to have something to answer with.
const SYNC_PATIENCE: Duration = Duration::from_secs(5);
/// Twice the largest object that etcd stores by default (1.5 MiB), with every byte escaped to six as the API server does
/// with `<`, `>` and `&`, and some room: a pod that cannot be sent to the webhook could not be created, or not audited.
const BODY_LIMIT: usize = 20 * 1024 * 1024;

/// Why a process could not start to serve.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum HostError {
    /// No handlers for SIGTERM and SIGINT.
    #[snafu(display("failed to listen for signals: {source}"))]
    Signals {
        /// What the system said.
        source: io::Error,
    },
    /// No certificates.
    #[snafu(transparent)]
    Certificates {
        /// What is wrong.
        source: CertificatesError,
    },
    /// No API server.
    #[snafu(display("failed to find the API server (in the cluster, or by KUBECONFIG): {source}"))]
    Client {
        /// What was tried.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// An address is taken.
    #[snafu(display("{variable}: {source}"))]
    Bind {
        /// Where it was set.
        variable: &'static str,
        /// Which, and why.
        source: BindError,
    },
    /// What keeps the certificates good has ended by itself.
    #[snafu(display("what keeps the certificates and the registration has ended: {how}"))]
    Ended {
        /// Why, as far as it is known.
        how: String,
    },
    /// Settings that the API server would not take.
    #[snafu(display("failed to register the webhooks: {source}"))]
    Registration {
        /// What is wrong.
        source: RegistrationError,
    },
}

/// The registry of a process's metrics, whose names begin with `lucid_`.
#[must_use]
pub fn registry() -> Registry {
    Registry::with_prefix("lucid")
}

/// A process that is about to serve webhooks. Its probes are answered already.
pub struct Host {
    program: Program,
    args: ServingArgs,
    client: Client,
    server: Server,
    metrics: Metrics,
    missing_rights: MissingRights,
    certificates: Serving,
    readiness: Readiness,
    certified: Condition,
    serving: Condition,
    shutdown: Shared<BoxFuture<'static, ()>>,
    registers_validating: bool,
}

impl Host {
    /// Takes the ports, and begins to answer `/healthz`, `/readyz` and `/metrics`: with what is in `registry`, the
    /// [`registry`] of the process, and the metrics of webhooks and certificates.
    ///
    /// # Errors
    ///
    /// When something that waiting does not cure is wrong.
    pub async fn bind(
        program: Program,
        args: &ServingArgs,
        mut registry: Registry,
    ) -> Result<Self, HostError> {
        let shutdown = lucid_process::shutdown_signal().context(SignalsSnafu)?.boxed().shared();
        let metrics = Metrics::new(&mut registry);
        let missing_rights = MissingRights::new(&mut registry);
        let certs_metrics = lucid_certs::metrics::Metrics::new(&mut registry);
        let certificates = Serving::new(program, args, certs_metrics).await?;
        let watches = Watches::default();
        watches.register(&mut registry);
        let client = watches.client().await.context(ClientSnafu)?;

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
            missing_rights,
            certificates,
            readiness,
            certified,
            serving,
            shutdown,
            registers_validating: true,
        })
    }

    /// Serves validating webhooks without registering them, and takes back what was registered before: somebody else
    /// does it now. Until API servers have heard of that, they still ask here.
    #[must_use]
    pub fn without_registering_validating(self) -> Self {
        Self { registers_validating: false, ..self }
    }

    /// The API server.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Says in the log, and by the metric `lucid_missing_rights`, which rights are missing. Nobody waits for that: what is
    /// vital keeps `/readyz` from being good anyway, and the rest may be granted later.
    pub fn report_missing_rights(&self, needs: Needs<'_>) {
        tokio::spawn(rights::watch(self.client(), needs.rights(), self.missing_rights.clone()));
    }

    /// One more condition of `/readyz`.
    #[must_use]
    pub fn condition(&self, name: &'static str) -> Condition {
        self.readiness.condition(name)
    }

    /// Serves and registers the webhooks of `router` until SIGTERM or SIGINT. An API server that cannot be reached, or
    /// refuses, is asked again until it answers. Connections wait until there is a first certificate.
    ///
    /// Nobody is registered before `synced` holds, so that nobody is asked who cannot answer yet. But not for long: the
    /// reason why not reaches users only from a webhook that answers.
    ///
    /// # Errors
    ///
    /// When the API server would refuse a registration.
    pub async fn serve(self, router: Router, synced: Condition) -> Result<(), HostError> {
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
                    // Without it nothing is renewed any more: better another process.
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
            Some(end) => {
                EndedSnafu { how: end.err().map(|error| error.to_string()).unwrap_or_default() }.fail()
            }
        }
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("program", &self.program).finish_non_exhaustive()
    }
}

/// The probe of the other port, for those who reach only this one.
async fn healthy(_: Request<Bytes>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("ok\n")))
}

/// Keeps the webhooks registered and their certificate trusted. Whoever leaves writes nothing any more: it would bring
/// back what an uninstallation removes.
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
    // Somebody else writes the bundle only.
    tokio::select! {
        biased;
        () = shutdown => {}
        () = certificates => {}
        () = registration::keep(targets) => {}
    }
}
