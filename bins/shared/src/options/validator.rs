//! Options of `lucid-validator run`.

use lucid_admission::Registrations;

use super::{
    AuditEndpointArgs, DecisionArgs, InjectionArgs, SelectorArgs, ValidationArgs, ValidationWebhookArgs,
};
use crate::serving::rbac::Needs;
use crate::serving::{ServingArgs, VALIDATOR};

/// Options of `lucid-validator run`.
#[derive(Clone, Debug, clap::Args)]
pub struct ValidatorArgs {
    /// Serving options.
    #[command(flatten)]
    pub serving: ServingArgs,

    /// Selectors of the registration.
    #[command(flatten)]
    pub selectors: SelectorArgs,

    /// Options of the validating webhooks.
    #[command(flatten)]
    pub webhooks: ValidationWebhookArgs,

    /// Decision log options.
    #[command(flatten)]
    pub decisions: DecisionArgs,

    /// Options of `/audit`.
    #[command(flatten)]
    pub audit: AuditEndpointArgs,

    /// Injection options. They must match those of the operator, because validation plans chains again.
    #[command(flatten)]
    pub injection: InjectionArgs,

    /// Validation options.
    #[command(flatten)]
    pub validation: ValidationArgs,
}

impl ValidatorArgs {
    /// Returns the registration of the webhooks.
    #[must_use]
    pub fn registrations(&self) -> Registrations {
        self.webhooks.registrations(&self.serving, &self.selectors)
    }

    /// Returns the features in use, which determine the RBAC permissions.
    #[must_use]
    pub fn needs(&self) -> Needs<'_> {
        Needs {
            program: VALIDATOR,
            serving: &self.serving,
            injects: false,
            validates: true,
            reviews_break_glass: self.validation.policy.break_glass.break_glass_access_review,
        }
    }
}
