//! Conversion of a webhook's request and response to the record of the decision.

use std::sync::Arc;
use std::time::Duration;

use lucid_audit::log::AppendError;
use lucid_audit::{Anchor, Decision, Log, Record, Recorder};
use lucid_policy::Policy;
use lucid_webhook::{AdmissionRequest, AdmissionResponse, Failure};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster::{ClusterConfiguration, ModeInForce, POLICY_CONFIG_MAP};
use crate::metadata::Metadata;

/// `metadata` is called if the request has no name.
#[must_use]
pub(crate) fn decision<'a>(
    webhook: &str,
    request: &'a AdmissionRequest,
    response: &AdmissionResponse,
    metadata: impl FnOnce() -> Metadata<'a>,
) -> Decision {
    let mut decision = Decision::new(webhook, &request.uid);
    decision.operation = request.operation.as_str().to_owned();
    decision.kind = match &request.sub_resource {
        Some(sub_resource) => format!("{}/{sub_resource}", request.kind.kind),
        None => request.kind.kind.clone(),
    };
    decision.namespace = request.namespace.clone().unwrap_or_default();
    decision.name = if request.name.is_empty() { metadata().name().to_owned() } else { request.name.clone() };
    decision.user = request.user_info.username.clone();
    decision.authenticated = request.is_authenticated();
    decision.dry_run = request.dry_run;
    decision.allowed = response.is_allowed();
    decision.patched = response.json_patch().is_some_and(|patch| !patch.is_empty());
    decision.message = response.denial().map(|denial| denial.message.clone()).unwrap_or_default();
    decision.warnings = response.warnings().to_vec();
    decision
}

/// Logs the admission mode. Records each change of it while the process runs, and at the start a mode that differs from
/// that of the options.
///
/// The record names the field manager that wrote it; the API server reports no user.
pub fn record_modes(
    cluster: &ClusterConfiguration,
    recorder: Arc<Recorder>,
) -> impl Future<Output = ()> + use<> {
    let mut modes = cluster.modes();
    // The mode may be known already.
    modes.mark_changed();
    record_changes(modes, cluster.default_policy(), recorder)
}

async fn record_changes(
    mut modes: watch::Receiver<Option<ModeInForce>>,
    options: Policy,
    recorder: Arc<Recorder>,
) {
    let mut before = options.mode;
    while modes.changed().await.is_ok() {
        let Some(in_force) = modes.borrow_and_update().clone() else { continue };
        in_force.log(options.strictness);
        let ModeInForce { mode, manager } = in_force;
        if std::mem::replace(&mut before, mode) == mode {
            continue;
        }
        let mut decision = Decision::new("mode", "");
        // The API server was authenticated by TLS.
        decision.authenticated = true;
        "ConfigMap".clone_into(&mut decision.kind);
        POLICY_CONFIG_MAP.clone_into(&mut decision.name);
        mode.as_str().clone_into(&mut decision.mode);
        let manager = manager.map(|manager| format!(", written by field manager {manager}"));
        decision.message = format!("admission mode {}{}", mode.as_str(), manager.unwrap_or_default());
        if let Err(unrecorded) = recorder.record(decision).await {
            recorder.remember(*unrecorded.decision);
        }
    }
}

/// Key of the anchor in the audit annotations of the response; the API server prefixes the webhook's name.
const ANCHOR: &str = "anchor";

/// Time reserved for the response after the log failed to confirm in time.
const MARGIN: Duration = Duration::from_millis(200);

/// Minimum time for the log, even after the deadline: the API server waits slightly longer than that.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

/// Audit annotation that links an event of the API server to a record.
#[derive(Serialize)]
struct Anchored {
    #[serde(flatten)]
    anchor: Anchor,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
}

