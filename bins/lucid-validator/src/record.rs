//! From a webhook's request and answer to the record of the decision.

use lucid_audit::{Decision, Recorder};
use lucid_webhook::{AdmissionRequest, AdmissionResponse};
use serde::Deserialize;

/// The longest name that an object can have, in bytes. Webhooks that change objects are asked before the API server looks.
const NAME: usize = 253;
/// How many warnings of one answer are kept: a pod can give rise to one for each of its containers.
const WARNINGS: usize = 64;

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

/// A decision with what request and answer say of it. Its size has a bound: many are kept in memory, and who writes a pod
/// writes names and warnings.
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
    decision.name.truncate(decision.name.floor_char_boundary(NAME));
    decision.user = request.user_info.username.clone();
    decision.dry_run = request.dry_run;
    decision.allowed = response.is_allowed();
    decision.patched = response.json_patch().is_some_and(|patch| !patch.is_empty());
    decision.message = response.denial().map(|denial| denial.message.clone()).unwrap_or_default();
    let warnings = response.warnings();
    decision.warnings = warnings.iter().take(WARNINGS).cloned().collect();
    if let Some(more) = warnings.len().checked_sub(WARNINGS).filter(|more| *more > 0) {
        decision.warnings.push(format!("and {more} more warnings"));
    }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;

    fn request(metadata: &Value) -> AdmissionRequest {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
                "uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "shop",
                "name": metadata.get("name"), "operation": "CREATE", "userInfo": {}, "object": {"metadata": metadata},
            },
        });
        let deadline = Instant::now() + Duration::from_secs(10);
        AdmissionRequest::from_json(&review.to_string().into_bytes().into(), deadline).unwrap()
    }

    #[test]
    fn what_is_kept_of_a_pod_has_a_bound_whatever_its_author_writes() {
        let long = "é".repeat(1 << 20);
        let warnings: Vec<_> = (0..10_000).map(|number| format!("warning {number}")).collect();
        let response = AdmissionResponse::allow().with_warnings(&warnings);
        for metadata in [json!({"name": long}), json!({"generateName": long})] {
            let kept = decision("mutate", &request(&metadata), &response);
            assert_eq!(kept.name, "é".repeat(126));
            assert_eq!(kept.warnings[..WARNINGS], warnings[..WARNINGS]);
            assert_eq!(kept.warnings[WARNINGS..], ["and 9936 more warnings"]);
        }
        let kept =
            decision("mutate", &request(&json!({"generateName": "web-"})), &AdmissionResponse::allow());
        assert_eq!((kept.name.as_str(), kept.warnings.len()), ("web-", 0));
    }
}
