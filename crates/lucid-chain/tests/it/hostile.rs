//! Pods whose authors try to bypass the chain or to pass off a container as an auditor.

use crate::common::*;
use lucid_chain::{Decision, ImpossibleReason, Inputs, PodView, keys, plan};
use serde_json::{Value, json};

fn all_warnings(pod: &Value) -> Vec<String> {
    let mut said = warnings(&outcome_in(pod, &with_rules(), None));
    said.extend(patch_warnings(&patch_in(pod, &with_rules())));
    said
}

/// Returns an injected pod, with native sidecars or plain containers, and the list and index of each injected
/// container.
fn with_chain(restart_policy: &str) -> (Value, Vec<(&'static str, usize)>) {
    let mut pod = pod(json!({keys::AUDITORS: "injection,toxicity"}), &[5000]);
    pod["spec"]["restartPolicy"] = json!(restart_policy);
    let places = match restart_policy {
        "Always" => vec![("containers", 1), ("containers", 2), ("initContainers", 0)],
        _ => vec![("initContainers", 0), ("initContainers", 1), ("initContainers", 2)],
    };
    (injected_with(&pod, &with_rules()), places)
}

#[test]
fn changes_to_injected_containers_are_reverted_and_reported() {
    let changes = [
        ("/securityContext/runAsUser", json!(1000)),
        ("/securityContext/runAsUser", json!(20009)),
        ("/securityContext/runAsUser", json!("20001")),
        ("/securityContext/runAsGroup", json!(1)),
        ("/securityContext/capabilities/add", json!(["SYS_PTRACE"])),
        ("/securityContext/seccompProfile", json!({"type": "Unconfined"})),
        ("/securityContext/procMount", json!("Unmasked")),
        ("/image", json!("ghcr.io/lucid/lucid-injection-auditor:latest@sha256:0")),
        ("/image", json!(" ghcr.io/lucid/lucid-injection-auditor:latest")),
        ("/image", Value::Null),
        ("/command", json!(["sleep", "infinity"])),
        ("/args", json!([""])),
        ("/workingDir", json!("/")),
        ("/stdin", json!(true)),
        ("/tty", json!(true)),
        ("/envFrom", json!([{"secretRef": {"name": "a"}}])),
        ("/env/0/value", json!("other")),
        ("/env/0/valueFrom", json!({"fieldRef": {"fieldPath": "metadata.name"}})),
        ("/env/9", json!({"name": "LD_PRELOAD", "value": "/x"})),
        ("/volumeMounts", json!([{"name": "a", "mountPath": "/usr/bin"}])),
        (
            "/restartPolicyRules",
            json!([{"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0]}}]),
        ),
        ("/restartPolicy", json!("OnFailure")),
        ("/resizePolicy", json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}])),
        ("/resources/limits/cpu", json!("1m")),
        ("/resources/claims", json!([{"name": "a"}])),
        ("/lifecycle", json!({"stopSignal": "SIGKILL"})),
        ("/readinessProbe", json!({"exec": {"command": ["true"]}})),
        ("/ports/0", json!({"containerPort": 9999})),
        ("/somethingNew", json!(1)),
    ];
    for restart_policy in ["Always", "Never"] {
        let (original, places) = with_chain(restart_policy);
        for (list, place) in places {
            for (path, value) in &changes {
                let mut pod = original.clone();
                let container = &mut pod["spec"][list][place];
                let (parent, key) = path.rsplit_once('/').unwrap();
                match container.pointer_mut(parent) {
                    Some(Value::Array(items)) if key.parse::<usize>().unwrap() >= items.len() => {
                        items.push(value.clone())
                    }
                    Some(Value::Array(items)) => items[key.parse::<usize>().unwrap()] = value.clone(),
                    Some(parent) => parent[key] = value.clone(),
                    // lucid-init has no ports.
                    None => continue,
                }
                let patch = patch_in(&pod, &with_rules());
                let said = patch_warnings(&patch);
                assert!(
                    matches!(&said[..], [one] if one.contains("is replaced") || one.contains("is planned again")),
                    "{list} {place} {path}: {said:?}"
                );
                assert_eq!(apply(&pod, &patch), original, "{list} {place} {path}");
            }
        }
    }
}

#[test]
fn values_that_do_not_decode_are_reported() {
    let (original, _) = with_chain("Always");
    let name = format!("\"name\":{}", original["spec"]["containers"][1]["name"]);
    let json = original.to_string();
    for member in [r#""command":["\ud800"]"#, r#""workingDir":1e999"#, r#""tty":"\ud800""#] {
        let json = json.replacen(&name, &format!("{member},{name}"), 1);
        let (view, rules) = (PodView::from_json(&json).unwrap(), with_rules());
        let plan = planned_by(plan(&view, &Inputs::new(&rules)));
        let said = patch_warnings(&plan.patch(&view));
        assert!(matches!(&said[..], [one] if one.contains("is replaced")), "{member}: {said:?}");
    }
}

#[test]
fn the_first_container_with_a_planned_name_counts() {
    let (original, places) = with_chain("Always");
    for (list, place) in places {
        let mut pod = original.clone();
        let mut double = pod["spec"][list][place].clone();
        double["image"] = json!("registry.example/other:1");
        pod["spec"][list].as_array_mut().unwrap().insert(0, double);
        // The API server rejects the pod because of the duplicate name.
        let patched = injected_with(&pod, &with_rules());
        assert_eq!(patched["spec"][list][0], original["spec"][list][place]);
        assert!(patch_in(&patched, &with_rules()).is_empty(), "{patched}");
    }
}

#[test]
fn a_planned_name_in_another_list_is_not_reused() {
    let (mut moved, _) = with_chain("Always");
    let auditor = moved["spec"]["containers"].as_array_mut().unwrap().remove(1);
    moved["spec"]["initContainers"].as_array_mut().unwrap().push(auditor);
    let patched = injected_with(&moved, &with_rules());
    assert_eq!(patched["spec"]["containers"].as_array().unwrap().len(), 3, "{patched}");
    assert!(
        all_warnings(&moved)
            .iter()
            .any(|warning| warning.contains("is in use by a container of another list"))
    );

    let mut ephemeral = pod(json!({}), &[5000]);
    ephemeral["spec"]["ephemeralContainers"] = json!([
        {"name": "lucid-init"}, {"name": "lucid-guardrails-auditor"}, {"name": "lucid-guardrails-auditor-2"},
    ]);
    let plan = planned_by(outcome_in(&ephemeral, &with_rules(), None));
    let names: Vec<_> = plan.containers.iter().map(|planned| planned.name.as_str()).collect();
    assert_eq!(names, ["lucid-guardrails-auditor-3", "lucid-guardrails-auditor-4"]);
    assert_eq!(plan.init.unwrap().name, "lucid-init-2");
}

#[test]
fn a_port_that_is_declared_after_planning_moves_the_auditor() {
    let (mut pod, _) = with_chain("Always");
    pod["spec"]["containers"][0]["ports"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "late", "containerPort": 8090}));
    let patched = injected_with(&pod, &with_rules());
    let redirect = patched["spec"]["initContainers"][0]["env"][0]["value"].as_str().unwrap();
    assert!(
        redirect.contains(r#""chain":[{"uid":20001,"port":8093},{"uid":20002,"port":8096}]"#),
        "{redirect}"
    );
    assert!(patch_in(&patched, &with_rules()).is_empty());
}

