//! `lucid-operator run`: everything wired together.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kube::Client;
use lucid_audit::{OpenError, Recorder};
use lucid_chain::Overrides;
use lucid_validator::{ArgsError, ClusterConfiguration, Scope, Settings, Validator};
use lucid_webhook::registration::RegistrationError;
use lucid_webhook::{
    AdminServer, AdmissionRequest, BindError, Condition, Metrics, Readiness, Router, Server, Webhook,
};
use prometheus_client::registry::Registry;
use snafu::{ResultExt, Snafu};

use crate::certificates::{self, CertificatesError, Serving};
use crate::config::RunArgs;
use crate::injector::Injector;
use crate::registration::{self, MUTATE_PATH, RegistrationTarget, VALIDATE_PATH};

/// How many decisions stay in memory.
const RECENT_DECISIONS: usize = 1000;
/// How long the start waits for the configuration to be read.
const SYNC_PATIENCE: Duration = Duration::from_secs(5);
/// Twice the largest object that etcd stores by default (1.5 MiB), with every byte escaped to six as the API server does
/// with `<`, `>` and `&`, and some room: a pod that cannot be sent to the webhook could not be created, or not audited.
const BODY_LIMIT: usize = 20 * 1024 * 1024;

/// Why the operator could not start.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum RunError {
    /// No handlers for SIGTERM and SIGINT.
    #[snafu(display("failed to listen for signals: {source}"))]
    Signals {
        /// What the system said.
        source: io::Error,
    },
    /// Options that contradict each other.
    #[snafu(transparent)]
    Args {
        /// Which, and what is accepted.
        source: ArgsError,
    },
    /// No file for decisions.
    #[snafu(display("LUCID_DECISION_LOG: {source}"))]
    DecisionLog {
        /// What is wrong.
        source: OpenError,
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
    /// Settings that the API server would not take.
    #[snafu(display("failed to register the webhooks: {source}"))]
    Registration {
        /// What is wrong.
        source: RegistrationError,
    },
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
///
/// When something that waiting does not cure is wrong at start. An API server that cannot be reached, or refuses, is
/// asked again until it answers; `/readyz` tells what is missing.
pub async fn run(args: RunArgs) -> Result<(), RunError> {
    let shutdown = lucid_process::shutdown_signal().context(SignalsSnafu)?.shared();
    let verifier = args.validation.verifier()?;
    let recorder = Recorder::new(RECENT_DECISIONS);
    let recorder = Arc::new(match &args.decision_log {
        Some(path) => recorder.with_file(path).context(DecisionLogSnafu)?,
        None => recorder,
    });
    let mut registry = Registry::with_prefix("lucid");
    let metrics = Metrics::new(&mut registry);
    let certificates = Serving::new(&args, lucid_certs::metrics::Metrics::new(&mut registry)).await?;
    let client = Client::try_default().await.context(ClientSnafu)?;

    let admin = AdminServer::bind(args.admin_listen);
    let admin = admin.await.context(BindSnafu { variable: "LUCID_ADMIN_LISTEN" })?;
    let server = Server::bind(args.listen).await.context(BindSnafu { variable: "LUCID_LISTEN" })?;
    let server = server.with_lame_duck(args.lame_duck());
    tracing::info!(webhooks = %server.local_addr(), admin = %admin.local_addr(), "listening");
    let readiness = Readiness::default();
    let synced = readiness.condition("configuration");
    let certified = readiness.condition("certificates");
    let serving = readiness.condition("serving");
    tokio::spawn(admin.serve(readiness, registry));

    let cluster = ClusterConfiguration::new(settings(&args));
    let watching = watch(cluster.clone(), client.clone(), args.namespace.clone(), synced.clone());
    tokio::spawn(watching);
    let scope = Scope::new(&args.namespace);
    let strictness = args.validation.strictness();
    let injector =
        Injector { scope: scope.clone(), cluster: cluster.clone(), recorder: Arc::clone(&recorder) };
    let validator = Validator { scope, cluster, strictness, verifier, recorder };
    let inject = move |request: AdmissionRequest| injector.clone().inject(request);
    let validate = move |request: AdmissionRequest| validator.clone().validate(request);
    let calls = args.calls();
    let router = Router::new()
        .webhook(
            MUTATE_PATH,
            Webhook::mutating(registration::MUTATE_NAME, inject).with_registration(|r| calls.mutating(r)),
        )
        .webhook(
            VALIDATE_PATH,
            Webhook::validating(registration::VALIDATE_NAME, validate)
                .with_registration(|r| calls.validating(r)),
        )
        .with_metrics(metrics)
        .with_body_limit(BODY_LIMIT);
    let recorder = kube::runtime::events::Recorder::new(client.clone(), certificates::reporter());
    let targets = registration::registered(&client, &args.configurations(), &router, &recorder);
    let targets = targets.context(RegistrationSnafu)?;

    let tls = certificates.tls.clone();
    tokio::spawn(follow(certificates.ready.clone(), certified));
    tokio::spawn({
        let (args, shutdown) = (args.clone(), shutdown.clone());
        async move {
            // The configuration first, so that nobody is registered who cannot answer yet. But not for long: the reason
            // why it cannot be read reaches users only from a webhook that answers.
            tokio::time::timeout(SYNC_PATIENCE, synced.wait()).await.ok();
            register(args, client, certificates, targets, shutdown).await;
        }
    });

    serving.set(true);
    tracing::info!("ready");
    let leaving = async {
        shutdown.await;
        serving.set(false);
    };
    server.serve(tls, router, leaving).await;
    tracing::info!("stopped");
    Ok(())
}

fn settings(args: &RunArgs) -> Settings {
    let injection = &args.injection;
    Settings {
        chain: injection.chain.clone(),
        overrides: Overrides {
            audit_mode: injection.audit_mode,
            target_port: injection.target_port,
            direction: injection.direction,
        },
        allow_skip: injection.allow_skip,
    }
}

async fn watch(cluster: ClusterConfiguration, client: Client, namespace: String, synced: Condition) {
    match cluster.watch(client, &namespace, &synced).await {}
}

/// Keeps the webhooks registered and their certificate trusted. Whoever leaves writes nothing any more: it would bring
/// back what an uninstallation removes.
async fn register(
    args: RunArgs,
    client: Client,
    certificates: Serving,
    targets: Vec<Arc<dyn RegistrationTarget>>,
    shutdown: impl Future<Output = ()> + Clone,
) {
    let bundles = targets.iter().map(|target| Arc::clone(target).as_target());
    let certificates = certificates.run(&args, client, bundles.collect::<Vec<_>>(), shutdown.clone());
    if args.certificates.publishes_trust() {
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

/// Lets a condition hold as long as somebody says so.
pub(crate) async fn follow(mut ready: tokio::sync::watch::Receiver<bool>, condition: Condition) {
    loop {
        condition.set(*ready.borrow_and_update());
        if ready.changed().await.is_err() {
            return condition.set(false);
        }
    }
}
