//! `lucid-validator run`: connects the components and serves.

use std::sync::Arc;

use lucid_admission::{BreakGlassReview, ClusterConfiguration, ValidationMetrics, Validator};
use lucid_notary::client::Metrics as VerifierMetrics;
use lucid_shared::options::{ValidatorArgs, close, report_readiness};
use lucid_shared::serving::{self, Host, RunError, VALIDATOR};
use lucid_webhook::Router;

/// Runs the validator until SIGTERM or SIGINT.
///
/// # Errors
///
/// Returns an error if the validator cannot start and a retry cannot help. While the API server is unreachable or
/// rejects requests, the process retries, and `/readyz` reports unmet conditions.
pub(crate) async fn run(args: ValidatorArgs) -> Result<(), RunError> {
    let policy = args.validation.policy()?;
    let mut registry = serving::registry();
    let verifier = args.validation.verifier(&VerifierMetrics::new(&mut registry))?;
    let recorder = args.decisions.recorder(&mut registry)?;
    let audit = args.audit.service(Arc::clone(&recorder))?;
    let metrics = ValidationMetrics::new(&mut registry);
    let policy = Arc::new(policy.on_change(metrics.exemptions_changed()));
    let host = Host::bind(VALIDATOR, &args.serving, registry).await?;
    host.report_missing_permissions(args.needs());
    report_readiness(&recorder, &host);

    let cluster = ClusterConfiguration::new(args.injection.settings());
    let synced = cluster.keep(host.client(), &args.serving.namespace, host.condition("configuration"));
    cluster.follow_generations(host.client(), &args.serving.namespace);

    let mut validator = Validator::new(cluster, policy, Arc::clone(&recorder)).with_metrics(metrics);
    if let Some(verifier) = verifier {
        validator = validator.with_verifier(verifier);
    }
    if args.validation.policy.break_glass.break_glass_access_review {
        validator = validator.with_break_glass_review(BreakGlassReview::new(host.client()));
    }
    let router = audit.mount(validator.serve(Router::new(), &args.registrations()));
    let served = host.serve(router, synced).await;
    close(recorder).await;
    Ok(served?)
}
