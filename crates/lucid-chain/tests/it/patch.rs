//! The operations on the pod.

use crate::common::*;
use lucid_chain::{Catalogue, Configuration, Operation, Patch, keys};
use serde_json::{Value, json};

fn paths(patch: &Patch) -> Vec<(&str, &str)> {
    patch.operations().iter().map(operation).collect()
}

fn operation(operation: &Operation) -> (&str, &str) {
    match operation {
        Operation::Add { path, .. } => ("add", path),
        Operation::Replace { path, .. } => ("replace", path),
        other => panic!("{other:?}"),
    }
}

const STATUS_PATH: &str = "/metadata/annotations/lucid.computing~1status";

#[test]
fn one_added_container_is_one_operation() {
    let patch = patch_of(&pod(json!({"a": "b"}), &[5000]));
    assert_eq!(
        paths(&patch),
        [("add", "/spec/containers/-"), ("add", "/spec/containers/-"), ("add", STATUS_PATH)]
    );
    assert!(patch.warnings().is_empty());
    let text = serde_json::to_value(&patch).unwrap();
    assert_eq!(text[2]["op"], "add");
    assert_eq!(text[0]["value"]["name"], "lucid-guardrails-auditor");
}

#[test]
fn parents_are_created_where_they_are_missing() {
    let labels = json!({keys::SECURED_LABEL: "true"});
    let cases = [
        (json!({"metadata": {"labels": labels}}), vec!["/spec"], "/metadata/annotations"),
        (json!({"metadata": {"labels": labels}, "spec": null}), vec!["/spec"], "/metadata/annotations"),
        (
            json!({"metadata": {"labels": labels, "annotations": null}, "spec": {"x": 1}}),
            vec!["/spec/containers"],
            "/metadata/annotations",
        ),
        (
            json!({"metadata": {"labels": labels, "annotations": {}}, "spec": {"containers": null}}),
            vec!["/spec/containers"],
            STATUS_PATH,
        ),
    ];
    for (pod, created, status) in cases {
        let patch = patch_of(&pod);
        let mut expected = created;
        expected.extend(["/spec/containers/-", "/spec/containers/-", status]);
        let found: Vec<_> = paths(&patch).into_iter().map(|(_, path)| path).collect();
        assert_eq!(found, expected, "{pod}");
        let patched = apply(&pod, &patch);
        assert_eq!(patched["spec"]["containers"].as_array().unwrap().len(), 2, "{patched}");
        assert!(patched["metadata"]["annotations"][keys::STATUS].is_string(), "{patched}");
        assert_eq!(patched["spec"]["x"], pod["spec"]["x"]);
    }
}

