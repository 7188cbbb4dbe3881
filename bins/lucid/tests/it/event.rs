//! Audit events of the API server.

use lucid_audit::{Anchor, Decision};
use serde_json::{Value, json};

/// Creates the event of a decision, with its anchor in the log `origin`.
pub(crate) fn event(number: u64, decision: &Decision, anchor: Anchor, origin: &str) -> Value {
    let mut anchor = serde_json::to_value(anchor).unwrap();
    anchor["log"] = origin.into();
    let time = decision.time.to_string();
    json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "auditID": format!("a-{number}"),
        "stage": "ResponseComplete", "verb": "create", "user": {"username": "alice"},
        "objectRef": {"resource": "pods", "namespace": decision.namespace, "name": decision.name},
        "requestReceivedTimestamp": time, "stageTimestamp": time,
        "annotations": {"validate.lucid.computing/anchor": anchor.to_string()},
    })
}
