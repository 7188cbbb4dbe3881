//! Registration of the mutating webhook.

use k8s_openapi::api::core::v1::Pod;
use lucid_validator::{Calls, FailurePolicy};
use lucid_webhook::Operation;
use lucid_webhook::registration::{Registration, ReinvocationPolicy, Rule, RuleScope};

/// Name of the webhook that mutates pods.
pub(crate) const MUTATE_NAME: &str = "mutate.lucid.computing";
/// Path of the webhook that mutates pods.
pub(crate) const MUTATE_PATH: &str = "/mutate";

/// Registers the webhook for new pods.
pub(crate) fn mutating(
    calls: &Calls,
    failure_policy: FailurePolicy,
    registration: Registration,
) -> Registration {
    let pods = Rule::of::<Pod>([Operation::Create]).scope(RuleScope::Namespaced);
    calls
        .of_pods(registration)
        .with_rule(pods)
        .with_failure_policy(failure_policy.into())
        // A later injector may add containers or ports.
        .with_reinvocation_policy(ReinvocationPolicy::IfNeeded)
}
