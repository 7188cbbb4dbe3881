//! Registration of webhooks with the API server.
//!
//! A [`WebhookRegistration`] defines the requests that one webhook receives. It is part of the
//! [`Webhook`](crate::Webhook), and the [`Router`](crate::Router) lists all of them. [`Configurations`] combines them
//! with the address of the server into a `MutatingWebhookConfiguration` and a `ValidatingWebhookConfiguration`.
//! Configurations that the API server would reject are rejected here, except that the CEL of match conditions is not
//! compiled. Defaults are written out, so that the applied object equals the stored one.
//!
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use lucid_webhook::registration::{Configurations, Endpoint, Rule};
//! use lucid_webhook::{AdmissionResponse, Operation, Router, Webhook};
//!
//! # async fn label() -> AdmissionResponse { AdmissionResponse::allow() }
//! let label = Webhook::mutating("label.example.com", label).with_registration(|registration| {
//!     registration
//!         .with_rule(Rule::of::<Pod>([Operation::Create]))
//!         .with_match_condition("not-mine", "request.userInfo.username != 'system:serviceaccount:example:labeller'")
//! });
//! let router = Router::new().webhook("/label", label);
//! let endpoint = Endpoint::service("example", "labeller");
//! let configuration = Configurations::new("labeller", endpoint)
//!     .with_annotation("cert-manager.io/inject-ca-from", "example/labeller")
//!     .mutating(router.registrations())?;
//! assert!(configuration.is_some());
//! # Ok::<(), lucid_webhook::registration::RegistrationError>(())
//! ```
//!
//! The namespaceSelector of every webhook excludes `kube-system`, unless it names that namespace or
//! [`WebhookRegistration::with_kube_system`] includes it: an unavailable webhook there can take the cluster down. If
//! `kube-system` is included, a webhook without [permissions](crate::guard) handles its objects.

mod configurations;
mod endpoint;
mod rule;
mod selector;
mod validate;

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "operator")]
use futures::stream::{self, BoxStream, Stream, StreamExt};
use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube_core::Resource;
use snafu::Snafu;
use tokio::sync::watch;

use crate::guard::KUBE_SYSTEM;
use crate::kind::WebhookKind;
use crate::review::Operation;

pub use configurations::Configurations;
pub use endpoint::Endpoint;
pub use rule::Rule;
pub use selector::parse_selector;

const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The API server would reject the registration, or never call the webhook; or a selector is malformed.
#[derive(Debug, Snafu)]
#[snafu(display("{problem}"))]
pub struct RegistrationError {
    problem: String,
}

#[cfg(feature = "operator")]
impl RegistrationError {
    pub(crate) fn unexpected(error: serde_json::Error) -> Self {
        Self { problem: error.to_string() }
    }
}

/// Handling of requests while the webhook is unavailable (`failurePolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// Requests are rejected.
    #[default]
    Fail,
    /// Requests are allowed.
    Ignore,
}

impl FailurePolicy {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// A CEL expression that may change.
#[derive(Clone)]
struct Expression(Arc<dyn LiveExpression>);

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.latest().fmt(f)
    }
}

trait LiveExpression: Send + Sync {
    fn latest(&self) -> String;

    #[cfg(feature = "operator")]
    fn changes(&self) -> BoxStream<'static, ()>;
}

impl<T: Send + Sync + 'static, F: Fn(&T) -> String + Send + Sync> LiveExpression for (watch::Receiver<T>, F) {
    fn latest(&self) -> String {
        self.1(&self.0.borrow())
    }

    #[cfg(feature = "operator")]
    fn changes(&self) -> BoxStream<'static, ()> {
        let changed =
            async |mut source: watch::Receiver<T>| source.changed().await.ok().map(|()| ((), source));
        stream::unfold(self.0.clone(), changed).boxed()
    }
}

