//! Hardening of the containers that are not part of the chain.

use std::collections::BTreeSet;

use lucid_chain::{Configuration, Inputs, NamespaceSettings, PodChoices, PodView, keys, plan, uninject};
use serde_json::{Value, json};

use crate::common::*;

/// Returns the security context that replaces `context` in the application, and the warnings about it. Asserts that
/// planning again changes nothing and that uninjection restores the pod.
fn hardened(context: &Value) -> (Value, Vec<String>) {
    let mut pod = pod(Value::Null, &[5000]);
    pod["spec"]["containers"][0]["securityContext"] = context.clone();
    let patch = patch_in(&pod, &with_rules());
    let patched = apply(&pod, &patch);
    assert!(patch_in(&patched, &with_rules()).is_empty(), "{patched}");
    let restored = apply(&patched, &uninject(&patched));
    assert_eq!(restored["spec"]["containers"][0]["securityContext"], *context);
    let warnings = patch_warnings(&patch);
    (patched["spec"]["containers"][0]["securityContext"].clone(), warnings)
}

#[test]
fn containers_lose_net_raw_and_privilege_escalation() {
    let drop = |names: Value| json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": names}});
    let nothing = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["NET_RAW"]}});
    for (context, expected) in [
        (json!(null), nothing.clone()),
        (json!({}), nothing.clone()),
        (json!({"capabilities": null}), nothing.clone()),
        (json!({"capabilities": {"drop": null}}), nothing),
        (json!({"capabilities": {"drop": ["CHOWN"]}}), drop(json!(["CHOWN", "NET_RAW"]))),
        (json!({"capabilities": {"drop": ["ALL"]}}), drop(json!(["ALL"]))),
        (json!({"capabilities": {"drop": ["all"]}}), drop(json!(["all"]))),
        (json!({"capabilities": {"drop": ["cap_net_raw"]}}), drop(json!(["cap_net_raw", "NET_RAW"]))),
        (json!({"capabilities": {"drop": ["CAP_ALL"]}}), drop(json!(["CAP_ALL", "NET_RAW"]))),
        (
            json!({"capabilities": {"add": ["CHOWN"], "new": [1]}}),
            json!({"allowPrivilegeEscalation": false, "capabilities": {"add": ["CHOWN"], "drop": ["NET_RAW"], "new": [1]}}),
        ),
        (
            json!({"runAsUser": 5, "somethingNew": [1]}),
            json!({"runAsUser": 5, "somethingNew": [1], "allowPrivilegeEscalation": false, "capabilities": {"drop": ["NET_RAW"]}}),
        ),
    ] {
        assert_eq!(hardened(&context), (expected, Vec::new()), "{context}");
    }
}

#[test]
fn removing_a_configured_privilege_produces_a_warning() {
    let raw =
        "container \"web\" loses securityContext.capabilities.add: NET_RAW, which bypasses the auditors";
    for (add, kept) in [
        (json!(["NET_RAW"]), json!(null)),
        (json!(["CHOWN", "cap_Net_Raw", "KILL", "net_raw"]), json!(["CHOWN", "KILL"])),
    ] {
        let (context, warnings) = hardened(&json!({"capabilities": {"add": add, "drop": ["ALL"]}}));
        assert_eq!(context["capabilities"]["add"], kept);
        assert!(warnings.len() == 1 && warnings[0].starts_with(raw), "{warnings:?}");
    }
    let (context, warnings) = hardened(&json!({"allowPrivilegeEscalation": true}));
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert!(warnings.len() == 1 && warnings[0].contains("allowPrivilegeEscalation: true"), "{warnings:?}");
}

#[test]
fn escalation_stays_if_the_api_server_rejects_the_change() {
    for context in [
        json!({"privileged": true}),
        json!({"privileged": true, "allowPrivilegeEscalation": true}),
        json!({"capabilities": {"add": ["CAP_SYS_ADMIN"]}}),
        json!({"capabilities": {"add": ["SYS_ADMIN"]}}),
    ] {
        let (found, _) = hardened(&context);
        assert_eq!(found["allowPrivilegeEscalation"], context["allowPrivilegeEscalation"]);
        assert_eq!(found["capabilities"]["drop"], json!(["NET_RAW"]));
    }
}

