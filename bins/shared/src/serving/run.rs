//! Wiring of operator and validator.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use kube::Client;
use lucid_admission::{
    BreakGlassReview, ClusterConfiguration, Events, InjectionMetrics, PodInjector, PodValidator,
    Registrations, ValidationMetrics, record_modes,
};
use lucid_keeper::Keeper;
use lucid_notary::client::ClientMetrics as VerifierMetrics;
use lucid_webhook::operator::Registration;
use lucid_webhook::{AdminServer, Readiness, Router, Server, shutdown_signal};
use prometheus_client::registry::Registry;

use crate::Error;
use crate::options::{OperatorArgs, ServeArgs, serve_and_close};
use crate::serving::certificates::Serving;
use crate::serving::rbac::{self, Needs};
use crate::serving::replica;
use crate::serving::watches::{self, Watches};

/// Maximum delay of the registration until the process is synced. The delay avoids calls of a replica that cannot answer.
/// It is short, because only a registered webhook can report to users why it is not synced.
const SYNC_PATIENCE: Duration = Duration::from_secs(5);
/// Time in which the keeper releases its Lease, for another replica to take over at once.
const LEAVE_PATIENCE: Duration = Duration::from_secs(2);
/// Maximum size of a request body: twice the largest object that etcd stores by default (1.5 MiB), with every byte
/// escaped to six as the API server does with `<`, `>` and `&`, plus a margin. A pod too large for the webhook could
/// not be created, or not audited.
const BODY_LIMIT: usize = 20 * 1024 * 1024;

/// Runs the operator until SIGTERM or SIGINT.
///
/// # Errors
///
/// Returns an error if the operator cannot start and a retry cannot help. An unreachable API server or a missing
/// permission is not an error: requests are retried, and `/readyz` reports unmet conditions.
pub async fn run_operator(args: &OperatorArgs) -> Result<(), Error> {
    run(args.needs(), args.registrations(), &args.common).await
}

/// Runs the validator until SIGTERM or SIGINT.
pub async fn run_validator(args: &ServeArgs) -> Result<(), Error> {
    run(args.needs(), args.registrations(), args).await
}

