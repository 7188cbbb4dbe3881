//! `lucid-operator run`: connects the components and serves.

use std::sync::Arc;

use lucid_cluster::ClusterConfiguration;
use lucid_notary::client::Metrics as VerifierMetrics;
use lucid_serving::{Host, Program};
use lucid_validator::{BreakGlassReview, RunError, Validator};
use lucid_webhook::{AdmissionRequest, FailureAction, Router, Webhook};

use crate::auditors::Statuses;
use crate::config::RunArgs;
use crate::events::Events;
use crate::injector::Injector;
use crate::metrics::Metrics;
use crate::registration::{self, MUTATE_NAME, MUTATE_PATH};

/// Name of the operator and of its Service.
pub(crate) const PROGRAM: Program = Program { name: "lucid-operator", service: "lucid-operator-webhook" };

/// Runs the operator until SIGTERM or SIGINT.
///
/// # Errors
///
/// Returns an error if the operator cannot start. An unreachable API server or a missing permission is not an error:
/// requests are retried, and `/readyz` reports unmet conditions.
pub async fn run(args: RunArgs) -> Result<(), RunError> {
    let policy = args.validation.policy()?;
    let mut registry = lucid_serving::registry();
    let verifier = args.validation.verifier(&VerifierMetrics::new(&mut registry))?;
    let recorder = args.decisions.recorder(&mut registry)?;
    let ring = args.ring.service(Arc::clone(&recorder))?;
    let metrics = Metrics::new(&mut registry);
    let validation_metrics = lucid_validator::Metrics::new(&mut registry);
    let policy = Arc::new(policy.on_change(validation_metrics.exemptions_changed()));
    let host = Host::bind(PROGRAM, &args.serving, registry).await?;
    host.report_missing_rights(args.needs());
    lucid_validator::report_readiness(&recorder, &host);
    let host = if args.registration.validate { host } else { host.without_registering_validating() };
    let cluster = ClusterConfiguration::new(args.injection.settings());
    let synced = cluster.keep(host.client(), &args.serving.namespace, host.condition("configuration"));
    cluster.follow_generations(host.client(), &args.serving.namespace);
    cluster.publish(host.client(), &args.serving.namespace, host.condition("settings"));
    let statuses = Statuses { cluster: cluster.clone(), client: host.client(), verifier: verifier.clone() };
    tokio::spawn(statuses.keep());
    let calls = args.calls();
    let scope = calls.scope.clone();
    let injector = Injector {
        scope: scope.clone(),
        cluster: cluster.clone(),
        policy: Arc::clone(&policy),
        failure_policy: args.registration.failure_policy,
        recorder: Arc::clone(&recorder),
        events: Events::start(host.client(), PROGRAM.reporter(), metrics.clone()),
        metrics,
    };
    let reviews = args.validation.policy.break_glass.break_glass_access_review;
    let break_glass = reviews.then(|| BreakGlassReview::new(host.client()));
    let validator = Validator {
        scope,
        cluster,
        policy,
        verifier,
        break_glass,
        recorder: Arc::clone(&recorder),
        metrics: validation_metrics,
    };
    let on_failure = injector.clone();
    let inject = move |request: AdmissionRequest| injector.clone().inject(request);
    let mutating = Webhook::mutating(MUTATE_NAME, inject)
        .with_overload_denied()
        .with_failure_action(FailureAction::call_async(move |request, failure| {
            on_failure.fail(request, failure)
        }))
        .with_registration(|it| registration::mutating(&calls, args.registration.failure_policy, it));
    let router = ring.mount(validator.serve(Router::new().webhook(MUTATE_PATH, mutating), &calls));
    let served = host.serve(router, synced).await;
    lucid_validator::close(recorder).await;
    Ok(served?)
}
