//! `lucid-operator run`: connects the components and serves.

use std::sync::Arc;

use lucid_admission::{
    AuditorStatuses, BreakGlassReview, ClusterConfiguration, Events, InjectionMetrics, Injector,
    ValidationMetrics, Validator,
};
use lucid_notary::client::Metrics as VerifierMetrics;
use lucid_shared::options::{OperatorArgs, close, report_readiness};
use lucid_shared::serving::{self, Host, OPERATOR, RunError};
use lucid_webhook::Router;

/// Runs the operator until SIGTERM or SIGINT.
///
/// # Errors
///
/// Returns an error if the operator cannot start. An unreachable API server or a missing permission is not an error:
/// requests are retried, and `/readyz` reports unmet conditions.
pub(crate) async fn run(args: OperatorArgs) -> Result<(), RunError> {
    let policy = args.validation.policy()?;
    let mut registry = serving::registry();
    let verifier = args.validation.verifier(&VerifierMetrics::new(&mut registry))?;
    let recorder = args.decisions.recorder(&mut registry)?;
    let audit = args.audit.service(Arc::clone(&recorder))?;
    let injection_metrics = InjectionMetrics::new(&mut registry);
    let validation_metrics = ValidationMetrics::new(&mut registry);
    let policy = Arc::new(policy.on_change(validation_metrics.exemptions_changed()));
    let host = Host::bind(OPERATOR, &args.serving, registry).await?;
    host.report_missing_permissions(args.needs());
    report_readiness(&recorder, &host);
    let host = if args.registration.validate { host } else { host.without_registering_validating() };

    let cluster = ClusterConfiguration::new(args.injection.settings());
    let synced = cluster.keep(host.client(), &args.serving.namespace, host.condition("configuration"));
    cluster.follow_generations(host.client(), &args.serving.namespace);
    cluster.publish(host.client(), &args.serving.namespace, host.condition("settings"));
    tokio::spawn(AuditorStatuses::new(cluster.clone(), verifier.clone()).keep(host.client()));

    let registrations = args.registrations();
    let injector = Injector::new(cluster.clone(), Arc::clone(&policy), Arc::clone(&recorder))
        .with_metrics(injection_metrics.clone())
        .with_events(Events::start(host.client(), OPERATOR.reporter(), injection_metrics));
    let mut validator =
        Validator::new(cluster, policy, Arc::clone(&recorder)).with_metrics(validation_metrics);
    if let Some(verifier) = verifier {
        validator = validator.with_verifier(verifier);
    }
    if args.validation.policy.break_glass.break_glass_access_review {
        validator = validator.with_break_glass_review(BreakGlassReview::new(host.client()));
    }
    let router = injector.serve(Router::new(), &registrations);
    let router = audit.mount(validator.serve(router, &registrations));
    let served = host.serve(router, synced).await;
    close(recorder).await;
    Ok(served?)
}
