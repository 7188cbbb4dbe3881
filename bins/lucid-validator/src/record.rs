//! From a webhook's request and answer to the record of the decision.

use std::time::Duration;

use lucid_audit::{Anchor, Decision, Log, Recorder};
use lucid_webhook::{AdmissionRequest, AdmissionResponse};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// The longest name that an object can have, in bytes. Webhooks that change objects are asked before the API server looks.
const NAME: usize = 253;
/// How many warnings of one answer are kept: a pod can give rise to one for each of its containers.
const WARNINGS: usize = 64;
/// How much of each is kept, and of a denial, which has many reasons in one text; in characters.
const WARNING: usize = 512;
const MESSAGE: usize = 4096;

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
    decision.message = response.denial().map(|denial| cut(&denial.message, MESSAGE)).unwrap_or_default();
    let warnings = response.warnings();
    decision.warnings = warnings.iter().take(WARNINGS).map(|warning| cut(warning, WARNING)).collect();
    if let Some(more) = warnings.len().checked_sub(WARNINGS).filter(|more| *more > 0) {
        decision.warnings.push(format!("and {more} more warnings"));
    }
    decision
}

/// At most `most` characters of a text.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The key of the anchor among the answer's audit annotations, behind the webhook's name.
const ANCHOR: &str = "anchor";

/// The log is not waited for until the very deadline, so that an answer can still say that it was.
const MARGIN: Duration = Duration::from_millis(200);

/// The log always has this long, also when the deadline has passed: the API server waits a little longer than that.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

/// What the API server's audit log gets to know of a record.
#[derive(Serialize)]
struct Anchored {
    #[serde(flatten)]
    anchor: Anchor,
    /// The log's origin.
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
}

/// Logs a decision and keeps it, and returns the answer for it: `response` with the record's anchor. When a log has to
/// have it, and has not by the request's `deadline`, the request is refused; a log that comes to have it later has the refusal
/// as well.
pub async fn record(
    recorder: &Recorder,
    decision: Decision,
    response: AdmissionResponse,
    deadline: Instant,
) -> AdmissionResponse {
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
    let left = deadline.saturating_duration_since(Instant::now());
    let patience = left.saturating_sub(MARGIN).max(LEAST_PATIENCE);
    match recorder.record_within(decision, patience).await {
        Ok(None) => response,
        Ok(Some(anchor)) => {
            let log = recorder.log().and_then(Log::vkey).map(|key| key.name().to_owned());
            match serde_json::to_string(&Anchored { anchor, log }) {
                Ok(anchor) => response.with_audit_annotation(ANCHOR, anchor),
                Err(_) => response,
            }
        }
        Err(mut unrecorded) => {
            let decision = &mut unrecorded.decision;
            tracing::error!(uid = decision.uid, webhook = decision.webhook, "{}", unrecorded.source);
            if response.denial().is_some() {
                recorder.remember(*unrecorded.decision);
                return response;
            }
            let why = format!("{}; nothing is allowed that is not recorded", unrecorded.source);
            decision.allowed = false;
            decision.patched = false;
            decision.message.clone_from(&why);
            recorder.overrule(unrecorded);
            AdmissionResponse::deny(503, "ServiceUnavailable", why)
        }
    }
}

#[cfg(test)]
mod tests {
    use lucid_audit::OnFailure;
    use serde_json::{Value, json};

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

    #[test]
    fn long_texts_of_an_answer_are_cut() {
        let (long, pod) = ("é".repeat(1 << 20), request(&json!({"name": "web"})));
        let warned = decision("validate", &pod, &AdmissionResponse::allow().with_warning(&long));
        let denied = decision("validate", &pod, &AdmissionResponse::deny(403, "Forbidden", &long));
        assert_eq!(warned.warnings, [format!("{}…", "é".repeat(WARNING))]);
        assert_eq!(denied.message, format!("{}…", "é".repeat(MESSAGE)));
        let short = decision("validate", &pod, &AdmissionResponse::deny(403, "Forbidden", "no"));
        assert_eq!(short.message, "no");
    }

    #[tokio::test]
    async fn what_cannot_be_recorded_is_refused_and_the_ring_says_so() {
        let deadline = Instant::now() + Duration::from_secs(10);
        let request = request(&json!({"name": "web"}));
        for (policy, allowed) in [(OnFailure::Deny, false), (OnFailure::ServeAndAlarm, true)] {
            let recorder = Recorder::new(10).with_unavailable_log("no disk").on_failure(policy);
            let response = AdmissionResponse::allow();
            let made = decision("validate", &request, &response);
            let answer = record(&recorder, made, response, deadline).await;
            assert_eq!((answer.is_allowed(), recorder.latest()[0].allowed), (allowed, allowed));
            assert_eq!(recorder.latest().len(), 1);
            if let Some(denial) = answer.denial() {
                assert_eq!((denial.code, &denial.reason[..]), (503, "ServiceUnavailable"));
                assert!(denial.message.contains("no disk"), "{}", denial.message);
            }
        }
        // Who is refused already is told why.
        let recorder = Recorder::new(10).with_unavailable_log("no disk");
        let response = AdmissionResponse::deny(403, "Forbidden", "missing digest");
        let made = decision("validate", &request, &response);
        let answer = record(&recorder, made, response, deadline).await;
        assert_eq!(answer.denial().unwrap().message, "missing digest");
    }

    #[tokio::test]
    async fn the_answer_has_the_anchor_of_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let key = lucid_audit::note::SigningKey::generate("lucid.computing/test/0").unwrap();
        let log = Log::open(folder.path(), lucid_audit::log::Options::new().key(key)).unwrap();
        let recorder = Recorder::new(10).with_log(log);
        let request = request(&json!({"name": "web"}));
        let response = AdmissionResponse::allow();
        let made = decision("validate", &request, &response);
        // Also when there is hardly any time left.
        let answer = record(&recorder, made, response, Instant::now()).await;
        let anchor: Value = serde_json::from_str(&answer.audit_annotations()["anchor"]).unwrap();
        let leaf = recorder.latest()[0].anchor.unwrap().leaf.to_string();
        assert_eq!(anchor, json!({"seq": 0, "leaf": leaf, "size": 1, "log": "lucid.computing/test/0"}));
    }
}
