//! Auditors in namespaces of OpenShift, whose SecurityContextConstraints set and check user IDs.

use crate::common::*;
use lucid_chain::{Configuration, Inputs, Intercept, NamespaceSettings, Outcome, PodView, keys, plan};
use serde_json::{Value, json};

fn range(text: &str) -> NamespaceSettings {
    settings([(keys::SCC_UID_RANGE, text)])
}

fn outcome_within(pod: &Value, configuration: &Configuration, text: &str) -> Outcome {
    let json = pod.to_string();
    let view = PodView::from_json(&json).unwrap();
    plan(&view, &Inputs { settings: &range(text), ..Inputs::new(configuration) })
}

fn patched_within(pod: &Value, configuration: &Configuration, text: &str) -> Value {
    let json = pod.to_string();
    let view = PodView::from_json(&json).unwrap();
    apply(pod, &planned_by(outcome_within(pod, configuration, text)).patch(&view))
}

/// Returns a pod with two auditors; `users` sets `runAsUser` of the pod, its application and its init container.
fn pod_as(users: [Option<u32>; 3]) -> Value {
    let mut pod = pod(json!({keys::AUDITORS: "injection,toxicity"}), &[5000]);
    pod["spec"]["initContainers"] = json!([{"name": "download", "image": "registry.example/download:1"}]);
    let places = ["/spec", "/spec/containers/0", "/spec/initContainers/0"];
    for (place, user) in places.into_iter().zip(users) {
        if let Some(user) = user {
            pod.pointer_mut(place).unwrap()["securityContext"] = json!({"runAsUser": user});
        }
    }
    pod
}

fn uids(outcome: Outcome) -> Vec<Option<u32>> {
    planned_by(outcome).containers.iter().map(|planned| planned.uid).collect()
}

/// Sets what the SCC `restricted` adds to containers and pod.
fn admitted_by_scc(pod: &Value, first: u32) -> Value {
    let mut pod = pod.clone();
    let options = json!({"level": "s0:c27,c14"});
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let context = &mut container["securityContext"];
            if context["runAsUser"].is_null() {
                context["runAsUser"] = json!(first);
            }
            context["seLinuxOptions"] = options.clone();
            let dropped = context["capabilities"]["drop"].as_array().cloned().unwrap_or_default();
            let names = ["KILL", "MKNOD", "SETGID", "SETUID"].map(Value::from);
            context["capabilities"]["drop"] = dropped.into_iter().chain(names).collect();
        }
    }
    pod["spec"]["securityContext"] =
        json!({"fsGroup": first, "supplementalGroups": [first], "seLinuxOptions": options});
    pod
}

#[test]
fn ranges_are_parsed_as_openshift_parses_them() {
    for (text, expected) in [
        ("1000650000/10000", Ok("1000650000-1000659999")),
        ("1000650000-1000659999", Ok("1000650000-1000659999")),
        ("1000650000/10000,2000/5", Ok("1000650000-1000659999")),
        (" 1000650000/1 ", Ok("1000650000-1000650000")),
        ("5-5", Ok("5-5")),
        ("", Err(())),
        ("1000650000", Err(())),
        ("1000650000/0", Err(())),
        ("6-5", Err(())),
        ("4294967295/2", Err(())),
        ("-1/5", Err(())),
        ("a/b", Err(())),
    ] {
        let found = range(text);
        assert_eq!(found.sets_uids(), expected.is_ok(), "{text:?}");
        match expected {
            Ok(same) => assert_eq!(found, range(same), "{text:?}"),
            Err(()) => {
                let problem = &found.problems()[0];
                assert!(problem.contains(keys::SCC_UID_RANGE), "{problem}");
                assert!(problem.contains(&format!("found {text:?}")), "{problem}");
            }
        }
    }
}

#[test]
fn auditors_run_as_unused_uids_of_the_range() {
    let unused = [None; 3];
    for (text, users, expected) in [
        // The first uid is that of containers without one.
        ("1000740000/10000", unused, [1_000_740_001, 1_000_740_002]),
        ("1000740000-1000749999", unused, [1_000_740_001, 1_000_740_002]),
        ("1000740000/10000,5000/9", unused, [1_000_740_001, 1_000_740_002]),
        ("1000740000/10000", [Some(1_000_740_001), None, None], [1_000_740_002, 1_000_740_003]),
        ("1000740000/10000", [None, Some(1_000_740_002), None], [1_000_740_001, 1_000_740_003]),
        ("1000740000/10000", [None, None, Some(1_000_740_001)], [1_000_740_002, 1_000_740_003]),
        ("1000740000/3", unused, [1_000_740_001, 1_000_740_002]),
        // Auditors run as uids above 1000.
        ("10/2000", unused, [1001, 1002]),
    ] {
        let outcome = outcome_within(&pod_as(users), &with_rules(), text);
        assert_eq!(warnings(&outcome), Vec::<String>::new(), "{text} {users:?}");
        let plan = planned_by(outcome);
        let rules: Value = serde_json::from_str(&redirect_of(&plan).to_json()).unwrap();
        let hops: Vec<_> = rules["chain"].as_array().unwrap().iter().map(|hop| hop["uid"].clone()).collect();
        assert_eq!(hops, expected.map(Value::from), "{text} {users:?}");
        let uids: Vec<_> = plan.containers.iter().map(|planned| planned.uid).collect();
        assert_eq!(uids, expected.map(Some), "{text} {users:?}");
    }
}

