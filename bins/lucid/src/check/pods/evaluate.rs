//! Evaluates pods by the keeper's comparison, with the reason for a missing chain.

use jiff::Timestamp;
use kube::ResourceExt;
use kube::core::SelectorExt;
use lucid_admission::NamespaceView;
use lucid_chain::keys;
use lucid_keeper::{Comparison, State, StoredPod, Verdicts, state};

use crate::check::namespaces::written;
use crate::check::registration::RegisteredWebhook;

/// Returns the state of a pod with its reason; `None` if it requests no chain or is not live. `enabled` is the time at
/// which its namespace was enabled.
pub(in super::super) fn evaluate(
    pod: &StoredPod,
    namespace: &str,
    view: &NamespaceView,
    webhook: Option<&RegisteredWebhook>,
    enabled: Option<Timestamp>,
) -> Option<(State, String)> {
    let comparison = Comparison::new(pod, namespace, view)?;
    Some(match known_state(&comparison, view, &Verdicts::default()) {
        (State::Missing, reason) if reason.is_empty() => (State::Missing, why_none(pod, webhook, enabled)),
        found => found,
    })
}

/// Returns the state with its reason, as far as it can be known from outside of the operator.
pub(crate) fn known_state(
    comparison: &Comparison,
    view: &NamespaceView,
    verdicts: &Verdicts,
) -> (State, String) {
    match state(comparison, verdicts, Timestamp::now()) {
        (state @ (State::Ignored | State::Skipped), reason) => (state, reason.into_owned()),
        // Only the operator knows the last valid configuration, which it keeps using.
        _ if !view.problems.is_empty() => (State::Unknown, view.problems.join("; ")),
        (state, reason) => (state, reason.into_owned()),
    }
}

/// Returns the most likely reason for a missing chain, certain ones first.
fn why_none(pod: &StoredPod, webhook: Option<&RegisteredWebhook>, enabled: Option<Timestamp>) -> String {
    let created = pod.created();
    let is_before =
        |moment: Option<Timestamp>| created.zip(moment).is_some_and(|(created, moment)| created < moment);
    let Some(webhook) = webhook else { return "the webhook is not registered".to_owned() };
    if !webhook.object_selector().matches(pod.labels()) {
        return "the objectSelector of the webhook does not select it".to_owned();
    }
    if is_before(webhook.since.as_ref().map(|since| since.0)) {
        return "created before the webhook was registered".to_owned();
    }
    if is_before(enabled) {
        return "created before the namespace was enabled".to_owned();
    }
    let metadata = pod.full_metadata();
    let label = written(&metadata, "labels", keys::SECURED_LABEL);
    if is_before(label.or_else(|| written(&metadata, "annotations", keys::AUDITORS))) {
        return "requested a chain only after creation".to_owned();
    }
    if pod.annotation(keys::SKIP_AUDIT) == Some(keys::TRUE) {
        return format!("it has {}, which is no longer allowed", keys::SKIP_AUDIT);
    }
    if webhook.ignores_failures() {
        return "the webhook was unavailable, and its failurePolicy is Ignore".to_owned();
    }
    "the webhook was not called: its registration was missing, different or set to Ignore for a while"
        .to_owned()
}
