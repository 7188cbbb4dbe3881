//! Errors of registrations.

use snafu::Snafu;

use crate::guard::InvalidLabels;

/// The API server would reject the registration, or never call the webhook.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum RegistrationError {
    /// The name is not valid for a configuration.
    #[snafu(display("configuration {name:?}: accepted is a DNS name in lower case"))]
    ConfigurationName {
        /// The name found.
        name: String,
    },
    /// The name is not valid for a webhook.
    #[snafu(display(
        "webhook {name:?}: accepted is a DNS name in lower case with at least three segments, such as label.example.com"
    ))]
    WebhookName {
        /// The name found.
        name: String,
    },
    /// Two webhooks of a configuration have the same name.
    #[snafu(display("webhook {name}: there are two of this name"))]
    DuplicateWebhook {
        /// The name.
        name: String,
    },
    /// The service or its port is invalid.
    #[snafu(display(
        "service {namespace}/{name}, port {port}: accepted are names and a port from 1 to 65535"
    ))]
    Service {
        /// Namespace found.
        namespace: String,
        /// Name found.
        name: String,
        /// Port found.
        port: u16,
    },
    /// The URL is not supported by the API server.
    #[snafu(display(
        "URL {url:?}: accepted is https://host[:port][/path], without user, query and fragment"
    ))]
    Url {
        /// The URL found.
        url: String,
    },
    /// The path is not supported by the API server.
    #[snafu(display(
        "webhook {webhook}: path {path:?}: accepted are '/' and segments that are DNS names in lower case"
    ))]
    Path {
        /// The webhook.
        webhook: String,
        /// The path found.
        path: String,
    },
    /// The webhook has no rules and would never be called.
    #[snafu(display("webhook {webhook} has no rules: it would never be called"))]
    NoRules {
        /// The webhook.
        webhook: String,
    },
    /// A rule has an empty list, or a list with an empty text.
    #[snafu(display("webhook {webhook}: a rule has no {field}, or an empty one"))]
    EmptyRule {
        /// The webhook.
        webhook: String,
        /// `versions`, `resources` or `operations`.
        field: &'static str,
    },
    /// A list has both `*` and an item included in it.
    #[snafu(display(
        "webhook {webhook}: a rule has {found:?} among its {field}, which includes others that it names"
    ))]
    Wildcard {
        /// The webhook.
        webhook: String,
        /// `versions` or `resources`.
        field: &'static str,
        /// The item that includes others.
        found: String,
    },
    /// The timeout is out of range.
    #[snafu(display("webhook {webhook}: timeoutSeconds is {seconds}, accepted is 1 to 30"))]
    Timeout {
        /// The webhook.
        webhook: String,
        /// The timeout found.
        seconds: i32,
    },
    /// The selector is invalid.
    #[snafu(display("webhook {webhook}: {field}: {source}"))]
    Selector {
        /// The webhook.
        webhook: String,
        /// `namespaceSelector` or `objectSelector`.
        field: &'static str,
        /// The cause.
        source: InvalidLabels,
    },
    /// The operator of a selector is unknown.
    #[snafu(display(
        "webhook {webhook}: {field}: operator {operator:?}, accepted are In, NotIn, Exists and DoesNotExist"
    ))]
    Operator {
        /// The webhook.
        webhook: String,
        /// `namespaceSelector` or `objectSelector`.
        field: &'static str,
        /// The operator found.
        operator: String,
    },
    /// The match condition is invalid. (The API server also compiles the expression.)
    #[snafu(display(
        "webhook {webhook}: match condition {name:?}: accepted are up to 64 with unique qualified names and an expression"
    ))]
    MatchCondition {
        /// The webhook.
        webhook: String,
        /// Name of the condition.
        name: String,
    },
    /// The key or value of a label or annotation of the configuration is invalid.
    #[snafu(display(
        "configuration {name}: {field} {key:?}: accepted are qualified names as keys, such as example.com/name, and as \
         values of labels up to 63 of A-Z, a-z, 0-9, '-', '_' and '.', alphanumeric at both ends"
    ))]
    Metadata {
        /// Name of the configuration.
        name: String,
        /// `label` or `annotation`.
        field: &'static str,
        /// The key found.
        key: String,
    },
    /// The CA bundle is empty. To omit the field, do not set it.
    #[snafu(display("configuration {name}: the CA bundle is empty"))]
    EmptyCaBundle {
        /// Name of the configuration.
        name: String,
    },
    /// The API group of a rule is invalid: the webhook would never be called for it.
    #[snafu(display(
        "webhook {webhook}: API group {group:?}: accepted are the empty one, a DNS name in lower case and *"
    ))]
    Group {
        /// The webhook.
        webhook: String,
        /// The group found.
        group: String,
    },
    /// The resource of a rule is invalid: the webhook would never be called for it.
    #[snafu(display(
        "webhook {webhook}: resource {resource:?}: accepted are plurals in lower case, such as pods, pods/exec, pods/*, \
         */scale, * and */*"
    ))]
    Resource {
        /// The webhook.
        webhook: String,
        /// The resource found.
        resource: String,
    },
    /// Only mutating webhooks can be reinvoked.
    #[snafu(display("webhook {webhook}: a validating webhook has no reinvocationPolicy"))]
    Reinvocation {
        /// The webhook.
        webhook: String,
    },
}
