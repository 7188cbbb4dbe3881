//! Matching of requests by rules and selectors (`admission/plugin/webhook/predicates` of kube-apiserver).

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube_core::gvk::GroupVersionResource;
use lucid_webhook::Operation;
use serde_json::Value;

use crate::outcome::Mismatch;

pub(super) type Labels = BTreeMap<String, String>;

/// The parts of a request that determine if a webhook is called.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    pub(super) operation: Operation,
    /// The requested resource, and the one to which the API server converts for `matchPolicy: Equivalent`.
    pub(super) resources: [&'a GroupVersionResource; 2],
    pub(super) sub_resource: &'a str,
    /// Empty for cluster-scoped objects. A Namespace is in itself.
    pub(super) namespace: &'a str,
    pub(super) namespace_labels: Option<&'a Labels>,
    pub(super) object: Option<&'a Value>,
    pub(super) old_object: Option<&'a Value>,
}

#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub(super) rules: Vec<RuleWithOperations>,
    pub(super) exact: bool,
    pub(super) namespace_selector: LabelSelector,
    pub(super) object_selector: LabelSelector,
}

/// The request is for a namespace that does not exist, so the selector cannot be evaluated.
#[derive(Debug)]
pub(super) struct UnknownNamespace;

impl Subject<'_> {
    fn is_namespace(&self, resource: &GroupVersionResource) -> bool {
        resource.group.is_empty() && resource.resource == "namespaces"
    }

    fn describe(&self) -> String {
        let [resource, _] = self.resources;
        let sub_resource = if self.sub_resource.is_empty() { "" } else { "/" };
        let namespace = if self.namespace.is_empty() { "no namespace" } else { self.namespace };
        format!(
            "{} of {}{sub_resource}{} in {}, in {namespace}",
            self.operation.as_str(),
            resource.resource,
            self.sub_resource,
            api_version(resource)
        )
    }
}

impl Scope {
    /// Returns the first reason not to call the webhook.
    pub(super) fn mismatch(
        &self,
        subject: &Subject<'_>,
    ) -> Result<Option<(Mismatch, String)>, UnknownNamespace> {
        let [requested, converted] = subject.resources;
        let matches = |resource| self.rules.iter().any(|rule| rule_matches(rule, resource, subject));
        if !matches(requested) && (self.exact || !matches(converted)) {
            if let Some(rule) = self.equivalent(subject).filter(|_| !self.exact) {
                let problem = format!(
                    "no rule matches {}. The API server would convert the object, by matchPolicy: Equivalent, for the rule \
                     {}; ApiServer does not: pass the converted object, and the requested version by Review::requested_as",
                    subject.describe(),
                    Shown(rule)
                );
                return Ok(Some((Mismatch::Equivalent, problem)));
            }
            let rules = self.rules.iter().map(|rule| Shown(rule).to_string()).collect::<Vec<_>>().join("; ");
            let problem = format!("no rule matches {}, the rules are: {rules}", subject.describe());
            return Ok(Some((Mismatch::Rules, problem)));
        }
        let is_scoped = !subject.namespace.is_empty() || subject.is_namespace(requested);
        if is_scoped && !is_empty(&self.namespace_selector) {
            let labels = subject.namespace_labels.ok_or(UnknownNamespace)?;
            if let Some(requirement) = unmet(&self.namespace_selector, labels) {
                let problem = format!(
                    "namespaceSelector requires {requirement}, namespace {:?} has {}",
                    subject.namespace,
                    shown(labels)
                );
                return Ok(Some((Mismatch::NamespaceSelector, problem)));
            }
        }
        if is_empty(&self.object_selector) {
            return Ok(None);
        }
        let mut failed = None;
        for object in [subject.object, subject.old_object].into_iter().flatten() {
            // Options of CONNECT have no metadata. Not even a requirement that a label is absent selects them.
            let labels = object.get("metadata").filter(|_| subject.operation != Operation::Connect);
            let Some(labels) = labels.map(|_| labels_of(object)) else {
                let problem = "objectSelector selects no objects without metadata".to_owned();
                failed = failed.or(Some(problem));
                continue;
            };
            let Some(requirement) = unmet(&self.object_selector, &labels) else { return Ok(None) };
            let problem = format!("objectSelector requires {requirement}, the object has {}", shown(&labels));
            failed = failed.or(Some(problem));
        }
        Ok(failed.map(|problem| (Mismatch::ObjectSelector, problem)))
    }

