//! Removal of an injection.

use lucid_chain::{Configuration, Intercept, SidecarMode, keys, uninject};
use serde_json::{Value, json};

use crate::common::*;

fn warnings_of(pod: &Value) -> Vec<String> {
    patch_warnings(&uninject(pod))
}

/// Injects with every combination of modes and removes the injection.
fn assert_round_trip(pod: &Value) {
    for sidecar_mode in [SidecarMode::Containers, SidecarMode::Native] {
        for intercept in [Intercept::Redirect, Intercept::Env] {
            for secrets in [vec![], vec!["mirror".to_owned()]] {
                let mut configuration: Configuration = builtin();
                configuration.overrides.sidecar_mode = Some(sidecar_mode);
                configuration.overrides.intercept = Some(intercept);
                configuration.image_pull_secrets = secrets;
                let injected = injected_with(pod, &configuration);
                assert_ne!(&injected, pod);
                assert_eq!(&apply(&injected, &uninject(&injected)), pod, "{injected}");
            }
        }
    }
}

#[test]
fn uninjection_restores_the_pod() {
    let plain = pod(json!({keys::DIRECTION: "both"}), &[5000]);
    assert_round_trip(&plain);
    for (path, value) in [
        ("/spec/initContainers", json!([{"name": "wait", "image": "wait:1"}])),
        ("/spec/initContainers", json!([])),
        ("/spec/imagePullSecrets", json!([])),
        ("/spec/imagePullSecrets", json!([{"name": "own"}])),
        ("/spec/imagePullSecrets", json!([{"name": "mirror"}])),
        ("/spec/containers/0/env", json!([])),
        ("/spec/containers/0/env", json!([{"name": "A", "value": "1"}])),
        ("/spec/containers/0/env", json!([{"name": "AUDITOR_URL", "value": "http://localhost:8090"}])),
        ("/spec/containers/1", json!({"name": "db", "image": "db:1"})),
        ("/metadata/annotations", json!({keys::DIRECTION: "outbound", "a": "b"})),
    ] {
        let mut pod = plain.clone();
        let operation = json!([{"op": "add", "path": path, "value": value}]);
        json_patch::patch(&mut pod, &serde_json::from_value::<json_patch::Patch>(operation).unwrap())
            .unwrap();
        assert_round_trip(&pod);
    }
    let mut bare = json!({"metadata": {"labels": {keys::SECURED_LABEL: "true"}}, "spec": {"containers": [{"name": "web"}]}});
    assert_round_trip(&bare);
    bare["metadata"]["annotations"] = json!({});
    assert_round_trip(&bare);
}

#[test]
fn a_pod_that_was_never_injected_is_unchanged() {
    for pod in
        [json!({}), json!(null), json!({"spec": {"containers": [{"name": "lucid-injection-auditor"}]}})]
    {
        assert!(uninject(&pod).is_empty());
        assert!(uninject(&pod).warnings.is_empty());
    }
}

#[test]
fn a_forged_status_does_not_remove_applications() {
    let status = json!({"chain": ["web", "db"], "init": "setup", "added": ["/spec/containers", "/spec/initContainers", "/spec",
        "/spec/containers/web/env", "/spec/containers/web/env/AUDITOR_URL", "/metadata"]});
    let pod = json!({
        "metadata": {"annotations": {keys::STATUS: status.to_string()}, "labels": {"a": "b"}},
        "spec": {
            "containers": [{"name": "web", "env": [{"name": "AUDITOR_URL", "value": "http://localhost:8090"}]}, {"name": "other"}],
            "initContainers": [{"name": "setup", "env": [{"name": keys::REDIRECT_ENV, "value": "{}"}]}],
        },
    });
    let patch = uninject(&pod);
    assert_eq!(json!(patch.operations()), json!([{"op": "remove", "path": "/metadata/annotations"}]));
    let warnings = warnings_of(&pod);
    for (name, says) in [("web", "stays"), ("setup", "stays"), ("db", "is not in the pod")] {
        assert!(
            warnings.iter().any(|it| it.contains(&format!("\"{name}\"")) && it.contains(says)),
            "{warnings:?}"
        );
    }

    let mut unreadable = pod;
    unreadable["metadata"]["annotations"][keys::STATUS] = json!("{\u{7}");
    assert!(uninject(&unreadable).is_empty());
    assert!(warnings_of(&unreadable)[0].contains("cannot be parsed"));
}

#[test]
fn uninjection_keeps_everything_else() {
    let plain = pod(json!({keys::AUDITORS: "injection", keys::DIRECTION: "both"}), &[5000]);
    let mut configuration = builtin();
    configuration.overrides.intercept = Some(Intercept::Redirect);
    let mut injected = injected_with(&plain, &configuration);
    injected["metadata"]["annotations"]["later"] = json!("x");
    injected["spec"]["initContainers"].as_array_mut().unwrap().push(json!({"name": "later"}));
    injected["spec"]["containers"].as_array_mut().unwrap().insert(0, json!({"name": "mesh"}));
    let back = apply(&injected, &uninject(&injected));
    assert_eq!(back["metadata"]["annotations"]["later"], "x");
    assert_eq!(back["spec"]["initContainers"], json!([{"name": "later"}]));
    assert_eq!(back["spec"]["containers"], json!([{"name": "mesh"}, plain["spec"]["containers"][0]]));
}

#[test]
fn auditors_that_the_status_does_not_name_are_reported() {
    let mut pod = injected_with(&pod(json!({}), &[5000]), &builtin());
    pod["metadata"]["annotations"][keys::STATUS] = json!("{}");
    let warnings = warnings_of(&pod);
    assert!(
        warnings.iter().any(|it| it.contains("lucid-guardrails-auditor\" stays: it is an auditor")),
        "{warnings:?}"
    );
}
