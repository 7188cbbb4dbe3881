//! Messages about what the author of a pod can change.

use lucid_policy::Mode;
use serde_json::{Value, json};

use crate::common::{Ask, assert_says, injected, secured};

fn warnings(pod: &Value) -> Vec<String> {
    Ask::create(pod).with(|ask| ask.policy.mode = Mode::Audit).evaluate().unwrap().warnings()
}

#[test]
fn refusals_of_privileges_name_device_plugins() {
    let mut pod = injected(&secured());
    pod["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    assert_says(&Ask::create(&pod).denial(), &["use a device plugin for devices"]);
}

#[test]
fn image_volumes_do_not_need_shared_processes() {
    let mut pod = secured();
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "model", "mountPath": "/mnt/models"}]);
    pod["spec"]["volumes"] = json!([{"name": "model", "image": {"reference": "shop/models:1"}}]);
    assert_eq!(Ask::create(&injected(&pod)).denial(), "");
}

#[test]
fn native_auditors_without_restart_policy_are_refused() {
    let expected = "the pod will not start, because the auditor does not end: expected restartPolicy: Always";
    // Other fields that a webhook with older types removes.
    for others in [vec![], vec!["env"], vec!["livenessProbe", "securityContext"]] {
        for native_model in [false, true] {
            let mut pod = secured();
            pod["spec"]["restartPolicy"] = json!("Never");
            if native_model {
                pod["spec"]["restartPolicy"] = json!("Always");
                let model = json!({"name": "llm", "image": "shop/llm:1", "restartPolicy": "Always",
                    "ports": [{"containerPort": 5000, "name": "model"}]});
                pod["spec"]["initContainers"] = json!([model]);
                pod["spec"]["containers"][0]["ports"] = json!([]);
            }
            let mut stripped = injected(&pod);
            assert!(!warnings(&stripped).iter().any(|it| it.contains(expected)));
            for container in stripped["spec"]["initContainers"].as_array_mut().unwrap() {
                let container = container.as_object_mut().unwrap();
                container.remove("restartPolicy");
                if container["image"].as_str().unwrap().starts_with("reg.test/") {
                    others.iter().filter(|it| **it != "env").for_each(|field| drop(container.remove(*field)));
                    if others.contains(&"env") {
                        container["env"].as_array_mut().unwrap().truncate(1);
                    }
                }
            }
            let found = warnings(&stripped);
            let number = found.iter().filter(|it| it.contains(expected)).count();
            assert_eq!(number, 2, "{others:?} native model: {native_model}: {found:#?}");
            if !native_model {
                assert!(Ask::create(&stripped).denial().contains(expected));
            }
        }
    }
}
