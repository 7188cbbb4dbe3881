//! Compares a pod with the chain it would get now, using the webhook's planner.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::core::SelectorExt;
use lucid_admission::NamespaceView;
use lucid_chain::{ContainerView, Decision, Inputs, Plan, PodView, Warning, keys, plan};
use serde_json::Value;

use super::pod::PodMeta;
use crate::check::namespaces::written;
use crate::check::registration::RegisteredWebhook;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum ChainState {
    /// It requests no chain, or is not live.
    NotConcerned,
    /// It has the current chain.
    Fine,
    /// It requests a chain and has none.
    WithoutChain,
    /// It appears to request a chain, but the request is not effective.
    RequestIgnored,
    /// It opts out of auditing and is allowed to.
    Skipped,
    /// It has the current chain, in front of a port that nothing names as the model's.
    AssumedPort,
    /// Its chain is from another configuration.
    Stale,
    /// Its chain is incomplete or was changed after injection.
    Wrong,
    Unknown,
}

/// Plans the pod in `json` as the webhook does, and compares. Returns the result with its reason. `enabled` is the time at
/// which its namespace was enabled.
pub(in super::super) fn evaluate(
    json: &str,
    meta: &PodMeta,
    namespace: &str,
    view: &NamespaceView,
    webhook: Option<&RegisteredWebhook>,
    enabled: Option<Timestamp>,
) -> (ChainState, String) {
    if !meta.is_live() {
        return (ChainState::NotConcerned, String::new());
    }
    let pod = match PodView::from_json(json) {
        Ok(pod) => pod,
        Err(error) => return (ChainState::Unknown, error.to_string()),
    };
    let outcome = plan(&pod, &Inputs { namespace: Some(namespace), ..view.inputs() });
    let has_auditors = all(&pod).any(|found| found.env(keys::AUDITOR_ID_ENV).is_some());
    match outcome.decision {
        Decision::NotRequested => {
            let misread = outcome.warnings.iter().find(|warning| {
                matches!(warning, Warning::InvalidSecuredLabel { .. } | Warning::TriggerMissing)
            });
            match misread {
                Some(warning) => (ChainState::RequestIgnored, warning.to_string()),
                None => (ChainState::NotConcerned, String::new()),
            }
        }
        Decision::Skipped { reason } => (ChainState::Skipped, reason.to_string()),
        // Only the operator knows the last valid configuration, which it keeps using.
        _ if !view.problems.is_empty() => (ChainState::Unknown, view.problems.join("; ")),
        Decision::Impossible { reason } => (ChainState::WithoutChain, reason.to_string()),
        Decision::Planned(plan) if has_auditors || all(&pod).any(|found| is_planned(&plan, found)) => {
            compare(&plan, &pod, meta)
        }
        Decision::Planned(_) => (ChainState::WithoutChain, why_none(meta, webhook, enabled)),
    }
}

fn all<'p, 'a>(pod: &'p PodView<'a>) -> impl Iterator<Item = &'p ContainerView<'a>> {
    pod.containers().iter().chain(pod.init_containers())
}

fn is_planned(plan: &Plan, found: &ContainerView<'_>) -> bool {
    plan.containers.iter().any(|planned| planned.name == found.name())
}

/// Returns the most likely reason for a missing chain, certain ones first.
fn why_none(meta: &PodMeta, webhook: Option<&RegisteredWebhook>, enabled: Option<Timestamp>) -> String {
    let created = meta.created();
    let is_before =
        |moment: Option<Timestamp>| created.zip(moment).is_some_and(|(created, moment)| created < moment);
    if meta.annotation("kubernetes.io/config.mirror").is_some() {
        return "a static pod: the kubelet runs it regardless of webhooks".to_owned();
    }
    let Some(webhook) = webhook else { return "the webhook is not registered".to_owned() };
    if !webhook.object_selector().matches(meta.metadata.labels.as_ref().unwrap_or(&BTreeMap::new())) {
        return "the objectSelector of the webhook does not select it".to_owned();
    }
    if is_before(webhook.since.as_ref().map(|since| since.0)) {
        return "created before the webhook was registered".to_owned();
    }
    if is_before(enabled) {
        return "created before the namespace was enabled".to_owned();
    }
    let label = written(&meta.metadata, "labels", keys::SECURED_LABEL);
    if is_before(label.or_else(|| written(&meta.metadata, "annotations", keys::AUDITORS))) {
        return "requested a chain only after creation".to_owned();
    }
    if meta.annotation(keys::SKIP_AUDIT) == Some(keys::TRUE) {
        return format!("it has {}, which is no longer allowed", keys::SKIP_AUDIT);
    }
    if webhook.ignores_failures() {
        return "the webhook was unavailable, and its failurePolicy is Ignore".to_owned();
    }
    "the webhook was not called: its registration was missing, different or set to Ignore for a while"
        .to_owned()
}

