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

/// The options that choose namespaces and pods, to be flattened into a binary's own arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Registration")]
pub struct SelectorArgs {
    /// The namespaces whose pods are looked at, as kubectl takes a selector: `team=a,stage!=test,tier in (a,b),!legacy`.
    /// The own namespace, kube-system, kube-public and kube-node-lease are excluded whatever it says.
    #[arg(long, env = "LUCID_NAMESPACE_SELECTOR", value_name = "SELECTOR")]
    #[arg(default_value = "lucid.computing/enabled=true", value_parser = parse_selector)]
    pub namespace_selector: LabelSelector,

    /// The pods that are looked at in these namespaces, likewise. By default all of them. Whoever writes a pod writes its
    /// labels: what is not selected is neither injected nor validated.
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

/// The options of the validating webhooks' registration, to be flattened into a binary's own arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Registration")]
pub struct ValidationWebhookArgs {
    /// What happens to pods of selected namespaces, and to changes of them, while the validating webhook cannot be asked:
    /// Fail refuses them, with Ignore they pass unjudged. Ignore is for clusters with the backstop
    /// (`lucid manifests --backstop`), in which the API server itself refuses pods without their chain.
    #[arg(long, env = "LUCID_VALIDATION_FAILURE_POLICY", value_name = "POLICY", default_value = "Fail")]
    #[arg(value_parser = failure_policy())]
    pub validation_failure_policy: FailurePolicy,

    /// Register the webhook for workloads too, which warns of Deployments, Jobs and the like whose pods would be refused. It
    /// refuses nothing itself: with false pods are judged as before, and who applies a workload hears of it from events.
    #[arg(long, env = "LUCID_VALIDATE_WORKLOADS", value_name = "BOOL", default_value = "true")]
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
