//! Options of `lucid-operator run`.

use lucid_admission::Registrations;
use lucid_webhook::registration::FailurePolicy;

use super::registration::failure_policy;
use super::{
    AuditEndpointArgs, DecisionArgs, InjectionArgs, SelectorArgs, ValidationArgs, ValidationWebhookArgs,
};
use crate::serving::rights::Needs;
use crate::serving::{OPERATOR, ServingArgs};

/// The options of `lucid-operator run`. Each has an environment variable; a flag wins over it.
#[derive(Clone, Debug, clap::Args)]
pub struct OperatorArgs {
    /// Options of serving.
    #[command(flatten)]
    pub serving: ServingArgs,

    /// Options of the record.
    #[command(flatten)]
    pub decisions: DecisionArgs,

    /// Options of `/audit`.
    #[command(flatten)]
    pub audit: AuditEndpointArgs,

    /// Options of registration.
    #[command(flatten)]
    pub registration: RegistrationArgs,

    /// Options of injection.
    #[command(flatten)]
    pub injection: InjectionArgs,

    /// Options of validation.
    #[command(flatten)]
    pub validation: ValidationArgs,
}

impl OperatorArgs {
    /// Returns the registration of the webhooks.
    #[must_use]
    pub fn registrations(&self) -> Registrations {
        let registration = &self.registration;
        registration
            .validation
            .registrations(&self.serving, &registration.selectors)
            .with_injection_failure_policy(registration.failure_policy)
    }

    /// Returns the features in use, which determine the RBAC permissions.
    #[must_use]
    pub fn needs(&self) -> Needs<'_> {
        Needs {
            program: OPERATOR,
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
pub struct RegistrationArgs {
    /// Which namespaces and pods the webhooks are called for.
    #[command(flatten)]
    pub selectors: SelectorArgs,

    /// What happens to pods of selected namespaces while the mutating webhook cannot be asked, or fails, or does not know
    /// its configuration yet: Fail refuses them, with Ignore they may run without audit.
    #[arg(long, env = "LUCID_FAILURE_POLICY", value_name = "POLICY", default_value = "Fail")]
    #[arg(value_parser = failure_policy())]
    pub failure_policy: FailurePolicy,

    /// Options of the validating webhooks.
    #[command(flatten)]
    pub validation: ValidationWebhookArgs,

    /// Register the validating webhooks too. With false that is left to `lucid-validator run`, which has to run then.
    #[arg(long, env = "LUCID_VALIDATE", value_name = "BOOL", default_value = "true")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub validate: bool,
}
