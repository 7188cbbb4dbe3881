//! What the mutating webhook is called for.

use k8s_openapi::api::core::v1::Pod;
use lucid_validator::Calls;
use lucid_webhook::Operation;
use lucid_webhook::registration::{self, Registration, ReinvocationPolicy, Rule, RuleScope};

/// The webhook that mutates pods.
pub(crate) const MUTATE_NAME: &str = "mutate.lucid.computing";
/// Where pods are mutated.
pub(crate) const MUTATE_PATH: &str = "/mutate";

/// What happens to a request when the webhook cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum FailurePolicy {
    /// It is refused: no pod runs without audit.
    Fail,
    /// It passes: pods may then run without audit.
    Ignore,
}

/// New pods.
pub(crate) fn mutating(
    calls: &Calls,
    failure_policy: FailurePolicy,
    registration: Registration,
) -> Registration {
    let pods = Rule::of::<Pod>([Operation::Create]).scope(RuleScope::Namespaced);
    calls
        .of_pods(registration)
        .with_rule(pods)
        .with_failure_policy(match failure_policy {
            FailurePolicy::Fail => registration::FailurePolicy::Fail,
            FailurePolicy::Ignore => registration::FailurePolicy::Ignore,
        })
        // An injector that comes later may add containers or ports.
        .with_reinvocation_policy(ReinvocationPolicy::IfNeeded)
}