/// Truncates a decision, writes it to the process log and to the recorder, and returns `response` with the record's
/// anchor. If the decision log is required and does not confirm by the request's `deadline`, the request is rejected. A
/// record that reaches the log later is followed by one of the rejection, as is the line in the process log. A caller
/// without a client certificate that exceeds the log's budget gets status 429.
async fn record(
    recorder: &Recorder,
    decision: Decision,
    response: AdmissionResponse,
    deadline: Instant,
) -> AdmissionResponse {
    let decision = Record::from(decision);
    log(&decision);
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
            tracing::error!(
                uid = unrecorded.decision.uid,
                webhook = unrecorded.decision.webhook,
                "{unrecorded}"
            );
            if response.denial().is_some() {
                recorder.remember(*unrecorded.decision);
                return response;
            }
            let why = format!("{unrecorded}; requests that cannot be recorded are denied");
            let decision = &mut unrecorded.decision;
            decision.allowed = false;
            decision.patched = false;
            decision.message.clone_from(&why);
            let is_over_budget = matches!(unrecorded.source, AppendError::Budget);
            log(&unrecorded.decision);
            recorder.overrule(unrecorded);
            if is_over_budget {
                return AdmissionResponse::deny(429, "TooManyRequests", why).with_retry_after(1);
            }
            AdmissionResponse::deny(503, "ServiceUnavailable", why)
        }
    }
}

/// Writes a decision to the process log. The span of the request has its uid, namespace, name, operation and `dry_run`.
fn log(decision: &Decision) {
    let list = |texts| serde_json::to_string::<Vec<String>>(texts).unwrap_or_default();
    tracing::info!(
        user = decision.user,
        authenticated = decision.authenticated,
        allowed = decision.allowed,
        patched = decision.patched,
        tier = decision.tier,
        chain = %list(&decision.chain),
        warnings = %list(&decision.warnings),
        reason = decision.message,
        "decided"
    );
}

