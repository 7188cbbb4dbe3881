//! Options of `lucid-operator run`.

use lucid_admission::Registrations;
use lucid_webhook::registration::FailurePolicy;

use super::registration::failure_policy;
use super::{
    AuditEndpointArgs, DecisionArgs, InjectionArgs, SelectorArgs, ValidationArgs, ValidationWebhookArgs,
};
use crate::serving::rbac::Needs;
use crate::serving::{OPERATOR, ServingArgs};

/// Options of `lucid-operator run`.
#[derive(Clone, Debug, clap::Args)]
pub struct OperatorArgs {
    /// Serving options.
    #[command(flatten)]
    pub serving: ServingArgs,

    /// Decision log options.
    #[command(flatten)]
    pub decisions: DecisionArgs,

    /// Options of `/audit`.
    #[command(flatten)]
    pub audit: AuditEndpointArgs,

    /// Registration options.
    #[command(flatten)]
    pub registration: RegistrationArgs,

    /// Injection options.
    #[command(flatten)]
    pub injection: InjectionArgs,

    /// Validation options.
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

/// Registration of the webhooks with the API server.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Registration")]
pub struct RegistrationArgs {
    /// Namespaces and pods for which the webhooks are called.
    #[command(flatten)]
    pub selectors: SelectorArgs,

    /// Failure policy of the mutating webhook, applied to pods of selected namespaces while the webhook is unavailable,
    /// fails or has no configuration yet: Fail denies them, Ignore admits them without auditors.
    #[arg(long, env = "LUCID_FAILURE_POLICY", value_name = "POLICY", default_value = "Fail")]
    #[arg(value_parser = failure_policy())]
    pub failure_policy: FailurePolicy,

    /// Options of the validating webhooks.
    #[command(flatten)]
    pub validation: ValidationWebhookArgs,

    /// Register the validating webhooks, too. If false, `lucid-validator run` must register and serve them.
    #[arg(long, env = "LUCID_VALIDATE", value_name = "BOOL", default_value = "true")]
    #[arg(action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub validate: bool,
}
