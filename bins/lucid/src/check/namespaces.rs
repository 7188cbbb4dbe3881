//! Checks the namespaces that the webhooks select.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace as Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ListParams;
use kube::core::{Selector, SelectorExt};
use kube::{Api, Client, ResourceExt};
use lucid_admission::Scope;
use lucid_chain::keys;
use serde_json::Value;

use super::pods::written;
use super::report::{Check, Unread};

const CHECK: &str = "selectors";
const PAGE: u32 = 500;

pub(super) struct Namespace {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    /// `true` if the mutating webhook is called for its pods.
    pub(super) is_selected: bool,
    /// Time of the last write of the label, if known.
    pub(super) since: Option<Timestamp>,
}

/// Lists the namespaces of the cluster; namespaces that are being deleted are left out.
pub(super) async fn read(client: &Client, selector: &Selector) -> Result<Vec<Namespace>, Unread> {
    let api: Api<Object> = Api::all(client.clone());
    let mut found = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list_metadata(&params).await.map_err(|error| Unread::of(&error, "list namespaces"))?;
        found.extend(page.items.iter().filter(|it| it.metadata.deletion_timestamp.is_none()).map(|it| {
            let labels = it.labels().clone();
            let since = written(&it.metadata, "labels", keys::ENABLED_LABEL);
            Namespace { name: it.name_any(), is_selected: selector.matches(&labels), labels, since }
        }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(found),
        }
    }
}

/// Parses a selector of a webhook; a missing one selects everything.
pub(super) fn selector(of: &Value) -> Selector {
    let selector: LabelSelector = serde_json::from_value(of.clone()).unwrap_or_default();
    Selector::try_from(selector).unwrap_or_default()
}

pub(super) fn check(namespaces: &[Namespace], scope: &Scope) -> Vec<Check> {
    let selected: Vec<_> = namespaces.iter().filter(|it| it.is_selected).collect();
    let mut checks = Vec::new();
    let widened: Vec<_> =
        selected.iter().map(|it| it.name.as_str()).filter(|name| !scope.covers(name)).collect();
    if !widened.is_empty() {
        let found = format!("the webhook is called in {}, where Lucid never acts", widened.join(", "));
        checks.push(
            Check::failed(CHECK, found)
                .action("while the webhook is unavailable, no pod can be created there: restart lucid-operator, which restores the selector"),
        );
    }
    let count = selected.len() - widened.len();
    if count == 0 {
        checks.push(
            Check::warning(CHECK, "the webhook is called in no namespace: nothing is audited")
                .action(format!("kubectl label namespace NAME {}={}", keys::ENABLED_LABEL, keys::TRUE)),
        );
    } else {
        let names: Vec<_> =
            selected.iter().filter(|it| scope.covers(&it.name)).map(|it| it.name.as_str()).take(10).collect();
        let more =
            if count > names.len() { format!(" and {} more", count - names.len()) } else { String::new() };
        checks.push(Check::ok(CHECK, format!("the webhook is called in {}{more}", names.join(", "))));
    }
    for namespace in namespaces {
        let Some(value) = namespace.labels.get(keys::ENABLED_LABEL).filter(|_| !namespace.is_selected) else {
            continue;
        };
        if value == "false" {
            continue;
        }
        let why = if scope.covers(&namespace.name) {
            format!("accepted is \"{}\"", keys::TRUE)
        } else {
            "Lucid never acts there".to_owned()
        };
        let found = format!(
            "label {}: {value:?} of namespace {} has no effect: {why}",
            keys::ENABLED_LABEL,
            namespace.name
        );
        checks.push(Check::warning(CHECK, found).of(&namespace.name));
    }
    checks
}