/// Records the decision attached to `response`, or else a failure of the handler or a denial by the guard. `metadata`
/// and `tier` are only called in the latter case.
pub(crate) fn record_response<'a>(
    recorder: &Arc<Recorder>,
    webhook: &str,
    request: &'a AdmissionRequest,
    mut response: AdmissionResponse,
    failure: Option<&Failure>,
    metadata: &dyn Fn() -> Metadata<'a>,
    tier: &dyn Fn() -> String,
) -> impl Future<Output = AdmissionResponse> + use<> {
    let decision = response.extensions.remove().or_else(|| {
        if failure.is_none() && response.is_allowed() {
            return None;
        }
        let mut decision = decision(webhook, request, &response, metadata);
        decision.tier = tier();
        if let Some(failure) = failure.filter(|_| response.is_allowed() && response.warnings().is_empty()) {
            decision.message = failure.to_string();
        }
        Some(decision)
    });
    let (recorder, deadline) = (Arc::clone(recorder), request.deadline);
    async move {
        match decision {
            Some(decision) => record(&recorder, decision, response, deadline).await,
            None => response,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lucid_audit::LogFailurePolicy;
    use lucid_audit::log::Options;
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

    #[tokio::test]
    async fn recorded_fields_are_bounded() {
        let long = "é".repeat(3 << 20);
        let warnings: Vec<_> = (0..10_000).map(|number| format!("warning {number}")).collect();
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(1000);
        recorder.open_log(folder.path(), Options::new()).unwrap();
        for metadata in [json!({"name": long}), json!({"generateName": long}), json!({"name": "web"})] {
            let mut request = request(&metadata);
            request.user_info.username.clone_from(&long);
            request.uid.clone_from(&long);
            for response in [
                AdmissionResponse::allow().with_warnings(&warnings),
                AdmissionResponse::deny(403, "Forbidden", &long).with_warning(&long),
            ] {
                let made = decision("mutate", &request, &response, || Metadata::of(&request, None));
                let _ = record(&recorder, made, response, request.deadline).await;
            }
        }
        recorder.close();
        let latest = recorder.latest();
        assert_eq!(latest.len(), 6);
        for entry in latest {
            let length = entry.json.len();
            assert!(entry.json.ends_with(b"\"cut\":true}") && length <= 1_898, "{length}");
        }
        let segment =
            std::fs::read_to_string(folder.path().join("segments/00000000000000000000.jsonl")).unwrap();
        let lengths: Vec<_> = segment.split_inclusive('\n').map(str::len).collect();
        assert!(lengths.len() == 6 && lengths.iter().all(|length| *length <= 2_000), "{lengths:?}");
    }

    #[test]
    fn a_decision_has_the_generate_name_and_the_denial() {
        let pod = request(&json!({"generateName": "web-"}));
        let kept = decision("mutate", &pod, &AdmissionResponse::deny(403, "Forbidden", "no"), || {
            Metadata::of(&pod, None)
        });
        assert_eq!((kept.name.as_str(), kept.message.as_str(), kept.authenticated), ("web-", "no", false));
    }

    #[tokio::test]
    async fn anonymous_callers_over_budget_get_retry_after() {
        let request = request(&json!({"name": "web"}));
        let deadline = Instant::now() + Duration::from_secs(10);
        for (policy, allowed) in [(LogFailurePolicy::Deny, false), (LogFailurePolicy::ServeAndAlarm, true)] {
            let folder = tempfile::tempdir().unwrap();
            let recorder = Recorder::new(10).with_on_failure(policy).with_budget(0, 0);
            recorder.open_log(folder.path(), Options::new()).unwrap();
            let ask = async |authenticated: bool| {
                let mut made = decision("validate", &request, &AdmissionResponse::allow(), || {
                    Metadata::of(&request, None)
                });
                made.authenticated = authenticated;
                record(&recorder, made, AdmissionResponse::allow(), deadline).await
            };
            let response = ask(false).await;
            assert_eq!((response.is_allowed(), recorder.latest()[0].decision().allowed), (allowed, allowed));
            if let Some(denial) = response.denial() {
                let retry_after = denial.details.as_ref().map(|details| details.retry_after_seconds);
                assert_eq!((denial.code, retry_after), (429, Some(1)));
                assert!(denial.message.contains("client certificate"), "{}", denial.message);
            }
            let response = ask(true).await;
            assert!(response.is_allowed() && response.audit_annotations().contains_key("anchor"));
        }
    }

    #[tokio::test]
    async fn unrecordable_decisions_are_denied_and_shown_in_the_ring() {
        let deadline = Instant::now() + Duration::from_secs(10);
        let request = request(&json!({"name": "web"}));
        for (policy, allowed) in [(LogFailurePolicy::Deny, false), (LogFailurePolicy::ServeAndAlarm, true)] {
            let recorder = Recorder::new(10).with_on_failure(policy);
            recorder.open_log(Path::new("/dev/null/log"), Options::new()).unwrap_err();
            let response = AdmissionResponse::allow();
            let made = decision("validate", &request, &response, || Metadata::of(&request, None));
            let response = record(&recorder, made, response, deadline).await;
            assert_eq!((response.is_allowed(), recorder.latest()[0].decision().allowed), (allowed, allowed));
            assert_eq!(recorder.latest().len(), 1);
            if let Some(denial) = response.denial() {
                assert_eq!((denial.code, &denial.reason[..]), (503, "ServiceUnavailable"));
                assert!(denial.message.contains("/dev/null/log"), "{}", denial.message);
            }
        }
        // A rejected request keeps its own reason.
        let recorder = Recorder::new(10);
        recorder.open_log(Path::new("/dev/null/log"), Options::new()).unwrap_err();
        let response = AdmissionResponse::deny(403, "Forbidden", "missing digest");
        let made = decision("validate", &request, &response, || Metadata::of(&request, None));
        let response = record(&recorder, made, response, deadline).await;
        assert_eq!(response.denial().unwrap().message, "missing digest");
    }

    #[tokio::test]
    async fn the_response_has_the_anchor_of_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let key = lucid_audit::note::SigningKey::generate("lucid.computing/test/0").unwrap();
        let recorder = Recorder::new(10);
        recorder.open_log(folder.path(), Options::new().with_key(key)).unwrap();
        let request = request(&json!({"name": "web"}));
        let response = AdmissionResponse::allow();
        let made = decision("validate", &request, &response, || Metadata::of(&request, None));
        // Even when there is hardly any time left.
        let response = record(&recorder, made, response, Instant::now()).await;
        let anchor: Value = serde_json::from_str(&response.audit_annotations()["anchor"]).unwrap();
        let mut expected = json!(recorder.latest()[0].anchor);
        expected["log"] = "lucid.computing/test/0".into();
        assert_eq!(anchor, expected);
    }
}