    fn equivalent(&self, subject: &Subject<'_>) -> Option<&RuleWithOperations> {
        let [requested, _] = subject.resources;
        let versions = |rule: &&RuleWithOperations| {
            rule.api_versions.iter().flatten().any(|version| {
                let resource = GroupVersionResource::gvr(&requested.group, version, &requested.resource);
                rule_matches(rule, &resource, subject)
            })
        };
        self.rules.iter().find(versions)
    }
}

/// Labels of an object; values that are not strings count as absent.
pub(super) fn labels_of(object: &Value) -> Labels {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn rule_matches(rule: &RuleWithOperations, resource: &GroupVersionResource, subject: &Subject<'_>) -> bool {
    let lists = |list: &Option<Vec<String>>, found: &str| {
        list.iter().flatten().any(|accepted| accepted == "*" || accepted == found)
    };
    let is_cluster_scoped = subject.namespace.is_empty() || subject.is_namespace(resource);
    let is_in_scope = match rule.scope.as_deref() {
        Some("Namespaced") => !is_cluster_scoped,
        Some("Cluster") => is_cluster_scoped,
        _ => true,
    };
    let resources = rule.resources.iter().flatten().any(|accepted| {
        let (parent, sub_resource) = accepted.split_once('/').unwrap_or((accepted, ""));
        (parent == "*" || parent == resource.resource)
            && (sub_resource == "*" || sub_resource == subject.sub_resource)
    });
    is_in_scope
        && resources
        && lists(&rule.operations, subject.operation.as_str())
        && lists(&rule.api_groups, &resource.group)
        && lists(&rule.api_versions, &resource.version)
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.iter().flatten().next().is_none()
        && selector.match_expressions.iter().flatten().next().is_none()
}

/// Returns the first requirement that the labels do not meet.
fn unmet(selector: &LabelSelector, labels: &Labels) -> Option<String> {
    let label = selector.match_labels.iter().flatten().find(|(key, value)| labels.get(*key) != Some(value));
    if let Some((key, value)) = label {
        return Some(format!("{key}={value}"));
    }
    let is_met = |requirement: &&LabelSelectorRequirement| {
        let label = labels.get(&requirement.key);
        let mut values = requirement.values.iter().flatten();
        match requirement.operator.as_str() {
            "In" => label.is_some_and(|label| values.any(|value| value == label)),
            "NotIn" => label.is_none_or(|label| values.all(|value| value != label)),
            "Exists" => label.is_some(),
            _ => label.is_none(),
        }
    };
    let requirement = selector.match_expressions.iter().flatten().find(|requirement| !is_met(requirement))?;
    let values = requirement.values.as_deref().unwrap_or_default();
    let values = if values.is_empty() { String::new() } else { format!(" ({})", values.join(", ")) };
    Some(format!("{} {}{values}", requirement.key, requirement.operator))
}

fn shown(labels: &Labels) -> String {
    if labels.is_empty() {
        return "no labels".to_owned();
    }
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}

fn api_version(resource: &GroupVersionResource) -> String {
    let separator = if resource.group.is_empty() { "" } else { "/" };
    format!("{}{separator}{}", resource.group, resource.version)
}

/// Formats a rule as `CREATE, UPDATE of pods in v1`.
struct Shown<'a>(&'a RuleWithOperations);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |list: &Option<Vec<String>>| list.as_deref().unwrap_or_default().join(", ");
        let Self(rule) = self;
        write!(f, "{} of {} in ", list(&rule.operations), list(&rule.resources))?;
        let group = list(&rule.api_groups);
        let separator = if group.is_empty() { "" } else { "/" };
        write!(f, "{group}{separator}{}", list(&rule.api_versions))?;
        match rule.scope.as_deref() {
            Some("*") | None => Ok(()),
            Some(scope) => write!(f, " ({scope})"),
        }
    }
}
