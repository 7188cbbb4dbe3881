//! Validation of the API server (`pkg/apis/admissionregistration/validation` of Kubernetes 1.36), except for compiling
//! CEL.

use std::collections::{BTreeMap, BTreeSet};

use http::Uri;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use snafu::{OptionExt, ResultExt, ensure};

use super::error::{
    DuplicateWebhookSnafu, EmptyRuleSnafu, GroupSnafu, MatchConditionSnafu, MetadataSnafu, NoRulesSnafu,
    OperatorSnafu, PathSnafu, ReinvocationSnafu, ResourceSnafu, SelectorSnafu, ServiceSnafu, TimeoutSnafu,
    UrlSnafu, WebhookNameSnafu, WildcardSnafu,
};
use super::{Endpoint, Registration, RegistrationError, ReinvocationPolicy, Rule};
use crate::guard::{LabelOperator, LabelSelector};
use crate::kind::WebhookKind;
use crate::names::{is_dns_label, is_dns_subdomain, is_name, is_qualified_name};

/// `maxItems` of a webhook's matchConditions.
const MATCH_CONDITIONS: usize = 64;

pub(super) fn webhooks(webhooks: &[&Registration]) -> Result<(), RegistrationError> {
    let mut names = BTreeSet::new();
    for webhook in webhooks {
        self::webhook(webhook)?;
        ensure!(names.insert(&webhook.name), DuplicateWebhookSnafu { name: &webhook.name });
    }
    Ok(())
}

fn webhook(of: &Registration) -> Result<(), RegistrationError> {
    let webhook = &of.name;
    let is_qualified = is_dns_subdomain(webhook) && webhook.split('.').count() >= 3;
    ensure!(is_qualified, WebhookNameSnafu { name: webhook });
    ensure!(is_path(&of.path), PathSnafu { webhook, path: &of.path });
    ensure!(!of.rules.is_empty(), NoRulesSnafu { webhook });
    of.rules.iter().try_for_each(|rule| self::rule(webhook, rule))?;
    let seconds = of.timeout_seconds;
    ensure!((1..=30).contains(&seconds), TimeoutSnafu { webhook, seconds });
    let is_asked_again = of.reinvocation_policy != ReinvocationPolicy::Never;
    ensure!(of.kind == WebhookKind::Mutating || !is_asked_again, ReinvocationSnafu { webhook });
    selector(webhook, "namespaceSelector", &of.namespace_selector)?;
    selector(webhook, "objectSelector", &of.object_selector)?;
    let mut names = BTreeSet::new();
    for condition in &of.match_conditions {
        let is_accepted = names.insert(&condition.name)
            && names.len() <= MATCH_CONDITIONS
            && is_qualified_name(&condition.name)
            && !condition.expression.trim().is_empty();
        ensure!(is_accepted, MatchConditionSnafu { webhook, name: &condition.name });
    }
    Ok(())
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
    ensure!(is_group, GroupSnafu { webhook, group });
    for (field, values) in [("versions", versions), ("resources", resources)] {
        let is_complete = !values.is_empty() && values.iter().all(|value| !value.is_empty());
        ensure!(is_complete, EmptyRuleSnafu { webhook, field });
    }
    if let Some(resource) = resources.iter().find(|resource| !is_resource(resource)) {
        return ResourceSnafu { webhook, resource }.fail();
    }
    ensure!(!operations.is_empty(), EmptyRuleSnafu { webhook, field: "operations" });
    let is_any_version = versions.len() > 1 && versions.iter().any(|version| version == "*");
    ensure!(!is_any_version, WildcardSnafu { webhook, field: "versions", found: "*" });
    for found in resources {
        let includes = |other: &String| other != found && includes(found, other);
        ensure!(!resources.iter().any(includes), WildcardSnafu { webhook, field: "resources", found });
    }
    Ok(())
}

/// Returns `true` for a valid resource, with or without a subresource. The API server does not validate this.
fn is_resource(resource: &str) -> bool {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, "*"));
    [resource, subresource].into_iter().all(|name| name == "*" || is_dns_label(name))
}

/// Validates labels and annotations of a configuration.
pub(super) fn metadata(
    name: &str,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> Result<(), RegistrationError> {
    for (key, value) in labels {
        let is_label = is_qualified_name(key) && (value.is_empty() || is_name(value));
        ensure!(is_label, MetadataSnafu { name, field: "label", key });
    }
    for key in annotations.keys() {
        // Unlike label keys, annotation keys may be in upper case.
        ensure!(is_qualified_name(&key.to_lowercase()), MetadataSnafu { name, field: "annotation", key });
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

fn selector(
    webhook: &str,
    field: &'static str,
    selector: &meta::LabelSelector,
) -> Result<(), RegistrationError> {
    let mut checked = LabelSelector::new();
    for (key, value) in selector.match_labels.iter().flatten() {
        checked = checked.with_label(key, value).context(SelectorSnafu { webhook, field })?;
    }
    for meta::LabelSelectorRequirement { key, operator, values } in
        selector.match_expressions.iter().flatten()
    {
        let operator =
            LabelOperator::from_name(operator).context(OperatorSnafu { webhook, field, operator })?;
        let values = values.iter().flatten();
        checked = checked.with_expression(key, operator, values).context(SelectorSnafu { webhook, field })?;
    }
    Ok(())
}

pub(super) fn endpoint(endpoint: &Endpoint) -> Result<(), RegistrationError> {
    match endpoint {
        Endpoint::Service { namespace, name, port } => {
            let is_valid = is_dns_label(namespace) && is_dns_label(name) && *port != 0;
            ensure!(is_valid, ServiceSnafu { namespace, name, port: *port });
        }
        Endpoint::Url(url) => {
            let is_valid = url.parse::<Uri>().is_ok_and(|uri| {
                let authority = uri.authority().map(|authority| authority.as_str());
                uri.scheme_str() == Some("https")
                    && uri.host().is_some_and(|host| !host.is_empty())
                    && authority.is_some_and(|authority| !authority.contains('@'))
            });
            ensure!(is_valid && !url.contains(['?', '#']), UrlSnafu { url });
        }
    }
    Ok(())
}