async fn run(needs: Needs<'_>, registrations: Registrations, args: &ServeArgs) -> Result<(), Error> {
    let Needs { program, serving, injects, keeper, .. } = needs;
    let mut registry = Registry::with_prefix("lucid");
    let notary = args.validation.notary(&VerifierMetrics::new(&mut registry))?;
    // The rest of the webhooks' timeout is for everything else.
    let patience = Duration::from_secs(args.serving.webhook_timeout_seconds.unsigned_abs().into()) / 2;
    let (recorder, opening) = args.decisions.recorder(&mut registry, patience)?;
    let audit = args.decisions.service(Arc::clone(&recorder))?;
    let injection_metrics = injects.then(|| InjectionMetrics::new(&mut registry));
    let validation_metrics = ValidationMetrics::new(&mut registry);

    let shutdown = shutdown_signal().map_err(Error::with_context("failed to listen for signals"))?;
    let mut router = Router::new().with_metrics(&mut registry);
    let certificates = Serving::new(program, serving, &mut registry).await?;
    let watches = Watches::default();
    watches.register(&mut registry);
    let unknown = Error::with_context("failed to find the API server (in the cluster, or by KUBECONFIG)");
    let client = watches.client().await.map_err(unknown)?;
    let prompt =
        watches::prompt_client().await.map_err(Error::with_context("failed to find the API server"))?;
    // Missing vital permissions keep `/readyz` failing anyway, and the others may be granted later.
    tokio::spawn(rbac::watch(client.clone(), needs.permissions(), &mut registry));

    let admin = AdminServer::bind(serving.admin_listen).await;
    let admin = admin.map_err(Error::with_context("LUCID_ADMIN_LISTEN"))?;
    let server = Server::bind(serving.listen).await.map_err(Error::with_context("LUCID_LISTEN"))?;
    let readiness = Readiness::default();
    let server = server.with_lame_duck(serving.lame_duck()).with_readiness(readiness.clone());
    tracing::info!(webhooks = %server.local_addr(), admin = %admin.local_addr(), "listening");
    tokio::spawn(watches.keep(readiness.condition("watches")));
    tokio::spawn(readiness.condition("certificates").follow(certificates.certificates.ready()));
    let is_serving = readiness.condition("serving");
    if let Some(ready) = recorder.ready() {
        tokio::spawn(readiness.condition("decision log").follow(ready));
    }

    let cluster = ClusterConfiguration::new(args.injection.settings()).with_policy(args.validation.policy());
    cluster.register_metrics(&mut registry);
    tokio::spawn(record_modes(&cluster, Arc::clone(&recorder)));
    let cluster = if injects { cluster.with_publishing() } else { cluster };
    let keeper = keeper.map(|actions| {
        let keeper = Keeper::new(client.clone(), cluster.clone(), &serving.namespace, replica())
            .with_prompt_client(prompt.clone())
            .with_actions(actions)
            .with_recorder(Arc::clone(&recorder))
            .with_metrics(&mut registry);
        match &notary {
            Some(notary) => keeper.with_notary(notary.clone()),
            None => keeper,
        }
    });
    tokio::spawn(admin.serve(readiness.clone(), registry));
    let synced = cluster.start(client.clone(), &serving.namespace, readiness.condition("configuration"));

    if let Some(metrics) = injection_metrics {
        cluster.report_auditor_status(client.clone(), notary.clone());
        let (registrations, cluster) = (registrations.clone(), cluster.clone());
        let injector = PodInjector::new(registrations, cluster, Arc::clone(&recorder))
            .with_metrics(metrics.clone())
            .with_events(Events::start(client.clone(), program.reporter(), metrics));
        router = injector.mount(router, client.clone());
    }
    let mut validator =
        PodValidator::new(registrations, cluster, Arc::clone(&recorder)).with_metrics(validation_metrics);
    if let Some(notary) = notary {
        validator = validator.with_notary(notary);
    }
    if args.validation.policy.break_glass.break_glass_access_review {
        validator = validator.with_break_glass_review(BreakGlassReview::new(client.clone()));
    }
    let audit = match &keeper {
        Some(keeper) => {
            let pods = keeper.running_pods();
            audit.with_running_pods(move || pods.overview())
        }
        None => audit,
    };
    let mut router = audit.mount(validator.mount(router, client.clone()));
    router = router.with_body_limit(BODY_LIMIT);
    router = router.service("/healthz", tower::service_fn(healthy));
    if serving.certificates.client_ca.is_some() {
        router = router.with_client_certificates();
    }

    let registration = register(client.clone(), needs, &router, &certificates)?;
    let keeper = keeper.map(|keeper| tokio::spawn(keeper.run(shutdown.clone())));
    let tls = certificates.tls.clone();
    let first_certificate = certificates.certificates.first_certificate();
    let keeping = tokio::spawn({
        let (args, shutdown) = (serving.clone(), shutdown.clone());
        async move {
            tokio::time::timeout(SYNC_PATIENCE, synced.wait()).await.ok();
            let targets = registration.map(|registration| registration.targets()).unwrap_or_default();
            certificates.run(program, &args, client, targets, shutdown).await;
        }
    });
    let serve = async {
        is_serving.set(true);
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
                is_serving.set(false);
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
        if let Some(keeper) = keeper {
            // It releases its Lease.
            tokio::time::timeout(LEAVE_PATIENCE, keeper).await.ok();
        }
        tracing::info!("stopped");
        let Some(end) = ended else { return Ok(()) };
        let how =
            end.err().map_or_else(|| "it returned before shutdown".to_owned(), |error| error.to_string());
        Err(Error::new(format!("the task for certificates and registration ended: {how}")))
    };
    serve_and_close(recorder, opening, serve).await
}

fn register(
    client: Client,
    needs: Needs<'_>,
    router: &Router,
    certificates: &Serving,
) -> Result<Option<Registration>, Error> {
    let Needs { program, serving, validates, .. } = needs;
    if !serving.certificates.registers() {
        return Ok(None);
    }
    let registration = Registration::new(client, serving.configurations(program), router);
    let registration = registration.map_err(Error::with_context("failed to register the webhooks"))?;
    let registration = registration.with_reporter(&program.reporter());
    let registration = match program.alternative_service {
        Some(service) => {
            registration.with_alternative_service(service, certificates.certificates.certified_names())
        }
        None => registration,
    };
    // Until the removal of an earlier registration has propagated, API servers still call this process.
    Ok(Some(if validates { registration } else { registration.without_validating() }))
}

/// Liveness probe on the webhook port, for clients that cannot reach the other one.
async fn healthy(_: Request<Bytes>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("ok\n")))
}