#[test]
fn an_outbound_application_is_pointed_at_the_first_auditor_unless_it_chose_itself() {
    let own = json!([{"name": "AUDITOR_URL", "value": "http://elsewhere"}]);
    let from = json!([{"name": "AUDITOR_URL", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
    let ours = json!({"name": "AUDITOR_URL", "value": "http://localhost:8090"});
    let other = json!({"name": "A", "value": "1"});
    let cases = [
        ("inbound", Value::Null, Value::Null),
        ("outbound", Value::Null, json!([ours])),
        ("both", json!([]), json!([ours])),
        ("both", json!([other]), json!([other, ours])),
        ("both", own.clone(), own),
        ("outbound", from.clone(), from),
    ];
    for (direction, env, expected) in cases {
        let mut pod = pod(json!({keys::DIRECTION: direction}), &[8000]);
        pod["spec"]["containers"][0]["env"] = env;
        pod["spec"]["initContainers"] = json!([{"name": "setup"}]);
        let patched = injected(&pod);
        assert_eq!(patched["spec"]["containers"][0]["env"], expected, "{pod}");
        assert_eq!(patched["spec"]["initContainers"], pod["spec"]["initContainers"]);
        assert!(patch_of(&patched).is_empty());
    }
}

#[test]
fn planning_again_changes_nothing_even_after_the_api_server_filled_in_its_defaults() {
    let yaml = "chain: [{name: a, image: a, env: {EMPTY: ''}, resources: {limits: {cpu: 1000m}}}, {name: b, image: b, resources: {}}]";
    let catalogue = Catalogue::builtin().overlay(&Catalogue::parse("auditors.yaml", yaml).unwrap());
    let chain = ["a".to_owned(), "b".to_owned()];
    let custom = Configuration::new(catalogue, Some(&chain)).unwrap();
    for configuration in [builtin(), custom] {
        for host_network in [false, true] {
            let mut pod = pod(json!({keys::DIRECTION: "both"}), &[5000, 8090]);
            pod["spec"]["hostNetwork"] = json!(host_network);
            let patched = apply(&pod, &patch_in(&pod, &configuration));
            assert!(patch_in(&patched, &configuration).is_empty());
            let stored = defaulted(&patched);
            assert_eq!(paths(&patch_in(&stored, &configuration)), [], "{stored}");
        }
    }
}

#[test]
fn a_container_that_only_carries_a_planned_name_is_replaced_and_reported() {
    let cases = [
        ("command", json!(["sleep"]), "command"),
        ("args", json!(["--off"]), "args"),
        ("image", json!("busybox"), "image"),
        ("env", json!([]), "env"),
        ("envFrom", json!([{"configMapRef": {"name": "x"}}]), "envFrom"),
        ("ports", json!([{"containerPort": 1}]), "ports"),
        ("ports", json!([{"containerPort": 8090, "protocol": "UDP"}]), "ports"),
        ("ports", json!([{"containerPort": 8090, "hostPort": 8090}]), "ports"),
        ("ports", json!([]), "ports"),
        (
            "resources",
            json!({"requests": {"cpu": "1m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}}),
            "resources",
        ),
        (
            "resources",
            json!({"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}, "claims": [{"name": "gpu"}]}),
            "resources",
        ),
        ("resources", json!(null), "resources"),
        ("securityContext", json!({"privileged": true}), "securityContext"),
        ("lifecycle", json!({"postStart": {"exec": {"command": ["kill", "1"]}}}), "lifecycle"),
        ("livenessProbe", json!({"tcpSocket": {"port": 1}}), "livenessProbe"),
        ("volumeMounts", json!([{"name": "x", "mountPath": "/app"}]), "volumeMounts"),
        (
            "volumeMounts",
            json!([{"name": "x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "subPath": "x"}]),
            "volumeMounts",
        ),
        ("volumeDevices", json!([{"name": "x", "devicePath": "/dev/x"}]), "volumeDevices"),
        ("workingDir", json!("/tmp"), "workingDir"),
        ("restartPolicy", json!("Never"), "restartPolicy"),
    ];
    let original = injected(&pod(json!({}), &[5000]));
    for (key, value, difference) in cases {
        let mut pod = original.clone();
        pod["spec"]["containers"][1][key] = value;
        let patch = patch_of(&pod);
        assert_eq!(paths(&patch), [("replace", "/spec/containers/1")], "{pod}");
        let said: Vec<_> = patch.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [format!(
                "container lucid-guardrails-auditor carries the name of an auditor but is another ({difference} differs); it is replaced"
            )]
        );
        assert_eq!(apply(&pod, &patch), original);
    }
}

#[test]
fn what_the_api_server_fills_in_does_not_make_a_container_another() {
    let cases = [
        ("imagePullPolicy", json!("Always")),
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
        ("ports", json!([{"containerPort": 8090, "protocol": "TCP"}])),
        (
            "volumeMounts",
            json!([{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}]),
        ),
        ("volumeMounts", json!([])),
        ("command", Value::Null),
        (
            "resources",
            json!({"requests": {"cpu": "0.1", "memory": "131072Ki", "ephemeral-storage": "1Gi"}, "limits": {"cpu": 0.5, "memory": "256Mi"}}),
        ),
    ];
    for (key, value) in cases {
        let mut pod = injected(&pod(json!({}), &[5000]));
        pod["spec"]["containers"][1][key] = value;
        assert_eq!(paths(&patch_of(&pod)), [], "{pod}");
    }
}

#[test]
fn an_application_under_a_planned_name_is_replaced_in_its_place() {
    let mut pod = pod(json!({}), &[5000]);
    pod["spec"]["containers"] = json!([
        {"name": "lucid-guardrails-auditor-2", "image": "app", "command": ["sleep"]},
        {"name": "web", "ports": [{"containerPort": 5000}]},
    ]);
    let patch = patch_of(&pod);
    assert_eq!(
        paths(&patch),
        [("add", "/spec/containers/-"), ("replace", "/spec/containers/0"), ("add", STATUS_PATH)]
    );
    let patched = apply(&pod, &patch);
    let names: Vec<_> = (0..3).map(|index| patched["spec"]["containers"][index]["name"].clone()).collect();
    assert_eq!(names, ["lucid-guardrails-auditor-2", "web", "lucid-guardrails-auditor"]);
    assert_eq!(patched["spec"]["containers"][0]["ports"], json!([{"containerPort": 8093}]));
    assert!(patch_of(&patched).is_empty());
}

#[test]
fn a_forged_status_annotation_changes_nothing_but_is_put_right() {
    let honest = pod(json!({}), &[5000]);
    let status = injected(&honest)["metadata"]["annotations"][keys::STATUS].clone();
    let forged = [json!(""), json!("injected"), json!("{\"chain\":[]}"), status];
    for value in forged {
        let pod = pod(json!({keys::STATUS: value}), &[5000]);
        assert_eq!(outcome(&pod), outcome(&honest));
        assert_eq!(injected(&pod), injected(&honest), "{value}");
    }
}

#[test]
fn the_status_names_what_was_injected_and_its_hash_follows_the_plan() {
    let annotations = [
        json!({}),
        json!({keys::AUDITORS: "guardrails"}),
        json!({keys::AUDITORS: "injection,toxicity"}),
        json!({keys::AUDIT_MODE: "observe"}),
        json!({keys::DIRECTION: "outbound"}),
        json!({keys::TARGET_PORT: "5001"}),
    ];
    let mut hashes: Vec<_> =
        annotations.into_iter().map(|annotations| planned(&pod(annotations, &[5000])).hash()).collect();
    assert_eq!(hashes[0], planned(&pod(json!({"other": "x"}), &[5000])).hash());
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 6);

    let plan = planned(&pod(json!({}), &[5000]));
    let status: Value = serde_json::from_str(&plan.status()).unwrap();
    let image = "ghcr.io/lucid/lucid-guardrails-auditor:latest";
    assert_eq!(
        status,
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "chain": ["lucid-guardrails-auditor", "lucid-guardrails-auditor-2"],
            "images": [image, image],
            "planHash": plan.hash(),
        })
    );
}

#[test]
fn the_hash_of_the_default_chain_changes_only_with_what_is_injected() {
    let hash = planned(&pod(json!({}), &[5000])).hash();
    assert_eq!(hash, "sha256:03f979d994531c84ac188e0a4d1a456e9bae4bc59d8652be528811e5d2ad1f86");
}
