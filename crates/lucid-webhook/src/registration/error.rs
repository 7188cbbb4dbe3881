//! Errors of registrations.

use snafu::Snafu;

use crate::guard::InvalidLabels;

/// The API server would reject the registration, or never call the webhook.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum RegistrationError {
    /// The name, a label or an annotation of the configuration is invalid.
    #[snafu(display("configuration {name:?}: {problem}"))]
    Configuration {
        /// Name of the configuration.
        name: String,
        /// The invalid field, and what is accepted.
        problem: String,
    },
    /// The CA bundle is empty. To omit the field, do not set it.
    #[snafu(display("configuration {name:?}: the CA bundle is empty"))]
    EmptyCaBundle {
        /// Name of the configuration.
        name: String,
    },
    /// The endpoint is invalid.
    #[snafu(display("{problem}"))]
    Endpoint {
        /// The invalid field, and what is accepted.
        problem: String,
    },
    /// A field of the webhook is invalid.
    #[snafu(display("webhook {webhook:?}: {problem}"))]
    Webhook {
        /// The webhook.
        webhook: String,
        /// The invalid field, and what is accepted.
        problem: String,
    },
    /// A selector of the webhook is invalid.
    #[snafu(display("webhook {webhook:?}: {field}: {source}"))]
    Selector {
        /// The webhook.
        webhook: String,
        /// `namespaceSelector` or `objectSelector`.
        field: &'static str,
        /// The cause.
        source: InvalidLabels,
    },
    /// Only mutating webhooks can be reinvoked.
    #[snafu(display("webhook {webhook:?}: a validating webhook has no reinvocationPolicy"))]
    Reinvocation {
        /// The webhook.
        webhook: String,
    },
}
