//! `lucid-validator run`: the validating webhook as a process of its own.

use std::sync::Arc;

use lucid_cluster::{ClusterConfiguration, Settings};
use lucid_notary::client::Metrics;
use lucid_serving::{Host, HostError, Program, ServingArgs};
use lucid_webhook::{AdmissionRequest, ConverterError, Router, Webhook};
use snafu::Snafu;

use crate::args::{ArgsError, ValidationArgs};
use crate::calls::{Calls, SelectorArgs, VALIDATE_NAME, VALIDATE_PATH};
use crate::decisions::{DecisionArgs, DecisionLogError, close};
use crate::scope::Scope;
use crate::validator::Validator;

const PROGRAM: Program = Program { name: "lucid-validator", service: "lucid-validator-webhook" };

/// The options of `lucid-validator run`. Each has an environment variable; a flag wins over it.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// Options of serving.
    #[command(flatten)]
    serving: ServingArgs,

    /// Options of registration.
    #[command(flatten)]
    selectors: SelectorArgs,

    /// Options of the record.
    #[command(flatten)]
    decisions: DecisionArgs,

    /// Options of validation.
    #[command(flatten)]
    validation: ValidationArgs,
}

/// Why a process with the validating webhook could not start.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum RunError {
    /// Options that contradict each other.
    #[snafu(transparent)]
    Args {
        /// Which, and what is accepted.
        source: ArgsError,
    },
    /// No log for decisions.
    #[snafu(transparent)]
    DecisionLog {
        /// What is wrong.
        source: DecisionLogError,
    },
    /// Objects of its custom resources cannot be converted.
    #[snafu(transparent)]
    Conversion {
        /// What is wrong.
        source: ConverterError,
    },
    /// It cannot serve.
    #[snafu(transparent)]
    Host {
        /// What is wrong.
        source: HostError,
    },
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
///
/// When something that waiting does not cure is wrong at start. An API server that cannot be reached, or refuses, is
/// asked again until it answers; `/readyz` tells what is missing.
pub async fn run(args: RunArgs) -> Result<(), RunError> {
    let RunArgs { serving, selectors, decisions, validation } = args;
    let mut registry = lucid_serving::registry();
    let verifier = validation.verifier(&Metrics::new(&mut registry))?;
    let recorder = Arc::new(decisions.recorder(&mut registry)?);
    let host = Host::bind(PROGRAM, &serving, registry).await?;
    // The chains are the operator's; who are auditors stands in the same ConfigMaps.
    let cluster = ClusterConfiguration::new(Settings::default());
    let synced = cluster.keep(host.client(), &serving.namespace, host.condition("configuration"));
    let scope = Scope::new(&serving.namespace);
    let calls = Calls { scope: scope.clone(), selectors, timeout_seconds: serving.webhook_timeout_seconds };
    let strictness = validation.strictness();
    let validator = Validator { scope, cluster, strictness, verifier, recorder: Arc::clone(&recorder) };
    let validate = move |request: AdmissionRequest| validator.clone().validate(request);
    let webhook = Webhook::validating(VALIDATE_NAME, validate).with_registration(|it| calls.validating(it));
    let served = host.serve(Router::new().webhook(VALIDATE_PATH, webhook), synced).await;
    close(recorder).await;
    Ok(served?)
}