#[test]
fn containers_of_every_kind_are_hardened() {
    let mut pod = pod(json!({keys::SIDECAR_MODE: "native"}), &[5000]);
    let model = json!({"name": "proxy", "restartPolicy": "Always", "ports": [{"name": "model", "containerPort": 5000}]});
    pod["spec"]["initContainers"] = json!([{"name": "first"}, model, {"name": "last"}]);
    let leftover =
        json!({"name": "lucid-toxicity-auditor", "env": [{"name": "LUCID_AUDITOR_ID", "value": "x"}]});
    pod["spec"]["containers"].as_array_mut().unwrap().push(leftover);
    let patched = injected_with(&pod, &with_rules());
    let lists = ["containers", "initContainers"].map(|list| patched["spec"][list].as_array().unwrap());
    let names: Vec<_> = lists.iter().map(|list| list.len()).collect();
    assert_eq!(names, [2, 6], "{patched}");
    for container in lists.into_iter().flatten() {
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false, "{container}");
        let drop = &context["capabilities"]["drop"];
        assert!(*drop == json!(["NET_RAW"]) || *drop == json!(["ALL"]), "{container}");
    }
    assert_eq!(apply(&patched, &uninject(&patched)), pod);
}

#[test]
fn hardening_needs_network_rules_and_no_annotation() {
    let kept = pod(json!({keys::KEEP_PRIVILEGES: "true"}), &[5000]);
    let context = |pod: &Value, configuration: &Configuration| {
        apply(pod, &patch_in(pod, configuration))["spec"]["containers"][0]["securityContext"].clone()
    };
    let (json, configuration) = (kept.to_string(), with_rules());
    let view = PodView::from_json(&json).unwrap();
    for (choices, hardened) in [(PodChoices::All, 0), (PodChoices::Unset, 1), (PodChoices::None, 1)] {
        let mut settings = NamespaceSettings::default();
        settings.pod_choices = choices;
        let plan = planned_by(plan(&view, &Inputs { settings: &settings, ..Inputs::new(&configuration) }));
        assert_eq!(
            setting(&plan, "hardened").is_empty(),
            hardened == 0,
            "{choices}: only an administrator allows it"
        );
    }
    assert_eq!(context(&pod(Value::Null, &[5000]), &builtin()), Value::Null);
    let misspelt = pod(json!({keys::KEEP_PRIVILEGES: "yes"}), &[5000]);
    assert_ne!(context(&misspelt, &with_rules()), Value::Null);
}

#[test]
fn containers_with_an_exempt_image_keep_their_privileges() {
    let mut pod = pod(Value::Null, &[5000]);
    pod["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "mesh", "image": "mesh:1"}));
    let (json, configuration) = (pod.to_string(), with_rules());
    let view = PodView::from_json(&json).unwrap();
    let exempt = BTreeSet::from(["mesh:1".to_owned()]);
    let plan =
        planned_by(plan(&view, &Inputs { exempt_images: Some(&exempt), ..Inputs::new(&configuration) }));
    assert_eq!(setting(&plan, "hardened"), "web (intercept)");
    let patched = apply(&pod, &plan.patch(&view));
    assert_eq!(patched["spec"]["containers"][1], pod["spec"]["containers"][1]);
}

#[test]
fn a_forged_status_restores_only_hardened_members() {
    let original = json!({"capabilities": {"add": ["SYS_ADMIN", "NET_RAW"]}});
    let status = json!({"hardened": {"containers/web": original}}).to_string();
    let context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["NET_RAW"]}});
    let pod = json!({
        "metadata": {"annotations": {keys::STATUS: status, "a": "b"}},
        "spec": {"containers": [{"name": "web", "securityContext": context}]},
    });
    assert_eq!(apply(&pod, &uninject(&pod))["spec"], pod["spec"]);
}
