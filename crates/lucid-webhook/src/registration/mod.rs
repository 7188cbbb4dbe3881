//! How the API server is told of webhooks.
//!
//! A [`Registration`] says what one webhook is called for; it is part of the [`Webhook`](crate::Webhook), and the
//! [`Router`](crate::Router) knows them all. [`Configurations`] puts them together with the address of the
//! server into a `MutatingWebhookConfiguration` and a `ValidatingWebhookConfiguration`. What the API server would refuse
//! is refused here, but for match conditions, whose CEL is not compiled; and what it would fill in is written out, so that what was applied equals what is read back.
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
//! `kube-system` is excluded from every webhook by its namespaceSelector, unless the selector asks for that namespace by
//! name, or [`Registration::with_kube_system`] includes it: a webhook that is down there can take the cluster down. Where it
//! is included, the guard that a webhook has by default lets it in.

mod configurations;
mod error;
mod rule;
mod selector;
mod validate;

use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::kind::WebhookKind;
use crate::side_effects::SideEffects;

pub use configurations::{Configurations, Endpoint};
pub use error::RegistrationError;
pub use rule::{Rule, RuleScope};
pub use selector::{InvalidSelector, parse_selector};

/// Every Namespace has this label, with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
const KUBE_SYSTEM: &str = "kube-system";

/// What happens to a request when the webhook cannot be asked (`failurePolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// It is refused.
    #[default]
    Fail,
    /// It passes.
    Ignore,
}

/// Whether the webhook is also asked about equivalent requests, through other versions of the API (`matchPolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MatchPolicy {
    /// It is; the API server converts the objects.
    #[default]
    Equivalent,
    /// It is not: whoever uses another version gets past the webhook.
    Exact,
}

/// Whether a mutating webhook is asked again when a later one changes the object (`reinvocationPolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReinvocationPolicy {
    /// It is not.
    #[default]
    Never,
    /// It is, once: its changes have to be ones that can be made twice.
    IfNeeded,
}

/// What one webhook is called for.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Registration {
    kind: WebhookKind,
    name: String,
    path: String,
    rules: Vec<Rule>,
    namespace_selector: LabelSelector,
    kube_system: bool,
    object_selector: LabelSelector,
    match_conditions: Vec<MatchCondition>,
    side_effects: SideEffects,
    timeout_seconds: i32,
    failure_policy: FailurePolicy,
    match_policy: MatchPolicy,
    reinvocation_policy: ReinvocationPolicy,
}

impl Registration {
    /// A webhook with a fully qualified name, such as `label.example.com`, that is served at `path`, with the API server's
    /// own defaults: 10 s, `Fail`, `Equivalent`, `Never`; and without side effects.
    pub fn new(kind: WebhookKind, name: impl Into<String>, path: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            path: path.into(),
            rules: Vec::new(),
            namespace_selector: LabelSelector::default(),
            kube_system: false,
            object_selector: LabelSelector::default(),
            match_conditions: Vec::new(),
            side_effects: SideEffects::None,
            timeout_seconds: 10,
            failure_policy: FailurePolicy::Fail,
            match_policy: MatchPolicy::Equivalent,
            reinvocation_policy: ReinvocationPolicy::Never,
        }
    }

    /// Adds requests that the webhook is asked about.
    pub fn with_rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Asks only about objects in namespaces with these labels; those outside of namespaces are not affected. A selector that
    /// asks for `kube-system` by its label `kubernetes.io/metadata.name` includes it, without
    /// [`with_kube_system`](Self::with_kube_system).
    pub fn with_namespace_selector(mut self, selector: LabelSelector) -> Self {
        self.namespace_selector = selector;
        self
    }

    /// Asks about objects in `kube-system` as well. The guard that a webhook has by default lets them in then; one that is
    /// set by hand, or by the administrator, has a say of its own.
    pub const fn with_kube_system(mut self) -> Self {
        self.kube_system = true;
        self
    }

    /// Asks only about objects with these labels. Whoever writes the object writes its labels: this is no guard.
    pub fn with_object_selector(mut self, selector: LabelSelector) -> Self {
        self.object_selector = selector;
        self
    }

    /// Asks only when this CEL expression holds as well; `name` is for error messages and unique in the webhook.
    pub fn with_match_condition(mut self, name: impl Into<String>, expression: impl Into<String>) -> Self {
        self.match_conditions.push(MatchCondition { name: name.into(), expression: expression.into() });
        self
    }

    /// What the webhook does besides answering.
    pub const fn with_side_effects(mut self, side_effects: SideEffects) -> Self {
        self.side_effects = side_effects;
        self
    }

    /// How many seconds the API server waits for the answer, 1 to 30.
    pub const fn with_timeout_seconds(mut self, seconds: i32) -> Self {
        self.timeout_seconds = seconds;
        self
    }

    /// What happens when the webhook cannot be asked.
    pub const fn with_failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.failure_policy = policy;
        self
    }

    /// Whether equivalent requests are meant as well.
    pub const fn with_match_policy(mut self, policy: MatchPolicy) -> Self {
        self.match_policy = policy;
        self
    }

    /// Whether the webhook is asked again when a later one changes the object; only for mutating ones.
    pub const fn with_reinvocation_policy(mut self, policy: ReinvocationPolicy) -> Self {
        self.reinvocation_policy = policy;
        self
    }

    /// What the webhook does besides answering.
    #[must_use]
    pub const fn side_effects(&self) -> SideEffects {
        self.side_effects
    }

    /// The same at another path.
    pub(crate) fn at(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Whether the webhook is meant to be asked about objects in `kube-system`.
    pub(crate) fn includes_kube_system(&self) -> bool {
        self.kube_system || self.kube_system_by_name() == Some(true)
    }

    /// Whether the namespaceSelector asks for `kube-system` by name (`true`), keeps it out by name (`false`), or says nothing
    /// of it. All requirements have to hold, so one that keeps it out wins.
    fn kube_system_by_name(&self) -> Option<bool> {
        let LabelSelector { match_labels, match_expressions } = &self.namespace_selector;
        let label = match_labels.iter().flatten().find(|(key, _)| *key == NAMESPACE_NAME);
        let by_label = label.map(|(_, name)| name == KUBE_SYSTEM);
        let expressions =
            match_expressions.iter().flatten().filter(|expression| expression.key == NAMESPACE_NAME);
        let by_expressions = expressions.filter_map(|expression| {
            let lists_it = expression.values.iter().flatten().any(|name| name == KUBE_SYSTEM);
            match expression.operator.as_str() {
                "In" => Some(lists_it),
                "NotIn" => lists_it.then_some(false),
                _ => None,
            }
        });
        by_label.into_iter().chain(by_expressions).reduce(|one, other| one && other)
    }

    /// Whether it is mutating or validating.
    #[must_use]
    pub const fn kind(&self) -> WebhookKind {
        self.kind
    }

    /// The namespaceSelector with what keeps `kube-system` out.
    fn effective_namespace_selector(&self) -> LabelSelector {
        let mut selector = normal(&self.namespace_selector);
        if !self.kube_system && self.kube_system_by_name().is_none() {
            selector.match_expressions.get_or_insert_default().push(LabelSelectorRequirement {
                key: NAMESPACE_NAME.to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(vec![KUBE_SYSTEM.to_owned()]),
            });
        }
        selector
    }
}

/// The API server does not tell an empty list from none, and answers none.
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
