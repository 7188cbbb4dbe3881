//! Names, ports, environment and hardening of the planned containers.

use crate::common::*;
use lucid_chain::{
    Catalogue, Configuration, Decision, ImpossibleReason, MAX_CHAIN, NamespaceChain, Plan, keys,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn ports(plan: &Plan) -> Vec<(u16, u16)> {
    plan.containers.iter().map(|planned| (planned.port.get(), planned.next_port.get())).collect()
}

fn chain_of(catalogue: &[&str], chain: &str) -> NamespaceChain {
    let entries: Vec<_> = catalogue.iter().map(|name| format!("{{name: {name}, image: a}}")).collect();
    let yaml = format!("chain: [{}]", entries.join(", "));
    namespace(&[(keys::CATALOGUE_KEY, &yaml), (keys::CHAIN_KEY, chain)]).unwrap()
}

#[test]
fn several_containers_of_one_auditor_are_numbered() {
    let long = format!("{}-b", "a".repeat(61));
    let stem = format!("{}-b", "a".repeat(58));
    let cases: [(&[&str], &str, &[&str]); 5] = [
        (&["one"], "one", &["one"]),
        (&["one", "two"], "one,two,one,one,two", &["one", "two", "one-2", "one-3", "two-2"]),
        (&["one", "one-2"], "one,one,one-2", &["one", "one-2", "one-2-2"]),
        (&["one", "one-2"], "one-2,one,one", &["one-2", "one", "one-3"]),
        (
            &[&long, &stem],
            &format!("{long},{long},{stem}"),
            &[&long, &format!("{}-2", "a".repeat(61)), &stem],
        ),
    ];
    for (catalogue, chain, expected) in cases {
        let namespace = chain_of(catalogue, chain);
        let plan = planned_by(outcome_in(&pod(json!({}), &[5000]), &builtin(), Some(&namespace)));
        assert_eq!(names(&plan), expected);
        assert!(names(&plan).iter().all(|name| name.len() <= 63));
    }
}

#[test]
fn the_longest_chain_has_unique_names_and_ports() {
    let chain = vec!["injection"; MAX_CHAIN].join(",");
    let plan = planned(&pod(json!({keys::AUDITOR_CHAIN: chain}), &[5000]));
    let (names, ports): (BTreeSet<_>, BTreeSet<_>) =
        plan.containers.iter().map(|planned| (planned.name.as_str(), planned.port)).unzip();
    assert_eq!((names.len(), ports.len()), (MAX_CHAIN, MAX_CHAIN));
    assert_eq!(plan.containers.last().unwrap().name, format!("lucid-injection-auditor-{MAX_CHAIN}"));
}

#[test]
fn names_of_another_list_are_avoided_with_a_warning() {
    let name = "lucid-guardrails-auditor";
    let second = "lucid-guardrails-auditor-2";
    let cases = [
        ("initContainers", vec![name], [second, "lucid-guardrails-auditor-3"], vec![(name, second)]),
        (
            "ephemeralContainers",
            vec![second],
            [name, "lucid-guardrails-auditor-3"],
            vec![(second, "lucid-guardrails-auditor-3")],
        ),
    ];
    for (list, carried, expected, warned) in cases {
        let mut pod = pod(json!({}), &[5000]);
        pod["spec"][list] = carried.iter().map(|name| json!({"name": name})).collect();
        let outcome = outcome(&pod);
        let said: Vec<_> = warned
            .into_iter()
            .map(|(name, given)| {
                format!("container name {name} is in use by a container of another list; the auditor is named {given}")
            })
            .collect();
        assert_eq!(warnings(&outcome), said, "{list}");
        assert_eq!(names(&planned_by(outcome)), expected, "{list}");
    }
}

#[test]
fn auditors_keep_a_free_port_or_take_the_next_spare() {
    let free = "its own port is free";
    type Case<'a> = (&'a str, Value, &'a [(u16, u16)], &'a [&'a str]);
    let cases: [Case<'_>; 8] = [
        ("injection,toxicity", json!([]), &[(8090, 8093), (8093, 5000)], &[free, free]),
        (
            "guardrails,guardrails",
            json!([]),
            &[(8090, 8093), (8093, 5000)],
            &[free, "8090 is taken by auditor lucid-guardrails-auditor"],
        ),
        (
            "guardrails,injection,toxicity",
            json!([]),
            &[(8090, 8093), (8093, 8096), (8096, 5000)],
            &[
                free,
                "8090 is taken by auditor lucid-guardrails-auditor",
                "8093 is taken by auditor lucid-injection-auditor",
            ],
        ),
        (
            "injection,toxicity",
            json!([{"containerPort": 8090}]),
            &[(8093, 8096), (8096, 5000)],
            &["8090 is taken by container web", "8093 is taken by auditor lucid-injection-auditor"],
        ),
        (
            "injection",
            json!([{"containerPort": 80, "hostPort": 8090}]),
            &[(8093, 5000)],
            &["8090 is taken by container web"],
        ),
        (
            "injection",
            json!([{"containerPort": 8090, "protocol": "UDP"}]),
            &[(8093, 5000)],
            &["8090 is taken by container web"],
        ),
        (
            "injection",
            json!([{"containerPort": 70000}, {"containerPort": 0}, {"hostPort": -8090}]),
            &[(8090, 5000)],
            &[free],
        ),
        (
            "injection",
            json!([{"containerPort": 8093}, {"containerPort": 8090}, {"containerPort": 8096}]),
            &[(8099, 5000)],
            &["8090 is taken by container web"],
        ),
    ];
    for (chain, declared, expected, reasons) in cases {
        let mut pod = pod(json!({keys::AUDITORS: chain, keys::TARGET_PORT: "5000"}), &[]);
        pod["spec"]["containers"][0]["ports"] = declared;
        let plan = planned(&pod);
        assert_eq!(ports(&plan), expected, "{pod}");
        let said: Vec<_> = plan.containers.iter().map(|planned| planned.port_reason()).collect();
        assert!(said.iter().zip(reasons).all(|(said, reason)| said.ends_with(reason)), "{pod}: {said:?}");
    }
}

#[test]
fn the_ports_of_the_model_and_of_init_containers_are_taken_too() {
    let mut pod = pod(json!({keys::AUDITORS: "injection,toxicity", keys::TARGET_PORT: "8090"}), &[]);
    pod["spec"]["initContainers"] = json!([{"name": "proxy", "ports": [{"containerPort": 8093}]}]);
    let plan = planned(&pod);
    assert_eq!(ports(&plan), [(8096, 8099), (8099, 8090)]);
    let reasons: Vec<_> = plan.containers.iter().map(|planned| planned.port_reason()).collect();
    assert_eq!(
        reasons,
        [
            "port 8096 because 8090 is taken by the model",
            "port 8099 because 8093 is taken by init container proxy"
        ]
    );
}

#[test]
fn a_container_with_a_planned_name_does_not_take_a_port() {
    let mut pod = pod(json!({keys::AUDITORS: "injection"}), &[5000]);
    let same = json!({"name": "lucid-injection-auditor", "ports": [{"containerPort": 8090, "name": "http"}]});
    pod["spec"]["containers"].as_array_mut().unwrap().push(same);
    let plan = planned(&pod);
    assert_eq!(ports(&plan), [(8090, 5000)]);
}

#[test]
fn any_unprivileged_port_is_the_last_resort() {
    let spare = |except: &[u16]| {
        let ports: Vec<_> = (1024..=u16::MAX).filter(|port| !except.contains(port)).collect();
        pod(json!({keys::AUDITORS: "injection,injection", keys::TARGET_PORT: "80"}), &ports)
    };
    assert_eq!(ports(&planned(&spare(&[1030, 1025]))), [(1025, 1030), (1030, 80)]);
    let container = "lucid-injection-auditor-2".to_owned();
    let reason = ImpossibleReason::NoFreePort { container };
    assert_eq!(outcome(&spare(&[1030])).decision, Decision::Impossible { reason });
}

#[test]
fn leftover_auditors_are_not_applications() {
    let mut copied = injected(&pod(json!({keys::AUDITORS: "toxicity,injection,injection"}), &[5000]));
    copied["metadata"]["annotations"][keys::AUDITORS] = json!("guardrails");
    copied["metadata"]["annotations"][keys::DIRECTION] = json!("both");
    // The first is recognized by its name alone, the second by its image alone, and the third not at all.
    copied["spec"]["containers"][1]["image"] = json!("busybox");
    copied["spec"]["containers"][2]["name"] = json!("copy");
    copied["spec"]["containers"][3]["env"] = json!([]);
    copied["spec"]["containers"][1]["ports"][0]["name"] = json!("model");

    let outcome = outcome(&copied);
    let said = |name| {
        format!(
            "container \"{name}\" is an auditor outside of the chain; nothing is forwarded to it: remove it"
        )
    };
    assert_eq!(warnings(&outcome), [said("lucid-toxicity-auditor"), said("copy")]);
    let plan = planned_by(outcome);
    assert_eq!(plan.leftovers, ["lucid-toxicity-auditor", "copy"]);
    assert_eq!((model_port(&plan), ports(&plan)), (5000, vec![(8099, 5000)]));

    let patch = patch_of(&copied);
    assert!(patch.warnings.is_empty(), "{patch:?}");
    let patched = apply(&copied, &patch);
    assert_eq!(patched["spec"]["containers"][1], copied["spec"]["containers"][1]);
    assert_eq!(patched["spec"]["containers"][2], copied["spec"]["containers"][2]);
    assert_eq!(patched["spec"]["containers"][3]["env"][0]["name"], "AUDITOR_URL");
    assert!(patch_of(&patched).is_empty());
}

#[test]
fn pods_that_cannot_hold_a_chain_are_impossible() {
    let room =
        |list: &str, resource: &str, quantity: &str| json!({"resources": {list: {resource: quantity}}});
    let cases = [
        (
            json!({"containers": []}),
            Some(
                "failed to make an auditor chain: spec.containers is empty, expected at least one container",
            ),
        ),
        (json!({"containers": null}), Some("failed to make an auditor chain: spec.containers is empty")),
        (
            json!({"os": {"name": "windows"}}),
            Some(
                "failed to make an auditor chain: expected spec.os.name linux, on which auditors run, found windows",
            ),
        ),
        (json!({"os": {"name": "linux"}}), None),
        (json!({"os": null, "resources": null, "volumes": null}), None),
        (json!({"resources": {"requests": null, "limits": {}}}), None),
        (
            room("requests", "cpu", "500m"),
            Some(
                "failed to fit the auditors into spec.resources of the pod: requests.cpu: expected at least 1200m, found 500m; where only limits are written, the API server derives the requests",
            ),
        ),
        (room("requests", "cpu", "1.2"), None),
        (
            room("requests", "memory", "255Mi"),
            Some(
                "failed to fit the auditors into spec.resources of the pod: requests.memory: expected at least 256Mi, found 255Mi",
            ),
        ),
        (room("requests", "memory", "256Mi"), None),
        (room("requests", "hugepages-2Mi", "2Mi"), None),
        (
            room("limits", "cpu", "499m"),
            Some(
                "failed to fit the auditors into spec.resources of the pod: limits.cpu: expected at least 1200m, found 499m",
            ),
        ),
        // The API server derives the pod's request from the sum.
        (
            room("limits", "cpu", "1199m"),
            Some(
                "failed to fit the auditors into spec.resources of the pod: limits.cpu: expected at least 1200m, found 1199m",
            ),
        ),
        (room("limits", "cpu", "1200m"), None),
    ];
    for (spec, reason) in cases {
        let mut pod = pod(json!({}), &[5000]);
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": 1}});
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        match (outcome(&pod).decision, reason) {
            (Decision::Planned(_), None) => assert!(patch_of(&injected(&pod)).is_empty(), "{pod}"),
            (Decision::Impossible { reason }, Some(expected)) => {
                assert!(reason.to_string().starts_with(expected), "{reason}");
            }
            (other, _) => panic!("{pod}: {other:?}"),
        }
    }
    let bare = json!({"metadata": {"labels": {keys::SECURED_LABEL: "true"}}, "spec": {}});
    assert_eq!(outcome(&bare).decision, Decision::Impossible { reason: ImpossibleReason::NoContainers });
}

/// A pod with pod-level resources and a model that requests nothing.
fn with_room(resources: Value) -> Value {
    let mut pod = pod(json!({}), &[5000]);
    pod["spec"]["resources"] = resources;
    pod
}

#[test]
fn every_insufficient_resource_is_named() {
    let room =
        json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}});
    let Decision::Impossible { reason } = outcome(&with_room(room)).decision else { panic!("no refusal") };
    let says = "failed to fit the auditors into spec.resources of the pod: limits.cpu: expected at least 500m, found 100m; \
                requests.cpu: expected at least 200m, found 50m; limits.memory: expected at least 256Mi, found 64Mi; \
                requests.memory: expected at least 256Mi, found 64Mi; where only limits are written";
    assert!(reason.to_string().starts_with(says), "{reason}");
}