/// Injection as recorded in the status annotation. The annotation can be forged, so it only refines the reason.
struct Injected {
    chain: Vec<String>,
    images: Vec<String>,
}

impl Injected {
    fn of(meta: &PodMeta) -> Option<Self> {
        let status: Value = serde_json::from_str(meta.annotation(keys::STATUS)?).ok()?;
        let texts = |key: &str| {
            let items = status[key].as_array()?.iter();
            Some(items.filter_map(|item| item.as_str().map(str::to_owned)).collect::<Vec<_>>())
        };
        Some(Self { chain: texts("chain")?, images: texts("images")? })
    }

    fn image(&self, container: &str) -> Option<&str> {
        let place = self.chain.iter().position(|name| name == container)?;
        self.images.get(place).map(String::as_str)
    }
}

fn compare(plan: &Plan, pod: &PodView<'_>, meta: &PodMeta) -> (ChainState, String) {
    let injected = Injected::of(meta);
    let was_injected = |name: &str| injected.as_ref().is_some_and(|it| it.chain.iter().any(|it| it == name));
    let (mut stale, mut wrong) = (Vec::new(), Vec::new());
    let patch = plan.chain_patch(pod);
    for warning in &patch.warnings {
        match warning {
            Warning::ContainerReplaced { name, difference } => {
                let found = all(pod).find(|found| found.name() == name);
                let planned = plan.containers.iter().find(|planned| planned.name == *name);
                let image = found.and_then(ContainerView::image).unwrap_or_default();
                let recorded = injected.as_ref().and_then(|it| it.image(name));
                // Images change most often with a catalogue, and only the first difference is reported.
                let what = match planned.filter(|planned| planned.auditor.image() != image) {
                    Some(planned) => format!("image of {name} is {image}, now {}", planned.auditor.image()),
                    None => format!("{difference} of {name} differs"),
                };
                let is_auditor =
                    found.and_then(|found| found.env(keys::AUDITOR_ID_ENV)).as_deref() == Some(name.as_str());
                if planned.is_some() && !is_auditor {
                    wrong.push(format!("container {name} is not one of Lucid's"));
                } else if recorded.is_some_and(|recorded| recorded != image) {
                    wrong.push(format!("{what}; injected was {}", recorded.unwrap_or_default()));
                } else {
                    stale.push(what);
                }
            }
            Warning::ContainerReplanned { name, difference } => {
                stale.push(format!("{difference} of {name} differs"))
            }
            Warning::ContainerMoved { name } => {
                wrong.push(format!("init container {name} is in the wrong position"))
            }
            _ => {}
        }
    }
    let init = plan.init.as_ref().map(|init| init.name.as_str());
    for name in plan.containers.iter().map(|planned| planned.name.as_str()).chain(init) {
        let list =
            if plan.is_native() || Some(name) == init { pod.init_containers() } else { pod.containers() };
        if list.iter().all(|found| found.name() != name) {
            if all(pod).any(|found| found.name() == name) {
                let kind = if plan.is_native() { "native" } else { "containers" };
                stale.push(format!("{name} is now a different kind of container ({kind})"));
            } else if was_injected(name) {
                wrong.push(format!("{name} is missing"));
            } else {
                stale.push(format!("{name} is missing, a new part of the chain"));
            }
        }
    }
    stale.extend(plan.leftovers.iter().map(|name| format!("{name} is no longer part of the chain")));
    if stale.is_empty() && wrong.is_empty() {
        let operations = patch.operations();
        let concerns = |path: &&str| !path.starts_with("/metadata");
        let operation = operations.iter().map(|operation| operation.path().as_str()).find(concerns);
        stale.extend(operation.map(|path| format!("{path} differs")));
    }
    match (wrong.is_empty(), stale.is_empty()) {
        (false, _) => (ChainState::Wrong, wrong.join("; ")),
        (true, false) => (ChainState::Stale, stale.join("; ")),
        (true, true) => match plan.assumed_port() {
            Some(warning) => (ChainState::AssumedPort, warning.to_string()),
            None => (ChainState::Fine, String::new()),
        },
    }
}
