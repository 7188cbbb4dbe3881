//! Decisions, and their events in the format of the API server.

use jiff::{SignedDuration, Timestamp};
use lucid_audit::correlate::Drift;
use lucid_audit::{Anchor, Decision};
use serde_json::{Value, json};

pub(crate) const GRACE: SignedDuration = SignedDuration::from_secs(30);

/// Returns the time of record `number`.
pub(crate) fn time(number: u64) -> Timestamp {
    "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(number as i64 * 20)
}

pub(crate) fn decision(number: u64) -> Decision {
    let mut decision = Decision::new("validate", format!("u-{number}"));
    decision.time = time(number);
    decision.kind = "Pod".to_owned();
    decision.operation = "CREATE".to_owned();
    decision.namespace = "shop".to_owned();
    decision.name = format!("web-{number}");
    decision.user = "alice".to_owned();
    decision
}

pub(crate) fn event(number: u64) -> Value {
    let at = |millis| (time(number) + SignedDuration::from_millis(millis)).to_string();
    json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": format!("a-{number}"),
        "stage": "ResponseComplete", "verb": "create", "user": {"username": "alice"},
        "objectRef": {"resource": "pods", "namespace": "shop", "name": format!("web-{number}"), "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 201}, "annotations": {},
        "requestReceivedTimestamp": at(-5), "stageTimestamp": at(20),
    })
}

pub(crate) fn annotate(event: &mut Value, webhook: &str, anchor: &Anchor) {
    event["annotations"][format!("{webhook}/anchor")] = serde_json::to_string(anchor).unwrap().into();
}

pub(crate) fn brief(drifts: &[Drift]) -> Vec<String> {
    let brief = drifts.iter().map(|it| match (it.seq, it.last) {
        (Some(seq), Some(last)) => format!("{} {seq} to {last}", it.class),
        (Some(seq), None) => format!("{} {seq}", it.class),
        _ => it.class.to_string(),
    });
    brief.collect()
}