#[test]
fn the_init_container_needs_room_as_well() {
    let resources = |it: &str| format!("resources: {{requests: {{cpu: {it}}}, limits: {{cpu: {it}}}}}");
    let catalogue = |mode: &str| {
        let (small, large) = (resources("100m"), resources("300m"));
        parsed(&format!(
            "{{chain: [{{name: a, image: a, {small}}}, {{name: lucid-init, {large}}}], defaults: {{sidecar-mode: {mode}}}}}"
        ))
    };
    for (mode, room, needed) in [
        ("containers", "299m", Some("300m")),
        ("containers", "300m", None),
        ("native", "399m", Some("400m")),
        ("native", "400m", None),
    ] {
        let catalogue = Catalogue::builtin().overlay(&catalogue(mode));
        let configuration = Configuration::new(catalogue, Some(&["a".to_owned()])).unwrap();
        let pod = with_room(json!({"requests": {"cpu": room}}));
        let found = match outcome_in(&pod, &configuration, None).decision {
            Decision::Impossible { reason } => Some(reason.to_string()),
            _ => None,
        };
        let says = needed.map(|it| format!("requests.cpu: expected at least {it}, found {room}"));
        assert_eq!(found.is_some(), says.is_some(), "{mode} {room}: {found:?}");
        assert!(found.unwrap_or_default().contains(&says.unwrap_or_default()), "{mode} {room}");
    }
}

