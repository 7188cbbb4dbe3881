//! What the API server would refuse.

use snafu::Snafu;

use crate::guard::InvalidLabels;

/// Why the API server would refuse a registration, or never call the webhook.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum RegistrationError {
    /// A name that no configuration can have.
    #[snafu(display("configuration {name:?}: accepted is a DNS name in lower case"))]
    ConfigurationName {
        /// The name found.
        name: String,
    },
    /// A name that no webhook can have.
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
    /// A service or port that cannot be.
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
    /// A URL that the API server does not call.
    #[snafu(display(
        "URL {url:?}: accepted is https://host[:port][/path], without user, query and fragment"
    ))]
    Url {
        /// The URL found.
        url: String,
    },
    /// A path that the API server does not call.
    #[snafu(display(
        "webhook {webhook}: path {path:?}: accepted are '/' and segments that are DNS names in lower case"
    ))]
    Path {
        /// The webhook.
        webhook: String,
        /// The path found.
        path: String,
    },
    /// The webhook would never be called.
    #[snafu(display("webhook {webhook} has no rules: it would never be called"))]
    NoRules {
        /// The webhook.
        webhook: String,
    },
    /// A rule has a list with nothing, or with an empty text, in it.
    #[snafu(display("webhook {webhook}: a rule has no {field}, or an empty one"))]
    EmptyRule {
        /// The webhook.
        webhook: String,
        /// `versions`, `resources` or `operations`.
        field: &'static str,
    },
    /// `*` stands beside what it includes.
    #[snafu(display(
        "webhook {webhook}: a rule has {found:?} among its {field}, which includes others that it names"
    ))]
    Wildcard {
        /// The webhook.
        webhook: String,
        /// `versions` or `resources`.
        field: &'static str,
        /// What includes others.
        found: String,
    },
    /// A timeout that the API server does not take.
    #[snafu(display("webhook {webhook}: timeoutSeconds is {seconds}, accepted is 1 to 30"))]
    Timeout {
        /// The webhook.
        webhook: String,
        /// The timeout found.
        seconds: i32,
    },
    /// A selector that the API server does not take.
    #[snafu(display("webhook {webhook}: {field}: {source}"))]
    Selector {
        /// The webhook.
        webhook: String,
        /// `namespaceSelector` or `objectSelector`.
        field: &'static str,
        /// What is wrong with it.
        source: InvalidLabels,
    },
    /// A selector with an operator that is none.
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
    /// A match condition that the API server does not take. (It also compiles the expression, which is not done here.)
    #[snafu(display(
        "webhook {webhook}: match condition {name:?}: accepted are up to 64 with unique qualified names and an expression"
    ))]
    MatchCondition {
        /// The webhook.
        webhook: String,
        /// Name of the condition.
        name: String,
    },
    /// A label or an annotation of the configuration that no object can have.
    #[snafu(display(
        "configuration {name}: {field} {key:?}: accepted are qualified names as keys, such as example.com/name, and as \
         values of labels up to 63 of A-Z, a-z, 0-9, '-', '_' and '.', alphanumeric at both ends"
    ))]
    Metadata {
        /// Name of the configuration.
        name: String,
        /// `label` or `annotation`.
        field: &'static str,
        /// Its key.
        key: String,
    },
    /// No certificates at all; the field is left out by not setting it.
    #[snafu(display("configuration {name}: the CA bundle is empty"))]
    EmptyCaBundle {
        /// Name of the configuration.
        name: String,
    },
    /// A rule for a group that cannot be: the webhook would never be called for it.
    #[snafu(display(
        "webhook {webhook}: API group {group:?}: accepted are the empty one, a DNS name in lower case and *"
    ))]
    Group {
        /// The webhook.
        webhook: String,
        /// The group found.
        group: String,
    },
    /// A rule for a resource that cannot be: the webhook would never be called for it.
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
    /// Only mutating webhooks are asked again.
    #[snafu(display("webhook {webhook}: a validating webhook has no reinvocationPolicy"))]
    Reinvocation {
        /// The webhook.
        webhook: String,
    },
}
