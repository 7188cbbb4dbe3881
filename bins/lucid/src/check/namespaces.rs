//! Checks the namespaces that the webhooks select.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace as Object;
use kube::api::ListParams;
use kube::core::{ObjectMeta, Selector, SelectorExt};
use kube::{Api, Client, ResourceExt};
use lucid_admission::Scope;
use lucid_chain::keys;

use super::report::{Check, Unread};

const CHECK: &str = "selectors";
const PAGE: u32 = 500;
const SHOWN: usize = 10;

pub(super) struct Namespace {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    /// `true` if the mutating webhook is called for its pods.
    pub(super) is_selected: bool,
    /// `false` if Lucid never acts there.
    pub(super) is_covered: bool,
    /// Time of the last write of the label, if known.
    pub(super) since: Option<Timestamp>,
}

impl Namespace {
    pub(super) fn is_audited(&self) -> bool {
        self.is_selected && self.is_covered
    }
}

/// Lists the namespaces of the cluster; namespaces that are being deleted are left out.
pub(super) async fn read(
    client: &Client,
    selector: &Selector,
    scope: &Scope,
) -> Result<Vec<Namespace>, Unread> {
    let api: Api<Object> = Api::all(client.clone());
    let mut found = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list_metadata(&params).await.map_err(|error| Unread::of(&error, "list namespaces"))?;
        found.extend(page.items.iter().filter(|it| it.metadata.deletion_timestamp.is_none()).map(|it| {
            let labels = it.labels().clone();
            let since = written(&it.metadata, "labels", keys::ENABLED_LABEL);
            let (name, is_selected) = (it.name_any(), selector.matches(&labels));
            Namespace { is_covered: scope.covers(&name), name, is_selected, labels, since }
        }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(found),
        }
    }
}

/// Returns the time of the last write to a label or annotation, according to `managedFields`.
pub(super) fn written(metadata: &ObjectMeta, field: &str, key: &str) -> Option<Timestamp> {
    let (field, key) = (format!("f:{field}"), format!("f:{key}"));
    let entries = metadata.managed_fields.iter().flatten();
    let entries = entries.filter(|entry| {
        entry.fields_v1.as_ref().is_some_and(|it| it.0["f:metadata"][&field].get(&key).is_some())
    });
    entries.filter_map(|entry| Some(entry.time.as_ref()?.0)).max()
}

/// Returns the first names, and the number of the others.
pub(super) fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

pub(super) fn check(namespaces: &[Namespace]) -> Vec<Check> {
    let selected = namespaces.iter().filter(|it| it.is_selected);
    let (audited, widened): (Vec<_>, Vec<_>) = selected.partition(|it| it.is_covered);
    let names = |all: &[&Namespace]| all.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut checks = Vec::new();
    if !widened.is_empty() {
        let found = format!("the webhook is called in {}, where Lucid never acts", names(&widened));
        checks.push(
            Check::failed(CHECK, found)
                .action("while the webhook is unavailable, no pod can be created there: restart lucid-operator, which restores the selector"),
        );
    }
    if audited.is_empty() {
        checks.push(
            Check::warning(CHECK, "the webhook is called in no namespace: nothing is audited")
                .action(format!("kubectl label namespace NAME {}={}", keys::ENABLED_LABEL, keys::TRUE)),
        );
    } else {
        let audited: Vec<_> = audited.iter().map(|it| it.name.as_str()).collect();
        checks.push(Check::ok(CHECK, format!("the webhook is called in {}", listed(&audited))));
    }
    for namespace in namespaces {
        let Some(value) = namespace.labels.get(keys::ENABLED_LABEL).filter(|_| !namespace.is_selected) else {
            continue;
        };
        if value == "false" {
            continue;
        }
        let why = if namespace.is_covered {
            format!("expected \"{}\"", keys::TRUE)
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
