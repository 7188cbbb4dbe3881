//! Plans follow the auditors and settings of the catalogue.

use lucid_chain::{Plan, keys};
use serde_json::{Value, json};

use crate::common::{configured, model_port, outcome_in, planned_by, pod, setting};

fn plan_by(yaml: &str, pod: &Value) -> Plan {
    planned_by(outcome_in(pod, &configured(yaml, &["topics"]), None))
}

fn annotated(annotations: Value) -> Value {
    pod(annotations, &[5000])
}

const ENTRY: &str = "chain:
- name: topics
  image: topics
  probes:
    readiness: {path: /ready}
    liveness: {periodSeconds: 7}
    startup: {failureThreshold: 300}
  securityContext:
    runAsGroup: 30000
";

#[test]
fn a_container_has_the_probes_of_its_entry_on_its_port() {
    let taken = pod(json!({}), &[5000, 8080]);
    let manifest = plan_by(ENTRY, &taken).containers[0].manifest();
    for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
        assert_eq!(manifest[probe]["httpGet"]["port"], 8090, "{manifest}");
    }
    assert_eq!(manifest["readinessProbe"]["httpGet"]["path"], "/ready");
    assert_eq!(manifest["livenessProbe"]["periodSeconds"], 7);
    assert_eq!(manifest["startupProbe"]["failureThreshold"], 300);

    let none = plan_by("chain: [{name: topics, image: topics}]", &taken).containers[0].manifest();
    assert!(none.as_object().unwrap().keys().all(|key| !key.ends_with("Probe")), "{none}");
}

#[test]
fn defaults_yield_to_the_operator_and_the_pod() {
    let yaml = "chain: [{name: topics, image: topics}]
defaults: {audit-mode: observe, direction: both, target-port: 7000, sidecar-mode: native, intercept: env}";
    let plan = plan_by(yaml, &annotated(json!({})));
    assert_eq!(setting(&plan, "audit mode"), "observe (auditors.yaml)");
    assert_eq!(setting(&plan, "direction"), "both (auditors.yaml)");
    assert_eq!(setting(&plan, "model port"), "7000 (auditors.yaml)");
    assert!(plan.is_native());

    let said = annotated(
        json!({keys::AUDIT_MODE: "enforce", keys::TARGET_PORT: "6000", keys::SIDECAR_MODE: "containers"}),
    );
    let plan = plan_by(yaml, &said);
    assert_eq!(setting(&plan, "audit mode"), "enforce (annotation)");
    assert_eq!(model_port(&plan), 6000);
    assert!(!plan.is_native());
    assert_eq!(setting(&plan, "direction"), "both (auditors.yaml)");
}
