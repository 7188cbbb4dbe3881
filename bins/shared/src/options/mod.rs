//! Options of operator and validator. Common ones have an environment variable; a flag takes precedence.

mod decisions;
mod injection;
mod notary;
mod policy;
mod validation;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use lucid_admission::{KeeperAction, Registrations, Selectors};
use lucid_webhook::registration::{FailurePolicy, parse_selector};

use crate::serving::rbac::Needs;
use crate::serving::{OPERATOR, ServingArgs, VALIDATOR};

pub(crate) use decisions::serve_and_close;
pub use decisions::{DecisionArgs, Opening, default_origin, parse_origin, read_key};
pub use injection::InjectionArgs;
pub use notary::{NotaryArgs, VerifierArgs, parse_key};
pub use policy::{BreakGlassArgs, PolicyArgs};
pub use validation::ValidationArgs;

/// Options of `lucid-operator run`.
#[derive(Clone, Debug, clap::Args)]
pub struct OperatorArgs {
    /// Options that a separate validator has, too.
    #[command(flatten)]
    pub common: ServeArgs,

    /// Failure policy of the mutating webhook, applied to pods of selected namespaces while the webhook is unavailable,
    /// fails or has no configuration yet: Fail denies them, Ignore admits them without auditors.
    #[arg(long, env = "LUCID_FAILURE_POLICY", value_name = "POLICY", default_value = "Fail")]
    #[arg(value_parser = failure_policy(), help_heading = "Registration")]
    pub failure_policy: FailurePolicy,

    /// Register the validating webhooks, too. If false, `lucid-validator run` must register and serve them.
    #[arg(long, env = "LUCID_VALIDATE", value_name = "BOOL", default_value = "true")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(help_heading = "Registration")]
    pub validate: bool,

    /// Watch the chains of running pods, on one replica.
    #[arg(long, env = "LUCID_KEEPER", value_name = "BOOL", default_value = "true")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(help_heading = "Running pods")]
    pub keeper: bool,

    /// Actions on running pods that namespaces may ask for, such as update,rollout. By default none.
    #[arg(long, env = "LUCID_KEEPER_ACTIONS", value_name = "ACTIONS", value_delimiter = ',')]
    #[arg(help_heading = "Running pods")]
    pub keeper_actions: Vec<KeeperAction>,
}

impl OperatorArgs {
    /// Returns the registration of the webhooks.
    #[must_use]
    pub fn registrations(&self) -> Registrations {
        self.common.registrations().with_injection_failure_policy(self.failure_policy)
    }

    /// Returns the features in use, which determine the RBAC permissions.
    #[must_use]
    pub fn needs(&self) -> Needs<'_> {
        let keeper = self.keeper.then_some(self.keeper_actions.as_slice());
        Needs { program: OPERATOR, injects: true, validates: self.validate, keeper, ..self.common.needs() }
    }
}

/// Options of `lucid-validator run`. Validation plans chains again, so its options of injection must be those of the
/// operator.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Serving options.
    #[command(flatten)]
    pub serving: ServingArgs,

    /// Namespaces and pods for which the webhooks are called.
    #[command(flatten)]
    pub selectors: SelectorArgs,

    /// Failure policy of the validating webhook, applied to pods of selected namespaces and changes of them while the
    /// webhook is unavailable: Fail denies them, Ignore admits them without validation. Use Ignore only with the
    /// backstop (`lucid manifests --backstop`), by which the API server itself denies pods without their chain.
    #[arg(long, env = "LUCID_VALIDATION_FAILURE_POLICY", value_name = "POLICY", default_value = "Fail")]
    #[arg(value_parser = failure_policy(), help_heading = "Registration")]
    pub validation_failure_policy: FailurePolicy,

    /// Register the workload webhook, too, which warns about Deployments, Jobs and other workloads whose pods would be
    /// denied. It never denies a workload. If false, users learn of denied pods from events only.
    #[arg(long, value_name = "BOOL", default_value = "true", help_heading = "Registration")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub validate_workloads: bool,

    /// Decision log options.
    #[command(flatten)]
    pub decisions: DecisionArgs,

    /// Injection options.
    #[command(flatten)]
    pub injection: InjectionArgs,

    /// Validation options.
    #[command(flatten)]
    pub validation: ValidationArgs,
}

impl ServeArgs {
    /// Returns the registration of the webhooks, whose mutating one fails closed.
    #[must_use]
    pub fn registrations(&self) -> Registrations {
        let registrations = Registrations::new(&self.serving.namespace)
            .with_selectors(self.selectors.selectors())
            .with_validation_failure_policy(self.validation_failure_policy)
            .with_validated_labels(Some(&self.validation.policy.tier_label).filter(|key| !key.is_empty()))
            .with_timeout_seconds(self.serving.webhook_timeout_seconds);
        if self.validate_workloads { registrations } else { registrations.without_workloads() }
    }

    /// Returns the features in use of a separate validator, which determine the RBAC permissions.
    #[must_use]
    pub fn needs(&self) -> Needs<'_> {
        Needs { program: VALIDATOR, serving: &self.serving, injects: false, validates: true, keeper: None }
    }
}

fn failure_policy() -> impl TypedValueParser<Value = FailurePolicy> {
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
