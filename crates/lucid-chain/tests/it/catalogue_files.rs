//! Files and variables of auditors that come from objects and images.

use lucid_chain::{PodView, Warning, keys};
use serde_json::{Value, json};

use crate::common::*;

const DIGEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn configuration() -> lucid_chain::Configuration {
    let yaml = format!(
        "chain:
  - name: own
    image: own
    env:
      RATIO: 0.80
      TOKEN: {{valueFrom: {{secretKeyRef: {{name: detector, key: token}}}}}}
      MODE: &mode {{valueFrom: {{configMapKeyRef: {{name: detector.v1, key: mode, optional: true}}}}}}
      AGAIN: *mode
    files:
      - {{mountPath: /etc/rules, configMap: {{name: rules}}}}
      - {{mountPath: /etc/keys, secret: {{secretName: keys}}}}
      - {{mountPath: /models/a, image: {{reference: 'r.test/weights@sha256:{DIGEST}'}}}}
  - name: other
    image: other
    files: [{{mountPath: /rules, configMap: {{name: rules}}}}, {{mountPath: /b, image: {{reference: r.test/b}}}}]
"
    );
    without_rules(configured(&yaml, &["own", "other", "toxicity"]))
}

fn container<'p>(pod: &'p mut Value, name: &str) -> &'p mut Value {
    let containers = pod["spec"]["containers"].as_array_mut().unwrap();
    containers.iter_mut().find(|container| container["name"] == name).unwrap()
}

fn volume<'p>(pod: &'p mut Value, source: &str) -> &'p mut Value {
    let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
    volumes.iter_mut().find(|volume| !volume[source].is_null()).unwrap()
}