#[test]
fn pod_resources_that_leave_the_model_nothing_cause_a_warning() {
    let all = "the auditors leave nothing of spec.resources of the pod for container ";
    for (room, model, warning) in [
        (
            json!({"limits": {"memory": "256Mi"}}),
            json!({}),
            Some("\"web\": limits.memory: expected more than 256Mi, found 256Mi"),
        ),
        (
            json!({"requests": {"cpu": "0.2", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}),
            json!({}),
            Some(
                "\"web\": requests.cpu: expected more than 200m, found 200m; limits.memory: expected more than 256Mi, found \
                 256Mi; requests.memory: expected more than 256Mi, found 256Mi",
            ),
        ),
        (json!({"limits": {"memory": "257Mi"}}), json!({}), None),
        (json!({"limits": {"memory": "512Mi"}}), json!({"requests": {"memory": "256Mi"}}), None),
        (json!({"limits": {"memory": "512Mi"}}), json!({"limits": {"memory": "256Mi"}}), None),
        (json!({"limits": {"ephemeral-storage": "0"}}), json!({}), None),
    ] {
        let mut pod = with_room(room);
        pod["spec"]["containers"][0]["resources"] = model;
        let found = outcome(&pod);
        assert!(matches!(found.decision, Decision::Planned(_)), "{pod}");
        let expected: Vec<_> = warning.map(|it| format!("{all}{it}")).into_iter().collect();
        assert_eq!(warnings(&found), expected, "{pod}");
        // The same holds for the injected pod.
        assert_eq!(warnings(&outcome(&injected(&pod))), expected, "{pod}");
    }
}

#[test]
fn every_key_of_an_injected_container_is_one_of_core_v1() {
    let plan = planned_by(outcome_in(&pod(json!({}), &[5000]), &with_rules(), None));
    let auditors = plan.containers.iter().map(|planned| planned.manifest());
    for manifest in auditors.chain(plan.init.iter().map(|init| init.manifest())) {
        let typed: k8s_openapi::api::core::v1::Container = serde_json::from_value(manifest.clone()).unwrap();
        assert_eq!(serde_json::to_value(typed).unwrap(), manifest);
    }
}