#[test]
fn ranges_that_are_too_small_are_reported() {
    for (text, shown, users, found) in [
        ("1000740000/1", "1000740000-1000740000", [None; 3], 0),
        ("1000740000/2", "1000740000-1000740001", [None; 3], 1),
        ("1000740000/3", "1000740000-1000740002", [None, Some(1_000_740_002), None], 1),
        ("2147483647-2147483650", "2147483647-2147483650", [None; 3], 0),
        ("0/900", "0-899", [None; 3], 0),
    ] {
        let outcome = outcome_within(&pod_as(users), &with_rules(), text);
        let [warning] = &warnings(&outcome)[..] else { panic!("{:?}", warnings(&outcome)) };
        for part in
            [shown, keys::SCC_UID_RANGE, "expected 2 uids", &format!("found {found};"), keys::INTERCEPT]
        {
            assert!(warning.contains(part), "{text}: {warning}");
        }
        assert_eq!(uids(outcome), [Some(20001), Some(20002)], "{text}");
    }
}

#[test]
fn without_rules_openshift_sets_the_uids() {
    for direction in ["inbound", "outbound"] {
        let mut pod = pod_as([None; 3]);
        pod["metadata"]["annotations"][keys::DIRECTION] = json!(direction);
        pod["metadata"]["annotations"][keys::UPSTREAM] = json!("https://api.example.com/v1");
        let outcome = outcome_within(&pod, &builtin(), "1000740000/1");
        assert_eq!(warnings(&outcome), Vec::<String>::new());
        let plan = planned_by(outcome);
        assert_eq!(plan.containers.len(), if direction == "inbound" { 2 } else { 3 }, "{direction}");
        for planned in &plan.containers {
            let context = &planned.manifest()["securityContext"];
            assert_eq!((&context["runAsUser"], &context["runAsNonRoot"]), (&Value::Null, &json!(true)));
        }
    }
    assert_eq!(uids(outcome_in(&pod_as([None; 3]), &builtin(), None)), [Some(20001), Some(20002)]);
}

#[test]
fn planning_again_keeps_what_openshift_sets() {
    let text = "1000740000/10000";
    for (configuration, native) in
        [(with_rules(), false), (builtin(), false), (with_rules(), true), (builtin(), true)]
    {
        let mut pod = pod_as([None, Some(1_000_740_001), None]);
        if native {
            pod["spec"]["restartPolicy"] = json!("Never");
        }
        let injected = patched_within(&pod, &configuration, text);
        for stored in [injected.clone(), admitted_by_scc(&injected, 1_000_740_000)] {
            assert_eq!(patched_within(&stored, &configuration, text), stored, "native: {native}");
        }
    }
}

#[test]
fn only_what_openshift_sets_is_accepted() {
    let env = Some(Intercept::Env);
    let redirect = Some(Intercept::Redirect);
    for (intercept, pointer, value, is_kept) in [
        (env, "/runAsUser", json!(1_000_740_000), true),
        (env, "/runAsUser", json!(0), false),
        (env, "/runAsUser", json!(1000), false),
        (env, "/runAsUser", json!("1000740000"), false),
        (redirect, "/runAsUser", json!(1_000_740_000), false),
        (env, "/runAsNonRoot", json!(false), false),
        (env, "/seLinuxOptions", json!({"level": "s0:c27,c14"}), true),
        (env, "/seLinuxOptions", json!({"level": "s0:c1,c2"}), false),
        (env, "/seLinuxOptions", json!({"level": "s0:c27,c14", "type": "spc_t"}), false),
        (env, "/capabilities", json!({"drop": ["ALL", "KILL"]}), true),
        (env, "/capabilities", json!({"drop": ["KILL"]}), false),
        (env, "/capabilities", json!({"drop": ["ALL"], "add": ["CHOWN"]}), false),
        (env, "/capabilities", json!({"drop": ["ALL"], "other": []}), false),
        (env, "/supplementalGroups", json!([0]), false),
        (env, "/privileged", json!(true), false),
    ] {
        let mut configuration = with_rules();
        configuration.overrides.intercept = intercept;
        let text = "1000740000/10000";
        let mut stored = patched_within(&pod_as([None; 3]), &configuration, text);
        stored["spec"]["securityContext"] = json!({"seLinuxOptions": {"level": "s0:c27,c14"}});
        let context = stored.pointer_mut("/spec/containers/1/securityContext").unwrap();
        context[pointer.trim_start_matches('/')] = value.clone();
        let kept = patched_within(&stored, &configuration, text) == stored;
        assert_eq!(kept, is_kept, "{intercept:?} {pointer}: {value}");
    }
}

#[test]
fn capabilities_of_lucid_init_are_not_dropped_again() {
    let text = "1000740000/10000";
    for (name, is_kept) in [("MKNOD", true), ("NET_ADMIN", false)] {
        let mut stored = patched_within(&pod_as([None; 3]), &with_rules(), text);
        let init = stored.pointer_mut("/spec/initContainers/1/securityContext/capabilities/drop").unwrap();
        init.as_array_mut().unwrap().push(json!(name));
        assert_eq!(patched_within(&stored, &with_rules(), text) == stored, is_kept, "{name}");
    }
}
