//! What webhooks about pods are called for.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use lucid_webhook::Operation;
use lucid_webhook::registration::{Registration, Rule, RuleScope};

use crate::scope::Scope;

/// The webhook that validates pods.
pub const VALIDATE_NAME: &str = "validate.lucid.computing";
/// Where pods are validated.
pub const VALIDATE_PATH: &str = "/validate";

/// What Lucid's webhooks are called for.
#[derive(Clone, Debug)]
pub struct Calls {
    /// Which namespaces are looked at.
    pub scope: Scope,
    /// How long the API server waits for an answer, 1 to 30.
    pub timeout_seconds: i32,
}

impl Calls {
    /// The validating webhook: new pods, and changes of their specs. It never fails open.
    pub fn validating(&self, registration: Registration) -> Registration {
        let pods = Rule::of::<Pod>([Operation::Create, Operation::Update]).scope(RuleScope::Namespaced);
        let ephemeral = Rule::of::<Pod>([Operation::Update]).scope(RuleScope::Namespaced);
        self.of_pods(registration)
            .with_rule(pods)
            .with_rule(ephemeral.subresource("ephemeralcontainers"))
            // What is checked stands in the spec. Labels and finalizers must be changeable while the webhook is
            // down, or pods could not even be deleted.
            .with_match_condition(
                "spec-changed",
                "request.operation != 'UPDATE' || object.spec != oldObject.spec",
            )
    }

    /// What all of them have in common: the namespaces that are enabled and may be looked at.
    pub fn of_pods(&self, registration: Registration) -> Registration {
        registration.with_timeout_seconds(self.timeout_seconds).with_namespace_selector(LabelSelector {
            match_labels: Some([(lucid_chain::keys::ENABLED_LABEL.to_owned(), "true".to_owned())].into()),
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "kubernetes.io/metadata.name".to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(self.scope.excluded().map(str::to_owned).collect()),
            }]),
        })
    }
}
