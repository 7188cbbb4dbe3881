//! From a webhook's request and answer to the record of the decision.

use lucid_audit::{Decision, Recorder};
use lucid_webhook::{AdmissionRequest, AdmissionResponse};
use serde::Deserialize;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    generate_name: String,
}

/// A decision with everything that request and answer say of it.
#[must_use]
pub fn decision(webhook: &str, request: &AdmissionRequest, response: &AdmissionResponse) -> Decision {
    let mut decision = Decision::new(webhook, &request.uid);
    decision.operation = request.operation.as_str().to_owned();
    decision.kind = match &request.sub_resource {
        Some(sub_resource) => format!("{}/{sub_resource}", request.kind.kind),
        None => request.kind.kind.clone(),
    };
    decision.namespace = request.namespace.clone().unwrap_or_default();
    decision.name = match &request.object {
        Some(object) if request.name.is_empty() => {
            object.view::<Named>().map(|named| named.metadata.generate_name).unwrap_or_default()
        }
        _ => request.name.clone(),
    };
    decision.user = request.user_info.username.clone();
    decision.dry_run = request.dry_run;
    decision.allowed = response.is_allowed();
    decision.patched = response.json_patch().is_some_and(|patch| !patch.is_empty());
    decision.message = response.denial().map(|denial| denial.message.clone()).unwrap_or_default();
    decision.warnings = response.warnings().to_vec();
    decision
}

/// Logs a decision and keeps it.
pub fn record(recorder: &Recorder, decision: Decision) {
    tracing::info!(
        webhook = decision.webhook,
        uid = decision.uid,
        operation = decision.operation,
        namespace = decision.namespace,
        name = decision.name,
        user = decision.user,
        dry_run = decision.dry_run,
        allowed = decision.allowed,
        patched = decision.patched,
        chain = ?decision.chain,
        warnings = ?decision.warnings,
        reason = decision.message,
        "decided"
    );
    if let Err(error) = recorder.record(decision) {
        tracing::error!(%error, "failed to append a decision to its file");
    }
}
