//! Wiring of operator and validator.

use std::sync::Arc;

use lucid_admission::{
    BreakGlassReview, ClusterConfiguration, Events, InjectionMetrics, Injector, Registrations,
    ValidationMetrics, Validator,
};
use lucid_notary::client::Metrics as VerifierMetrics;
use lucid_webhook::Router;
use prometheus_client::registry::Registry;

use super::host::Host;
use super::rbac::Needs;
use crate::Error;
use crate::options::{OperatorArgs, ServeArgs, serve_and_close};

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
///
/// # Errors
///
/// See [`run_operator`].
pub async fn run_validator(args: &ServeArgs) -> Result<(), Error> {
    run(args.needs(), args.registrations(), args).await
}

async fn run(needs: Needs<'_>, registrations: Registrations, args: &ServeArgs) -> Result<(), Error> {
    let policy = args.validation.policy()?;
    let mut registry = Registry::with_prefix("lucid");
    let verifier = args.validation.verifier(&VerifierMetrics::new(&mut registry))?;
    let (recorder, opening) = args.decisions.recorder(&mut registry)?;
    let audit = args.decisions.service(Arc::clone(&recorder))?;
    let injection_metrics = needs.injects.then(|| InjectionMetrics::new(&mut registry));
    let validation_metrics = ValidationMetrics::new(&mut registry);
    let policy = Arc::new(policy.on_change(validation_metrics.exemptions_changed()));

    let host = Host::bind(needs, registry).await?;
    let client = || host.client.clone();
    if let Some(ready) = recorder.ready() {
        tokio::spawn(host.readiness.condition("decision log").follow(ready));
    }

    let cluster = ClusterConfiguration::new(args.injection.settings());
    let cluster = if needs.injects { cluster.with_publishing() } else { cluster };
    let synced = host.readiness.condition("configuration");
    let synced = cluster.start(client(), &needs.serving.namespace, synced);

    let mut router = Router::new();
    if let Some(metrics) = injection_metrics {
        cluster.report_auditor_status(client(), verifier.clone());
        let (registrations, cluster) = (registrations.clone(), cluster.clone());
        let injector = Injector::new(registrations, cluster, Arc::clone(&policy), Arc::clone(&recorder))
            .with_metrics(metrics.clone())
            .with_events(Events::start(client(), needs.program.reporter(), metrics));
        router = injector.serve(router);
    }
    let mut validator = Validator::new(registrations, cluster, policy, Arc::clone(&recorder))
        .with_metrics(validation_metrics);
    if let Some(verifier) = verifier {
        validator = validator.with_verifier(verifier);
    }
    if needs.reviews_break_glass {
        validator = validator.with_break_glass_review(BreakGlassReview::new(client()));
    }
    let router = audit.mount(validator.serve(router));

    serve_and_close(recorder, opening, host.serve(router, synced)).await
}
