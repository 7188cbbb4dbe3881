//! Validation of the API server (`pkg/apis/admissionregistration/validation` of Kubernetes 1.36), except for compiling
//! CEL.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use lucid_text::names::{
    is_annotation_key, is_dns_label, is_dns_subdomain, is_fully_qualified_name, is_label_value,
    is_qualified_name,
};
use snafu::ensure;

use super::{RegistrationError, RegistrationSnafu, Rule, WebhookRegistration};
use crate::guard::labels::Labels;
use crate::kind::WebhookKind;

/// `maxItems` of a webhook's matchConditions.
const MATCH_CONDITIONS: usize = 64;

pub(super) fn webhooks(webhooks: &[&WebhookRegistration]) -> Result<(), RegistrationError> {
    let mut names = BTreeSet::new();
    for webhook in webhooks {
        self::webhook(webhook)?;
        ensure!(names.insert(&webhook.name), invalid(&webhook.name, "there are two of this name"));
    }
    Ok(())
}

fn webhook(of: &WebhookRegistration) -> Result<(), RegistrationError> {
    let webhook = &of.name;
    ensure!(
        is_fully_qualified_name(webhook),
        invalid(
            webhook,
            "expected a DNS name in lower case with at least three segments, such as label.example.com"
        )
    );
    ensure!(
        is_path(&of.path),
        invalid(
            webhook,
            format!("path {:?}: expected '/' and segments that are DNS names in lower case", of.path)
        )
    );
    ensure!(!of.rules.is_empty(), invalid(webhook, "it has no rules, so it would never be called"));
    of.rules.iter().try_for_each(|rule| self::rule(webhook, rule))?;
    if let Some(object_type) = &of.object_type
        && let Some(rule) = of.rules.iter().find(|rule| !rule.is_only_of(object_type))
    {
        let (found, expected) = (rule.resources(), object_type.resources());
        let problem =
            format!("its handler accepts {expected} and subresources, and it has a rule for {found}");
        return invalid(webhook, problem).fail();
    }
    let seconds = of.timeout_seconds;
    ensure!(
        (1..=30).contains(&seconds),
        invalid(webhook, format!("timeoutSeconds: expected 1 to 30, found {seconds}"))
    );
    ensure!(
        of.kind == WebhookKind::Mutating || !of.is_reinvoked,
        invalid(webhook, "a validating webhook has no reinvocationPolicy")
    );
    selector(webhook, "namespaceSelector", &of.namespace_selector)?;
    selector(webhook, "objectSelector", &of.object_selector)?;
    let mut names = BTreeSet::new();
    for MatchCondition { name, expression } in of.match_conditions().into_iter().flatten() {
        let is_valid = names.insert(name.clone())
            && names.len() <= MATCH_CONDITIONS
            && is_qualified_name(&name)
            && !expression.trim().is_empty();
        ensure!(
            is_valid,
            invalid(
                webhook,
                format!(
                    "match condition {name:?}: expected at most 64, each with a unique qualified name and an expression"
                )
            )
        );
    }
    Ok(())
}

pub(super) fn configuration(name: &str, problem: impl Display) -> RegistrationSnafu<String> {
    RegistrationSnafu { problem: format!("configuration {name:?}: {problem}") }
}

fn invalid(webhook: &str, problem: impl Display) -> RegistrationSnafu<String> {
    RegistrationSnafu { problem: format!("webhook {webhook:?}: {problem}") }
}

fn is_path(path: &str) -> bool {
    let segments = path.strip_prefix('/').map(|path| path.strip_suffix('/').unwrap_or(path));
    path == "/" || segments.is_some_and(|segments| segments.split('/').all(is_dns_subdomain))
}

fn rule(
    webhook: &str,
    Rule { group, versions, resources, operations, .. }: &Rule,
) -> Result<(), RegistrationError> {
    let is_group = group.is_empty() || group == "*" || is_dns_subdomain(group);
    ensure!(
        is_group,
        invalid(webhook, format!("API group {group:?}: expected \"\", \"*\" or a DNS name in lower case"))
    );
    let incomplete = |field| format!("a rule has no {field}, or an empty one");
    for (field, values) in [("versions", versions), ("resources", resources)] {
        let is_complete = !values.is_empty() && values.iter().all(|value| !value.is_empty());
        ensure!(is_complete, invalid(webhook, incomplete(field)));
    }
    for resource in resources {
        ensure!(
            is_resource(resource),
            invalid(
                webhook,
                format!(
                    "resource {resource:?}: expected a plural in lower case, such as pods, pods/exec, pods/*, */scale, * \
                 or */*"
                )
            )
        );
    }
    ensure!(!operations.is_empty(), invalid(webhook, incomplete("operations")));
    let redundant = |field, found: &str| {
        format!("a rule has {found:?} among its {field}, which includes others that it names")
    };
    let is_any_version = versions.len() > 1 && versions.iter().any(|version| version == "*");
    ensure!(!is_any_version, invalid(webhook, redundant("versions", "*")));
    for found in resources {
        let includes = |other: &String| other != found && includes(found, other);
        ensure!(!resources.iter().any(includes), invalid(webhook, redundant("resources", found)));
    }
    Ok(())
}

/// Returns `true` for a valid resource, with or without a subresource. The API server does not validate this.
fn is_resource(resource: &str) -> bool {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, "*"));
    [resource, subresource].into_iter().all(|name| name == "*" || is_dns_label(name))
}

pub(super) fn metadata(
    name: &str,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> Result<(), RegistrationError> {
    let bad_key = |field, key: &str| {
        let problem = format!(
            "{field} {key:?}: expected a qualified name as key, such as example.com/name, and as value of a label up \
             to 63 of A-Z, a-z, 0-9, '-', '_' and '.', alphanumeric at both ends"
        );
        configuration(name, problem)
    };
    for (key, value) in labels {
        let is_label = is_qualified_name(key) && is_label_value(value);
        ensure!(is_label, bad_key("label", key));
    }
    for key in annotations.keys() {
        ensure!(is_annotation_key(key), bad_key("annotation", key));
    }
    Ok(())
}

/// Returns `true` if the resource `a`, such as `*`, `*/scale`, `pods/*` or `*/*`, includes `b`.
fn includes(a: &str, b: &str) -> bool {
    match (a.split_once('/'), b.split_once('/')) {
        (Some(("*", "*")), _) => true,
        (None, None) => a == "*",
        (Some((resource, "*")), Some((other, _))) => resource == other,
        (Some(("*", subresource)), Some((_, other))) => subresource == other,
        _ => false,
    }
}

fn selector(webhook: &str, field: &str, selector: &LabelSelector) -> Result<(), RegistrationError> {
    match Labels::try_from(selector) {
        Ok(_) => Ok(()),
        Err(error) => invalid(webhook, format!("{field}: {error}")).fail(),
    }
}
