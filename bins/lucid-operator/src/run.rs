//! `lucid-operator run`: everything wired together.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kube::Client;
use kube::runtime::events::Reporter;
use lucid_audit::{OpenError, Recorder};
use lucid_certs::{NamesError, SelfManaged, SelfManagedConfig, ServingNames, TlsError, server_config};
use lucid_chain::Overrides;
use lucid_validator::{ArgsError, ClusterConfiguration, Scope, Settings, Validator};
use lucid_webhook::{AdminServer, BindError, Condition, Metrics, Readiness, Router, Server};
use prometheus_client::registry::Registry;
use snafu::{ResultExt, Snafu};
use tower::service_fn;

use crate::config::RunArgs;
use crate::injector::Injector;
use crate::registration::{MUTATE_PATH, NAME, Publisher, SERVICE, VALIDATE_PATH};

/// How many decisions stay in memory.
const RECENT_DECISIONS: usize = 1000;
/// Pauses between attempts to get certificates from an API server that does not play along.
const RETRY: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30);

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
    #[snafu(transparent)]
    DecisionLog {
        /// What is wrong.
        source: OpenError,
    },
    /// No names for the serving certificate.
    #[snafu(display("failed to make the names of the serving certificate: {source}"))]
    Names {
        /// What is wrong.
        source: NamesError,
    },
    /// No API server.
    #[snafu(display("failed to find the API server (in the cluster, or by KUBECONFIG): {source}"))]
    Client {
        /// What was tried.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// An address is taken.
    #[snafu(transparent)]
    Bind {
        /// Which.
        source: BindError,
    },
    /// No TLS.
    #[snafu(display("failed to set up TLS: {source}"))]
    Tls {
        /// What is wrong.
        source: TlsError,
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
        Some(path) => recorder.with_file(path)?,
        None => recorder,
    });
    let names = serving_names(&args).context(NamesSnafu)?;
    let client = Client::try_default().await.context(ClientSnafu)?;

    let admin = AdminServer::bind(args.admin_listen).await?;
    let server = Server::bind(args.listen).await?.with_lame_duck(args.lame_duck());
    tracing::info!(webhooks = %server.local_addr(), admin = %admin.local_addr(), "listening");
    let readiness = Readiness::default();
    let synced = readiness.condition("configuration");
    let certified = readiness.condition("certificates");
    let serving = readiness.condition("serving");
    let mut registry = Registry::with_prefix("lucid");
    let metrics = Metrics::new(&mut registry);
    tokio::spawn(admin.serve(readiness, registry));

    let cluster = ClusterConfiguration::new(settings(&args));
    let watching = watch(cluster.clone(), client.clone(), args.namespace.clone(), synced.clone());
    tokio::spawn(watching);
    // Registered is who can answer: first the configuration, then the certificates, and with them the registration.
    let certificates = async {
        synced.wait().await;
        certificates(&args, client, names).await
    };
    let certificates = tokio::select! {
        certificates = certificates => certificates,
        () = shutdown.clone() => return Ok(()),
    };
    let tls = server_config(certificates.resolver()).context(TlsSnafu)?;
    tokio::spawn(follow(certificates.ready(), certified));
    tokio::spawn(certificates.run(std::future::pending()));

    let scope = Scope::new(&args.namespace);
    let strictness = args.validation.strictness();
    let injector =
        Injector { scope: scope.clone(), cluster: cluster.clone(), recorder: Arc::clone(&recorder) };
    let validator = Validator { scope, cluster, strictness, verifier, recorder };
    let router = Router::new()
        .mutate(MUTATE_PATH, service_fn(move |request| injector.clone().inject(request)))
        .validate(VALIDATE_PATH, service_fn(move |request| validator.clone().validate(request)))
        .with_metrics(metrics);
    serving.set(true);
    tracing::info!("ready");
    let leaving = async {
        shutdown.await;
        serving.set(false);
    };
    server.serve(Arc::new(tls), router, leaving).await;
    tracing::info!("stopped");
    Ok(())
}

fn serving_names(args: &RunArgs) -> Result<ServingNames, NamesError> {
    let names = ServingNames::for_services(&args.namespace, &[NAME, SERVICE])?;
    match args.registration.webhook_url.as_ref().and_then(url::Url::host) {
        Some(url::Host::Ipv6(address)) => names.with_host(&address.to_string()),
        Some(host) => names.with_host(&host.to_string()),
        None => Ok(names),
    }
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

/// Gets the certificates and registers the webhooks with them.
async fn certificates(args: &RunArgs, client: Client, names: ServingNames) -> SelfManaged<Publisher> {
    let mut pause = *RETRY.start();
    loop {
        let reporter = Reporter { controller: NAME.to_owned(), instance: std::env::var("HOSTNAME").ok() };
        let config = SelfManagedConfig::new(
            client.clone(),
            &args.namespace,
            &args.registration.ca_secret,
            names.clone(),
            reporter,
        );
        match SelfManaged::start(config, Publisher::new(client.clone(), args.registration())).await {
            Ok(certificates) => return certificates,
            Err(error) => {
                let error = lucid_process::with_causes(&error);
                tracing::error!(error, retry_in = ?pause, "failed to get certificates and register the webhooks");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(*RETRY.end());
    }
}

async fn follow(mut ready: tokio::sync::watch::Receiver<bool>, condition: Condition) {
    loop {
        condition.set(*ready.borrow_and_update());
        if ready.changed().await.is_err() {
            return;
        }
    }
}