#[test]
fn variables_come_from_objects_and_texts_keep_their_spelling() {
    let configuration = configuration();
    let own = &configuration.catalogue().auditors()[4];
    assert!(own.variables().any(|it| it == json!({"name": "RATIO", "value": "0.80"})));
    let mut pod = injected_with(&pod(json!({}), &[5000]), &configuration);
    let env = container(&mut pod, "own")["env"].as_array().unwrap().clone();
    for expected in [
        json!({"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "detector", "key": "token"}}}),
        json!({"name": "AGAIN", "valueFrom": {"configMapKeyRef": {"name": "detector.v1", "key": "mode", "optional": true}}}),
    ] {
        assert!(env.contains(&expected), "{env:?}");
    }
}

#[test]
fn files_are_mounted_read_only_in_their_auditor_alone() {
    let mut pod = defaulted(&injected_with(&pod(json!({}), &[5000]), &configuration()));
    assert!(patch_in(&pod, &configuration()).is_empty());
    let mut mounts = |name: &str| -> Vec<Value> {
        let mounts = container(&mut pod, name)["volumeMounts"].as_array().unwrap().iter();
        mounts.filter(|it| it["name"].as_str().unwrap().starts_with(keys::FILES_VOLUME)).cloned().collect()
    };
    let (own, other) = (mounts("own"), mounts("other"));
    let paths = |mounts: &[Value]| mounts.iter().map(|it| it["mountPath"].clone()).collect::<Vec<_>>();
    assert_eq!(paths(&own), ["/etc/rules", "/etc/keys", "/models/a"]);
    assert_eq!(paths(&other), ["/rules", "/b"]);
    assert!(own.iter().chain(&other).all(|mount| mount["readOnly"] == true));
    // Both mount the same ConfigMap.
    assert_eq!(own[0]["name"], other[0]["name"]);
    assert_eq!((mounts("web").len(), mounts("lucid-toxicity-auditor").len()), (0, 0));
    let named = |name: &Value| {
        pod["spec"]["volumes"].as_array().unwrap().iter().find(|it| it["name"] == *name).unwrap()
    };
    assert_eq!(named(&own[0]["name"])["configMap"], json!({"name": "rules", "defaultMode": 420}));
    assert_eq!(named(&own[1]["name"])["secret"], json!({"secretName": "keys", "defaultMode": 420}));
    let image = json!({"reference": format!("r.test/weights@sha256:{DIGEST}"), "pullPolicy": "IfNotPresent"});
    assert_eq!(named(&own[2]["name"])["image"], image);
    assert_eq!(named(&other[1]["name"])["image"], json!({"reference": "r.test/b", "pullPolicy": "Always"}));
}

#[test]
fn a_changed_volume_is_replaced() {
    let configuration = configuration();
    let stored = defaulted(&injected_with(&pod(json!({}), &[5000]), &configuration));
    let other = format!("r.test/weights@sha256:{}", DIGEST.replace('9', "8"));
    let changes: [(&str, &str, Value); 9] = [
        ("configMap", "configMap", json!({"name": "mine", "defaultMode": 420})),
        ("configMap", "configMap", json!({"name": "rules", "defaultMode": 420, "optional": true})),
        (
            "configMap",
            "configMap",
            json!({"name": "rules", "defaultMode": 420, "items": [{"key": "a", "path": "b"}]}),
        ),
        ("configMap", "emptyDir", json!({})),
        ("configMap", "downwardAPI", json!({})),
        ("secret", "secret", json!({"secretName": "mine", "defaultMode": 420})),
        ("image", "image", json!({"reference": other, "pullPolicy": "IfNotPresent"})),
        ("image", "image", json!({"reference": "r.test/weights", "pullPolicy": "Always"})),
        (
            "image",
            "image",
            json!({"reference": format!("r.test/weights@sha256:{DIGEST}"), "pullPolicy": "Never"}),
        ),
    ];
    for (planned, key, source) in changes {
        let mut pod = stored.clone();
        let volume = volume(&mut pod, planned);
        let name = volume["name"].clone();
        *volume = json!({"name": name, key: source});
        let patch = patch_in(&pod, &configuration);
        let warning = format!("volume {} is replaced: its name is reserved", name.as_str().unwrap());
        assert!(patch_warnings(&patch)[0].starts_with(&warning), "{source}: {:?}", patch.warnings);
        assert_eq!(apply(&pod, &patch)["spec"], stored["spec"], "{source}");
    }
    // The plugin AlwaysPullImages.
    let mut pod = stored;
    volume(&mut pod, "image")["image"]["pullPolicy"] = json!("Always");
    assert!(patch_in(&pod, &configuration).is_empty());
}

#[test]
fn a_volume_of_the_pod_with_a_planned_name_is_replaced() {
    let configuration = configuration();
    let mut planned = injected_with(&pod(json!({}), &[5000]), &configuration);
    let name = volume(&mut planned, "secret")["name"].clone();
    let mut pod = pod(json!({}), &[5000]);
    pod["spec"]["volumes"] = json!([{"name": name, "emptyDir": {}}]);
    let patched = injected_with(&pod, &configuration);
    assert_eq!(patched["spec"]["volumes"][0], *volume(&mut planned, "secret"));
}

#[test]
fn a_changed_mount_or_variable_is_a_difference() {
    let configuration = configuration();
    let stored = defaulted(&injected_with(&pod(json!({}), &[5000]), &configuration));
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 6] = [
        ("volumeMounts", |own| {
            own["volumeMounts"].as_array_mut().unwrap().retain(|it| it["mountPath"] != "/etc/rules");
        }),
        ("volumeMounts", |own| own["volumeMounts"][1]["mountPath"] = json!("/tmp/rules")),
        ("volumeMounts", |own| own["volumeMounts"][1]["readOnly"] = json!(false)),
        ("volumeMounts", |own| own["volumeMounts"][1]["subPath"] = json!("x")),
        ("volumeMounts", |own| {
            let more = json!({"name": "own", "mountPath": "/app", "readOnly": true});
            own["volumeMounts"].as_array_mut().unwrap().push(more);
        }),
        ("env \"TOKEN\"", |own| {
            let env = own["env"].as_array_mut().unwrap();
            let token = env.iter_mut().find(|it| it["name"] == "TOKEN").unwrap();
            *token = json!({"name": "TOKEN", "value": "mine"});
        }),
    ];
    for (key, change) in changes {
        let mut pod = stored.clone();
        change(container(&mut pod, "own"));
        let plan = planned_by(outcome_in(&pod, &configuration, None));
        let json = pod.to_string();
        let patch = plan.chain_patch(&PodView::from_json(&json).unwrap());
        let [Warning::ContainerReplaced { name, difference }] = &patch.warnings[..] else {
            panic!("{:?}", patch.warnings)
        };
        assert_eq!((name.as_str(), difference.as_str()), ("own", key));
    }
}

#[test]
fn invalid_values_are_rejected_with_their_line() {
    for (members, says) in [
        ("env: {A: {valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}}", "unexpected key fieldRef"),
        (
            "env: {A: {valueFrom: {}}}",
            "env.A.valueFrom: expected secretKeyRef or configMapKeyRef, found 0 sources",
        ),
        ("env: {B: {}, A: {valueFrom: {secretKeyRef: {name: a, key: b}}}}", "env.B: `valueFrom` is missing"),
        ("env: {A: {valueFrom: {secretKeyRef: {name: a}}}}", "secretKeyRef: `key` is missing"),
        ("env: {A: {valueFrom: {secretKeyRef: {name: a/b, key: c}}}}", "found \"a/b\""),
        (
            "env: {A: {valueFrom: {secretKeyRef: {name: a, key: ../c}}}}",
            "secretKeyRef.key: expected a key of at most 253 letters",
        ),
        (
            "env: {A: {valueFrom: {secretKeyRef: {name: a, key: b}, configMapKeyRef: {name: a, key: b}}}}",
            "found 2 sources",
        ),
        (
            "env: {PORT: {valueFrom: {secretKeyRef: {name: a, key: b}}}}",
            "which Lucid sets itself; found PORT",
        ),
        ("env: {A: [valueFrom]}", "invalid type: sequence"),
        ("env: {A: {valueFrom: }}", "`valueFrom` has no value"),
        ("env: {A: {fieldRef: {}}}", "invalid type: map"),
        ("files: [{configMap: {name: a}}]", "files[0]: `mountPath` is missing"),
        ("files: [{mountPath: /a}]", "expected one of configMap, secret, image; found 0 sources"),
        ("files: [{mountPath: /a, configMap: {name: a}, secret: {secretName: b}}]", "found 2 sources"),
        ("files: [{mountPath: /a, configMap: }]", "`configMap` has no value"),
        ("files: [{mountPath: /a, configMap: {}}]", "configMap: `name` is missing"),
        ("files: [{mountPath: /a, secret: {name: a}}]", "unknown key \"name\", expected secretName"),
        ("files: [{mountPath: /a, hostPath: {path: /}}]", "unexpected key hostPath"),
        ("files: [{mountPath: /a, subPath: b, configMap: {name: a}}]", "unexpected key subPath"),
        ("files: [{mountPath: /a, image: {reference: NOT AN IMAGE}}]", "image.reference"),
        (
            "files: [{mountPath: /a, image: {reference: a, pullPolicy: Sometimes}}]",
            "expected Always, IfNotPresent or Never",
        ),
        ("files: [{mountPath: a, configMap: {name: a}}]", "expected an absolute path"),
        ("files: [{mountPath: /, configMap: {name: a}}]", "expected an absolute path"),
        ("files: [{mountPath: /a/../var, configMap: {name: a}}]", "expected an absolute path"),
        ("files: [{mountPath: '/a:b', configMap: {name: a}}]", "expected an absolute path"),
        (
            "files: [{mountPath: /var, configMap: {name: a}}]",
            "expected a path that does not overlap /var/run/secrets",
        ),
        (
            "files: [{mountPath: /var/run/secrets/kubernetes.io/serviceaccount, configMap: {name: a}}]",
            "expected a path that does not overlap /var/run/secrets",
        ),
        (
            "files: [{mountPath: /proc/sys, configMap: {name: a}}]",
            "expected a path that does not overlap /proc",
        ),
        (
            "files: [{mountPath: /a/b, configMap: {name: a}}, {mountPath: /a, secret: {secretName: a}}]",
            "`files`: expected mount paths that do not overlap, found /a and /a/b",
        ),
    ] {
        let said = refusal_of(members);
        assert!(said.contains(says), "{members}: {said}");
    }
    let many = |count: usize| {
        let files: Vec<_> =
            (0..count).map(|it| format!("{{mountPath: /a{it}, configMap: {{name: a}}}}")).collect();
        format!("files: [{}]", files.join(", "))
    };
    assert_eq!(auditor(&many(16)).volumes().count(), 16);
    assert!(refusal_of(&many(17)).contains("`files`: expected at most 16 items, found 17"));
    for accepted in ["/varnish", "/var/lib/a", "/process"] {
        auditor(&format!("files: [{{mountPath: {accepted}, configMap: {{name: a}}}}]"));
    }
}
