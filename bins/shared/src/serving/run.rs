//! Wiring of operator and validator.

use std::sync::Arc;

use lucid_admission::{
    BreakGlassReview, ClusterConfiguration, Events, InjectionMetrics, Injector, Registrations,
    ValidationMetrics, Validator,
};
use lucid_notary::client::Metrics as VerifierMetrics;
use lucid_webhook::Router;

use super::rbac::Needs;
use super::{Host, RunError, registry};
use crate::options::{
    AuditEndpointArgs, DecisionArgs, InjectionArgs, OperatorArgs, ValidationArgs, ValidatorArgs,
    serve_and_close,
};

/// Runs the operator until SIGTERM or SIGINT.
///
/// # Errors
///
/// Returns an error if the operator cannot start and a retry cannot help. An unreachable API server or a missing
/// permission is not an error: requests are retried, and `/readyz` reports unmet conditions.
pub async fn run_operator(args: &OperatorArgs) -> Result<(), RunError> {
    let OperatorArgs { decisions, audit, injection, validation, .. } = args;
    run(args.needs(), args.registrations(), decisions, audit, injection, validation).await
}

/// Runs the validator until SIGTERM or SIGINT.
///
/// # Errors
///
/// See [`run_operator`].
pub async fn run_validator(args: &ValidatorArgs) -> Result<(), RunError> {
    let ValidatorArgs { decisions, audit, injection, validation, .. } = args;
    run(args.needs(), args.registrations(), decisions, audit, injection, validation).await
}

async fn run(
    needs: Needs<'_>,
    registrations: Registrations,
    decisions: &DecisionArgs,
    audit: &AuditEndpointArgs,
    injection: &InjectionArgs,
    validation: &ValidationArgs,
) -> Result<(), RunError> {
    let policy = validation.policy()?;
    let mut registry = registry();
    let verifier = validation.verifier(&VerifierMetrics::new(&mut registry))?;
    let (recorder, opening) = decisions.recorder(&mut registry)?;
    let audit = audit.service(Arc::clone(&recorder))?;
    let injection_metrics = needs.injects.then(|| InjectionMetrics::new(&mut registry));
    let validation_metrics = ValidationMetrics::new(&mut registry);
    let policy = Arc::new(policy.on_change(validation_metrics.exemptions_changed()));

    let host = Host::bind(needs, registry).await?;
    if let Some(ready) = recorder.ready() {
        tokio::spawn(host.condition("decision log").follow(ready));
    }

    let cluster = ClusterConfiguration::new(injection.settings());
    let cluster = if needs.injects { cluster.with_publishing() } else { cluster };
    let synced = cluster.start(host.client(), &needs.serving.namespace, host.condition("configuration"));

    let mut router = Router::new();
    if let Some(metrics) = injection_metrics {
        cluster.report_auditor_status(host.client(), verifier.clone());
        let (registrations, cluster) = (registrations.clone(), cluster.clone());
        let injector = Injector::new(registrations, cluster, Arc::clone(&policy), Arc::clone(&recorder))
            .with_metrics(metrics.clone())
            .with_events(Events::start(host.client(), needs.program.reporter(), metrics));
        router = injector.serve(router);
    }
    let mut validator = Validator::new(registrations, cluster, policy, Arc::clone(&recorder))
        .with_metrics(validation_metrics);
    if let Some(verifier) = verifier {
        validator = validator.with_verifier(verifier);
    }
    if needs.reviews_break_glass {
        validator = validator.with_break_glass_review(BreakGlassReview::new(host.client()));
    }
    let router = audit.mount(validator.serve(router));

    serve_and_close(recorder, opening, host.serve(router, synced)).await
}
