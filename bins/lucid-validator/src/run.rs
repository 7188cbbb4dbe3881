//! `lucid-validator run`: the validating webhook as a separate process.

use std::sync::Arc;

use lucid_cluster::{ClusterConfiguration, InjectionArgs};
use lucid_notary::client::Metrics as VerifierMetrics;
use lucid_serving::rights::Needs;
use lucid_serving::{Host, HostError, Program, ServingArgs};
use lucid_webhook::Router;
use snafu::Snafu;

use crate::args::{ArgsError, ValidationArgs};
use crate::break_glass::BreakGlassReview;
use crate::calls::{Calls, SelectorArgs, ValidationWebhookArgs};
use crate::decisions::{DecisionArgs, DecisionLogError, close, report_readiness};
use crate::metrics::Metrics;
use crate::ring::{RingArgs, RingArgsError};
use crate::scope::Scope;
use crate::validator::Validator;

/// Names of the validator.
pub const PROGRAM: Program = Program { name: "lucid-validator", service: "lucid-validator-webhook" };

/// The options of `lucid-validator run`. Each has an environment variable; a flag wins over it.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// Options of serving.
    #[command(flatten)]
    pub serving: ServingArgs,

    /// Options of registration.
    #[command(flatten)]
    pub selectors: SelectorArgs,

    /// Options of its webhooks.
    #[command(flatten)]
    pub webhooks: ValidationWebhookArgs,

    /// Options of the record.
    #[command(flatten)]
    pub decisions: DecisionArgs,

    /// Options of `/audit`.
    #[command(flatten)]
    pub ring: RingArgs,

    /// Options of injection, the same as the operator's: chains are planned again to be judged.
    #[command(flatten)]
    pub injection: InjectionArgs,

    /// Options of validation.
    #[command(flatten)]
    pub validation: ValidationArgs,
}

impl RunArgs {
    /// Returns the registration rules of the webhooks.
    #[must_use]
    pub fn calls(&self) -> Calls {
        Calls {
            scope: Scope::new(&self.serving.namespace),
            selectors: self.selectors.clone(),
            validation: self.webhooks.validation_failure_policy,
            workloads: self.webhooks.validate_workloads,
            timeout_seconds: self.serving.webhook_timeout_seconds,
        }
    }

    /// Returns the functions of the program, from which its RBAC permissions follow.
    #[must_use]
    pub fn needs(&self) -> Needs<'_> {
        Needs {
            program: PROGRAM,
            serving: &self.serving,
            injects: false,
            validates: true,
            reviews_break_glass: self.validation.policy.break_glass.break_glass_access_review,
        }
    }
}

/// The process could not start, or failed.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum RunError {
    /// The options contradict each other.
    #[snafu(transparent)]
    Args {
        /// Option, and accepted values.
        source: ArgsError,
    },
    /// The decision log cannot be set up.
    #[snafu(transparent)]
    DecisionLog {
        /// Error of the log.
        source: DecisionLogError,
    },
    /// A token of `/audit` cannot be used.
    #[snafu(transparent)]
    Ring {
        /// Error of the token file.
        source: RingArgsError,
    },
    /// The webhooks cannot be served.
    #[snafu(transparent)]
    Host {
        /// Error of the host.
        source: HostError,
    },
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
///
/// Returns an error if something is wrong at start that a retry cannot fix. While the API server is unreachable or
/// rejects requests, the process retries, and `/readyz` names the unmet conditions.
pub async fn run(args: RunArgs) -> Result<(), RunError> {
    let calls = args.calls();
    let policy = args.validation.policy()?;
    let mut registry = lucid_serving::registry();
    let verifier = args.validation.verifier(&VerifierMetrics::new(&mut registry))?;
    let recorder = args.decisions.recorder(&mut registry)?;
    let ring = args.ring.service(Arc::clone(&recorder))?;
    let metrics = Metrics::new(&mut registry);
    let policy = Arc::new(policy.on_change(metrics.exemptions_changed()));
    let host = Host::bind(PROGRAM, &args.serving, registry).await?;
    host.report_missing_rights(args.needs());
    report_readiness(&recorder, &host);
    let cluster = ClusterConfiguration::new(args.injection.settings());
    let synced = cluster.keep(host.client(), &args.serving.namespace, host.condition("configuration"));
    cluster.follow_generations(host.client(), &args.serving.namespace);
    let scope = calls.scope.clone();
    let reviews = args.validation.policy.break_glass.break_glass_access_review;
    let break_glass = reviews.then(|| BreakGlassReview::new(host.client()));
    let validator = {
        let recorder = Arc::clone(&recorder);
        Validator { scope, cluster, policy, verifier, break_glass, recorder, metrics }
    };
    let served = host.serve(ring.mount(validator.serve(Router::new(), &calls)), synced).await;
    close(recorder).await;
    Ok(served?)
}