/// Registration of one webhook.
#[derive(Clone, Debug)]
#[must_use]
pub struct WebhookRegistration {
    kind: WebhookKind,
    name: String,
    path: String,
    rules: Vec<Rule>,
    /// Rule of the type that the handler decodes, if it handles a single one.
    object_type: Option<Rule>,
    namespace_selector: LabelSelector,
    kube_system: bool,
    object_selector: LabelSelector,
    match_conditions: Vec<(String, Expression)>,
    has_side_effects: bool,
    timeout_seconds: i32,
    failure_policy: FailurePolicy,
    is_exact: bool,
    is_reinvoked: bool,
}

impl WebhookRegistration {
    /// Creates a registration of a webhook with a fully qualified name, such as `label.example.com`, served at `path`.
    /// It has the API server's defaults (10 s, `Fail`, `Equivalent`, `Never`) and no side effects.
    pub fn new(kind: WebhookKind, name: impl Into<String>, path: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            path: path.into(),
            rules: Vec::new(),
            object_type: None,
            namespace_selector: LabelSelector::default(),
            kube_system: false,
            object_selector: LabelSelector::default(),
            match_conditions: Vec::new(),
            has_side_effects: false,
            timeout_seconds: 10,
            failure_policy: FailurePolicy::Fail,
            is_exact: false,
            is_reinvoked: false,
        }
    }

    /// Adds requests that the webhook receives.
    pub fn with_rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Registers `operations` on `T`, the only type that the handler decodes.
    pub(crate) fn of_type<T: Resource<DynamicType = ()>>(
        mut self,
        operations: impl IntoIterator<Item = Operation>,
    ) -> Self {
        let rule = Rule::of::<T>(operations);
        self.object_type = Some(rule.clone());
        self.with_rule(rule)
    }

    /// Restricts the webhook to namespaces with these labels; cluster-scoped objects are not affected. A selector that
    /// names `kube-system` by its label `kubernetes.io/metadata.name` includes it, without
    /// [`with_kube_system`](Self::with_kube_system).
    pub fn with_namespace_selector(mut self, selector: LabelSelector) -> Self {
        self.namespace_selector = selector;
        self
    }

    /// Includes objects in `kube-system`. Without permissions, the webhook then handles them; an
    /// administrator's [permissions](crate::guard::Permissions) decide for themselves.
    pub const fn with_kube_system(mut self) -> Self {
        self.kube_system = true;
        self
    }

    /// Restricts the webhook to objects with these labels. Authors of objects control the labels: this is not a
    /// security boundary.
    pub fn with_object_selector(mut self, selector: LabelSelector) -> Self {
        self.object_selector = selector;
        self
    }

    /// Restricts the webhook to requests that match a CEL expression. `name` appears in errors and is unique in the
    /// webhook.
    pub fn with_match_condition(self, name: impl Into<String>, expression: impl Into<String>) -> Self {
        self.with_live_match_condition(name, watch::channel(expression.into()).1, String::clone)
    }

    /// Like [`with_match_condition`](Self::with_match_condition), with the `expression` for the latest value of
    /// `source`. A `Registration` of feature `operator` applies changes.
    pub fn with_live_match_condition<T: Send + Sync + 'static>(
        mut self,
        name: impl Into<String>,
        source: watch::Receiver<T>,
        expression: impl Fn(&T) -> String + Send + Sync + 'static,
    ) -> Self {
        self.match_conditions.push((name.into(), Expression(Arc::new((source, expression)))));
        self
    }

    /// The match conditions with their latest expressions; `None` if there are none, as the API server returns it.
    pub(crate) fn match_conditions(&self) -> Option<Vec<MatchCondition>> {
        let latest = |(name, expression): &(String, Expression)| MatchCondition {
            name: name.clone(),
            expression: expression.0.latest(),
        };
        (!self.match_conditions.is_empty()).then(|| self.match_conditions.iter().map(latest).collect())
    }

    /// Yields when the expression of a match condition may have changed.
    #[cfg(feature = "operator")]
    pub(crate) fn changes(&self) -> impl Stream<Item = ()> + use<> {
        stream::select_all(self.match_conditions.iter().map(|(_, expression)| expression.0.changes()))
    }

    /// Declares side effects of the handler, which has none in a dry run (`NoneOnDryRun`). For requests that will not
    /// be stored (`dryRun=All`), the API server calls only webhooks that promise no side effects. By default the
    /// handler has none at all.
    pub const fn with_side_effects(mut self) -> Self {
        self.has_side_effects = true;
        self
    }

    /// Sets the timeout of the API server in seconds, 1 to 30.
    pub const fn with_timeout_seconds(mut self, seconds: i32) -> Self {
        self.timeout_seconds = seconds;
        self
    }

    /// Sets the handling of requests while the webhook is unavailable.
    pub const fn with_failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.failure_policy = policy;
        self
    }

    /// Matches exact requests only (`matchPolicy: Exact`): users of another version of the API bypass the webhook. By
    /// default the API server converts the objects of equivalent requests.
    pub const fn with_exact_match(mut self) -> Self {
        self.is_exact = true;
        self
    }

    /// Calls a mutating webhook up to twice, if a later one changes the object (`reinvocationPolicy: IfNeeded`): its
    /// changes have to be idempotent.
    pub const fn with_reinvocation(mut self) -> Self {
        self.is_reinvoked = true;
        self
    }

    /// Returns `true` if the handler may change anything while it handles a request.
    #[cfg(feature = "client")]
    pub(crate) const fn may_write(&self, is_dry_run: bool) -> bool {
        self.has_side_effects && !is_dry_run
    }

    pub(crate) fn at(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    pub(crate) fn includes_kube_system(&self) -> bool {
        self.kube_system || self.selects_by_name(KUBE_SYSTEM) == Some(true)
    }

    /// Returns `true` if the namespaceSelector includes `namespace` by name, `false` if it excludes it, and `None` if
    /// it does not mention it. All requirements have to hold, so an exclusion wins.
    fn selects_by_name(&self, namespace: &str) -> Option<bool> {
        let LabelSelector { match_labels, match_expressions } = &self.namespace_selector;
        let label = match_labels.iter().flatten().find(|(key, _)| *key == NAMESPACE_NAME);
        let by_label = label.map(|(_, name)| name == namespace);
        let expressions =
            match_expressions.iter().flatten().filter(|expression| expression.key == NAMESPACE_NAME);
        let by_expressions = expressions.filter_map(|expression| {
            let lists_it = expression.values.iter().flatten().any(|name| name == namespace);
            match expression.operator.as_str() {
                "In" => Some(lists_it),
                "NotIn" => lists_it.then_some(false),
                _ => None,
            }
        });
        by_label.into_iter().chain(by_expressions).reduce(|one, other| one && other)
    }

    /// Kind of the webhook.
    #[must_use]
    pub const fn kind(&self) -> WebhookKind {
        self.kind
    }

    /// Excludes `kube-system` and, for webhooks of built-in resources, `own_namespace`.
    fn effective_namespace_selector(&self, own_namespace: Option<&str>) -> LabelSelector {
        let own_namespace = own_namespace.filter(|_| self.rules.iter().any(Rule::matches_builtin));
        let excluded = (!self.kube_system).then_some(KUBE_SYSTEM).into_iter().chain(own_namespace);
        let excluded = excluded.filter(|namespace| self.selects_by_name(namespace).is_none());
        let excluded: Vec<_> = excluded.map(str::to_owned).collect();
        let mut selector = normal(&self.namespace_selector);
        if !excluded.is_empty() {
            selector.match_expressions.get_or_insert_default().push(LabelSelectorRequirement {
                key: NAMESPACE_NAME.to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(excluded),
            });
        }
        selector
    }
}

/// Normalizes empty lists to `None`, as the API server does.
fn normal(selector: &LabelSelector) -> LabelSelector {
    let expressions =
        selector.match_expressions.iter().flatten().map(|expression| LabelSelectorRequirement {
            values: expression.values.clone().filter(|values| !values.is_empty()),
            ..expression.clone()
        });
    LabelSelector {
        match_labels: selector.match_labels.clone().filter(|labels| !labels.is_empty()),
        match_expressions: Some(expressions.collect::<Vec<_>>())
            .filter(|expressions| !expressions.is_empty()),
    }
}