#[test]
fn invalid_port_numbers_are_ignored() {
    for number in [0, -1, -8090, 65536, 70000, i32::MAX, i32::MIN] {
        let mut pod = pod(json!({keys::AUDITORS: "injection"}), &[]);
        let ports = [("model", number), ("http", number), ("x", 5001)];
        pod["spec"]["containers"][0]["ports"] = ports
            .iter()
            .map(|(name, port)| json!({"name": name, "containerPort": port, "hostPort": number}))
            .collect();
        let plan = planned(&pod);
        assert_eq!((model_port(&plan), plan.containers[0].port.get()), (5001, 8090), "{number}");
    }
}

#[test]
fn a_forged_next_hop_counts_only_if_an_application_declares_it() {
    let (mut pod, _) = with_chain("Always");
    for port in [8090, 8093, 1, 65535] {
        pod["spec"]["containers"][2]["env"][1]["value"] = json!(format!("http://localhost:{port}"));
        assert_eq!(model_port(&planned_by(outcome_in(&pod, &with_rules(), None))), 5000);
    }
}

#[test]
fn the_last_duplicate_variable_counts() {
    let own = |values: [Value; 2]| {
        let mut pod = pod(json!({keys::DIRECTION: "outbound", keys::TARGET_PORT: "5000"}), &[8000]);
        let [first, second] = values;
        pod["spec"]["containers"][0]["env"] = json!([first, {"name": "A"}, second]);
        pod
    };
    let ours = json!({"name": "AUDITOR_URL", "value": "http://localhost:8081"});
    let others = [
        json!({"name": "AUDITOR_URL", "value": "http://elsewhere"}),
        json!({"name": "AUDITOR_URL", "value": "http://localhost:5000"}),
        json!({"name": "AUDITOR_URL", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}),
        json!({"name": "AUDITOR_URL"}),
    ];
    for other in others {
        for (values, told) in [([ours.clone(), other.clone()], true), ([other.clone(), ours.clone()], false)]
        {
            let pod = own(values);
            let env = &injected_with(&pod, &with_rules())["spec"]["containers"][0]["env"];
            assert_eq!(*env, pod["spec"]["containers"][0]["env"]);
            let said = all_warnings(&pod);
            assert_eq!(
                said.iter().any(|warning| warning.contains("may bypass the auditors")),
                told,
                "{said:?}"
            );
        }
    }
}

