//! Options of the webhooks' registration.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use lucid_admission::{Registrations, Selectors};
use lucid_webhook::registration::{FailurePolicy, parse_selector};

use crate::serving::ServingArgs;

/// Returns the parser of a `failurePolicy`.
pub(super) fn failure_policy() -> impl TypedValueParser<Value = FailurePolicy> {
    PossibleValuesParser::new(["Fail", "Ignore"]).map(|name| match name.as_str() {
        "Ignore" => FailurePolicy::Ignore,
        _ => FailurePolicy::Fail,
    })
}

/// Namespace and pod selectors, to be flattened into a program's arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Registration")]
pub struct SelectorArgs {
    /// Label selector of the namespaces to process, in kubectl syntax: `team=a,stage!=test,tier in (a,b),!legacy`.
    /// Lucid's own namespace, kube-system, kube-public and kube-node-lease are always excluded.
    #[arg(long, env = "LUCID_NAMESPACE_SELECTOR", value_name = "SELECTOR")]
    #[arg(default_value = "lucid.computing/enabled=true", value_parser = parse_selector)]
    pub namespace_selector: LabelSelector,

    /// Label selector of the pods to process in these namespaces. By default all pods. Pods that do not match are
    /// neither injected nor validated, and authors of pods choose their labels.
    #[arg(long, env = "LUCID_OBJECT_SELECTOR", value_name = "SELECTOR", value_parser = parse_selector)]
    pub object_selector: Option<LabelSelector>,
}

impl SelectorArgs {
    /// Returns the selectors of the registration.
    #[must_use]
    pub fn selectors(&self) -> Selectors {
        Selectors { namespaces: self.namespace_selector.clone(), pods: self.object_selector.clone() }
    }
}

/// Registration of the validating webhooks, to be flattened into a program's arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Registration")]
pub struct ValidationWebhookArgs {
    /// Failure policy of the validating webhook, applied to pods of selected namespaces and changes of them while the
    /// webhook is unavailable: Fail denies them, Ignore admits them without validation. Use Ignore only with the
    /// backstop (`lucid manifests --backstop`), by which the API server itself denies pods without their chain.
    #[arg(long, env = "LUCID_VALIDATION_FAILURE_POLICY", value_name = "POLICY", default_value = "Fail")]
    #[arg(value_parser = failure_policy())]
    pub validation_failure_policy: FailurePolicy,

    /// Register the workload webhook, too, which warns about Deployments, Jobs and other workloads whose pods would be
    /// denied. It never denies a workload. If false, users learn of denied pods from events only.
    #[arg(long, value_name = "BOOL", default_value = "true")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub validate_workloads: bool,
}

impl ValidationWebhookArgs {
    /// Returns the registration of the webhooks, whose mutating one fails closed.
    pub(super) fn registrations(&self, serving: &ServingArgs, selectors: &SelectorArgs) -> Registrations {
        let registrations = Registrations::new(&serving.namespace)
            .with_selectors(selectors.selectors())
            .with_validation_failure_policy(self.validation_failure_policy)
            .with_timeout_seconds(serving.webhook_timeout_seconds);
        if self.validate_workloads { registrations } else { registrations.without_workloads() }
    }
}
