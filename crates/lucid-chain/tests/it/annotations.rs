//! Parsing of pod annotations.

use crate::common::*;
use lucid_chain::{AuditMode, Catalogue, Configuration, Direction, Intercept, Overrides, SidecarMode, keys};
use serde_json::json;

#[test]
fn an_invalid_chain_is_ignored_with_a_warning() {
    let too_many = vec!["injection"; lucid_chain::MAX_CHAIN + 1].join(",");
    let cases = [
        (keys::AUDITOR_CHAIN, "", "the list is empty, expected auditor names separated by commas"),
        (keys::AUDITOR_CHAIN, " \t", "the list is empty, expected auditor names separated by commas"),
        (keys::AUDITOR_CHAIN, "injection,,toxicity", "item 2 is empty, expected auditor names"),
        (keys::AUDITOR_CHAIN, "injection,", "item 2 is empty, expected auditor names"),
        (keys::AUDITOR_CHAIN, &too_many, "the list is too long, expected at most 128 auditors"),
        (keys::AUDITORS, "injection;toxicity", "unknown auditor \"injection;toxicity\""),
        (keys::AUDITORS, "toxcity", "unknown auditor \"toxcity\", did you mean lucid-toxicity-auditor?"),
        (keys::AUDITORS, "аудитор", "unknown auditor \"аудитор\" (known: lucid-guardrails-auditor,"),
    ];
    let untouched = planned(&pod(json!({}), &[5000]));
    for (key, value, problem) in cases {
        let outcome = outcome(&pod(json!({key: value}), &[5000]));
        let [warning] = &warnings(&outcome)[..] else { panic!("{key} {value}: {outcome:?}") };
        assert!(warning.starts_with(&format!("annotation {key} is ignored: ")), "{warning}");
        assert!(warning.contains(problem), "{warning}");
        let plan = planned_by(outcome);
        assert_eq!(plan.containers, untouched.containers, "{key} {value}");
    }
}

#[test]
fn the_operator_overrides_annotations_which_override_defaults() {
    let annotated = json!({keys::AUDIT_MODE: " observe ", keys::DIRECTION: "outbound"});
    let mut operator = builtin();
    operator.overrides = Overrides {
        audit_mode: Some(AuditMode::Enforce),
        direction: Some(Direction::Both),
        ..Overrides::default()
    };
    let cases = [
        (json!({}), builtin(), "enforce", "inbound", "built-in default"),
        (annotated.clone(), builtin(), "observe", "outbound", "annotation"),
        (annotated, operator, "enforce", "both", "operator configuration"),
    ];
    for (annotations, configuration, audit_mode, direction, source) in cases {
        let plan = planned_by(outcome_in(&pod(annotations, &[5000]), &configuration, None));
        assert_eq!(setting(&plan, "audit mode"), format!("{audit_mode} ({source})"));
        assert_eq!(setting(&plan, "direction"), format!("{direction} ({source})"));
        let modes = plan.containers.iter().map(|it| variable(&it.manifest(), keys::AUDIT_MODE_ENV).unwrap());
        assert!(modes.into_iter().all(|mode| mode == audit_mode));
    }
}

#[test]
fn catalogue_defaults_override_only_built_in_values() {
    let yaml = "defaults: {audit-mode: observe, direction: both, target-port: 7000, sidecar-mode: native, intercept: redirect, outbound-port: 9}";
    let file = Catalogue::builtin().overlay(&parsed(yaml));
    let mut configuration = Configuration::new(file, None).unwrap();
    let plan = planned_by(outcome_in(&pod(json!({}), &[5000]), &configuration, None));
    for (name, expected) in [
        ("audit mode", "observe"),
        ("direction", "both"),
        ("sidecar mode", "native"),
        ("intercept", "redirect"),
        ("outbound port", "9"),
        ("model port", "7000"),
    ] {
        assert_eq!(setting(&plan, name), format!("{expected} (auditors.yaml)"), "{name}");
    }

    let annotations = json!({
        keys::AUDIT_MODE: "enforce", keys::DIRECTION: "inbound", keys::TARGET_PORT: "7001",
        keys::SIDECAR_MODE: "auto", keys::INTERCEPT: "env",
    });
    let annotated = pod(annotations, &[5000]);
    let plan = planned_by(outcome_in(&annotated, &configuration, None));
    let settings = ["audit mode", "direction", "intercept"].map(|name| setting(&plan, name));
    assert_eq!(settings, ["enforce (annotation)", "inbound (annotation)", "env (annotation)"]);
    assert_eq!(setting(&plan, "sidecar mode"), "containers (restartPolicy of the pod)");
    assert_eq!(setting(&plan, "model port"), "7001 (annotation lucid.computing/target-port)");

    configuration.overrides = Overrides {
        audit_mode: Some(AuditMode::Observe),
        direction: Some(Direction::Outbound),
        target_port: "7002".parse().ok(),
        sidecar_mode: Some(SidecarMode::Native),
        intercept: Some(Intercept::Redirect),
        outbound_port: 10.try_into().ok(),
    };
    let plan = planned_by(outcome_in(&annotated, &configuration, None));
    for name in ["audit mode", "direction", "intercept", "sidecar mode", "outbound port", "model port"] {
        assert!(setting(&plan, name).ends_with(" (operator configuration)"), "{name}");
    }
}

#[test]
fn a_namespace_may_set_defaults_without_a_chain() {
    let own = namespace(&[("auditors.yaml", "defaults: {audit-mode: observe}")]).unwrap();
    let plan = planned_by(outcome_in(&pod(json!({}), &[5000]), &builtin(), Some(&own)));
    assert_eq!(setting(&plan, "audit mode"), "observe (auditors.yaml)");
    assert!(setting(&plan, "chain").ends_with(" (built-in default)"));
}