#[test]
fn copied_status_and_rules_are_not_trusted() {
    let (original, _) = with_chain("Always");
    let mut pod = pod(json!({keys::AUDITORS: "injection,toxicity"}), &[5000]);
    pod["metadata"]["annotations"][keys::STATUS] = original["metadata"]["annotations"][keys::STATUS].clone();
    pod["spec"]["initContainers"] = json!([original["spec"]["initContainers"][0]]);
    pod["spec"]["restartPolicy"] = json!("Always");
    let patched = injected_with(&pod, &with_rules());
    assert_eq!(patched["spec"]["containers"], original["spec"]["containers"]);
    assert_eq!(patched["spec"]["initContainers"], original["spec"]["initContainers"]);
}

#[test]
fn unrelated_fields_do_not_change_the_chain() {
    let plain = pod(json!({keys::AUDITORS: "injection,toxicity"}), &[5000]);
    let planned = planned_by(outcome_in(&plain, &with_rules(), None));
    let fields = json!({
        "shareProcessNamespace": true, "hostUsers": false, "hostPID": true, "hostIPC": true, "hostAliases": [{"ip": "10.0.0.9", "hostnames": ["localhost"]}],
        "securityContext": {"runAsUser": 20001, "runAsNonRoot": true, "runAsGroup": 0, "appArmorProfile": {"type": "Unconfined"}},
        "dnsPolicy": "None", "runtimeClassName": "gvisor", "enableServiceLinks": true, "schedulerName": "own", "os": {"name": "linux"},
    });
    for (key, value) in fields.as_object().unwrap() {
        let mut pod = plain.clone();
        pod["spec"][key] = value.clone();
        let found = planned_by(outcome_in(&pod, &with_rules(), None));
        assert_eq!((&found.containers, &found.init), (&planned.containers, &planned.init), "{key}");
    }
}

#[test]
fn host_network_with_rules_is_rejected() {
    let mut pod = pod(json!({keys::INTERCEPT: "redirect"}), &[5000]);
    pod["spec"]["hostNetwork"] = json!(true);
    let refused = Decision::Impossible { reason: ImpossibleReason::HostNetwork };
    assert_eq!(outcome_in(&pod, &with_rules(), None).decision, refused);
    pod["metadata"]["annotations"] = json!({keys::INTERCEPT: "REDIRECT"});
    assert_eq!(outcome_in(&pod, &with_rules(), None).decision, refused);
}
