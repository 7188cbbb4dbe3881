//! Options of `lucid-operator run`.

use lucid_cluster::InjectionArgs;
use lucid_serving::ServingArgs;
use lucid_serving::rights::Needs;
use lucid_validator::{
    Calls, DecisionArgs, FailurePolicy, RingArgs, Scope, SelectorArgs, ValidationArgs, ValidationWebhookArgs,
};

use crate::run::PROGRAM;

/// The options of `lucid-operator run`. Each has an environment variable; a flag wins over it.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// Options of serving.
    #[command(flatten)]
    pub(crate) serving: ServingArgs,

    /// Options of the record.
    #[command(flatten)]
    pub(crate) decisions: DecisionArgs,

    /// Options of `/audit`.
    #[command(flatten)]
    pub(crate) ring: RingArgs,

    /// Options of registration.
    #[command(flatten)]
    pub(crate) registration: RegistrationArgs,

    /// Options of injection.
    #[command(flatten)]
    pub(crate) injection: InjectionArgs,

    /// Options of validation.
    #[command(flatten)]
    pub(crate) validation: ValidationArgs,
}

impl RunArgs {
    /// Returns the objects that the webhooks are called for.
    pub(crate) fn calls(&self) -> Calls {
        Calls {
            scope: Scope::new(&self.serving.namespace),
            selectors: self.registration.selectors.clone(),
            validation: self.registration.validation.validation_failure_policy,
            workloads: self.registration.validation.validate_workloads,
            timeout_seconds: self.serving.webhook_timeout_seconds,
        }
    }

    /// Returns the features in use, which determine the RBAC permissions.
    pub(crate) fn needs(&self) -> Needs<'_> {
        Needs {
            program: PROGRAM,
            serving: &self.serving,
            injects: true,
            validates: self.registration.validate,
            reviews_break_glass: self.validation.policy.break_glass.break_glass_access_review,
        }
    }
}

/// How the API server is told of the webhooks.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Registration")]
pub(crate) struct RegistrationArgs {
    /// Which namespaces and pods the webhooks are called for.
    #[command(flatten)]
    pub(crate) selectors: SelectorArgs,

    /// What happens to pods of selected namespaces while the mutating webhook cannot be asked, or fails, or does not know
    /// its configuration yet: Fail refuses them, with Ignore they may run without audit.
    #[arg(long, env = "LUCID_FAILURE_POLICY", value_name = "POLICY", default_value = "Fail")]
    pub(crate) failure_policy: FailurePolicy,

    /// Options of the validating webhooks.
    #[command(flatten)]
    pub(crate) validation: ValidationWebhookArgs,

    /// Register the validating webhooks too. With false that is left to `lucid-validator run`, which has to run then.
    #[arg(long, env = "LUCID_VALIDATE", value_name = "BOOL", default_value = "true")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) validate: bool,
}
