//! Patch operations.

use crate::common::*;
use json_patch::PatchOperation;
use lucid_chain::{Configuration, PodPatch, keys};
use serde_json::{Value, json};

fn paths(patch: &PodPatch) -> Vec<(&'static str, &'static str)> {
    patch.operations().0.leak().iter().map(operation).collect()
}

fn operation(operation: &PatchOperation) -> (&str, &str) {
    let name = match operation {
        PatchOperation::Add(_) => "add",
        PatchOperation::Replace(_) => "replace",
        PatchOperation::Remove(_) => "remove",
        other => panic!("{other:?}"),
    };
    (name, operation.path().as_str())
}

fn status_of(pod: &Value) -> &str {
    pod["metadata"]["annotations"][keys::STATUS].as_str().unwrap()
}

const STATUS_PATH: &str = "/metadata/annotations/lucid.computing~1status";

#[test]
fn one_added_container_is_one_operation() {
    let patch = patch_of(&pod(json!({"a": "b"}), &[5000]));
    assert_eq!(
        paths(&patch),
        [
            ("add", "/spec/containers/-"),
            ("add", "/spec/containers/-"),
            ("add", "/spec/volumes"),
            ("add", STATUS_PATH)
        ]
    );
    assert!(patch.warnings.is_empty());
    let text = serde_json::to_value(patch.operations()).unwrap();
    assert_eq!(text[2]["op"], "add");
    assert_eq!(text[0]["value"]["name"], "lucid-guardrails-auditor");
}

#[test]
fn applications_get_auditor_url_unless_they_set_it() {
    let own = json!([{"name": "AUDITOR_URL", "value": "http://elsewhere"}]);
    let secret = json!([{"name": "AUDITOR_URL", "value": "https://me:pass@word@elsewhere:8443/v1?token=x"}]);
    let from = json!([{"name": "AUDITOR_URL", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
    let second = json!([{"name": "AUDITOR_URL", "value": "http://localhost:8093"}]);
    let ours = json!({"name": "AUDITOR_URL", "value": "http://localhost:8090"});
    let other = json!({"name": "A", "value": "1"});
    let cases = [
        ("inbound", Value::Null, Value::Null, None),
        ("inbound", own.clone(), own.clone(), None),
        ("both", Value::Null, json!([ours]), None),
        ("both", json!([]), json!([ours]), None),
        ("both", json!([other]), json!([other, ours]), None),
        ("both", own.clone(), own, Some("\"http://elsewhere\"")),
        ("both", secret.clone(), secret, Some("\"https://elsewhere:8443\"")),
        ("both", second.clone(), second, Some("\"http://localhost:8093\"")),
        ("both", from.clone(), from, Some("valueFrom")),
    ];
    for (direction, env, expected, kept) in cases {
        let mut pod = pod(json!({keys::DIRECTION: direction}), &[8000]);
        pod["spec"]["containers"][0]["env"] = env;
        pod["spec"]["initContainers"] = json!([{"name": "setup"}]);
        let said = kept.map(|found| {
            format!("container \"web\" sets AUDITOR_URL itself and may bypass the auditors: expected \"http://localhost:8090\", found {found}")
        });
        assert_eq!(patch_warnings(&patch_of(&pod)), Vec::from_iter(said.clone()));
        let patched = injected(&pod);
        assert_eq!(patched["spec"]["containers"][0]["env"], expected, "{pod}");
        assert_eq!(patched["spec"]["initContainers"], pod["spec"]["initContainers"]);
        let again = patch_of(&patched);
        assert!(again.is_empty());
        assert_eq!(patch_warnings(&again), Vec::from_iter(said));
    }
}

#[test]
fn an_injected_auditor_url_follows_the_first_auditor() {
    let mut pod = pod(json!({keys::DIRECTION: "both"}), &[5000]);
    pod["spec"]["containers"][0]["env"] =
        json!([{"name": "AUDITOR_URL", "value": "x"}, {"name": "A", "value": "1"}]);
    let second = json!({"name": "second", "env": []});
    pod["spec"]["containers"].as_array_mut().unwrap().push(second);
    let mut pod = injected(&pod);
    assert_eq!(pod["spec"]["containers"][1]["env"][0]["value"], "http://localhost:8090");

    // Another injector takes the port of the first auditor.
    let proxy = json!({"name": "proxy", "ports": [{"containerPort": 8090}], "env": [{"name": "AUDITOR_URL", "value": "http://localhost:80"}]});
    pod["spec"]["containers"].as_array_mut().unwrap().push(proxy);
    let patch = patch_of(&pod);
    assert!(paths(&patch).contains(&("replace", "/spec/containers/1/env/0/value")), "{patch:?}");
    let patched = apply(&pod, &patch);
    let url = |container: usize| patched["spec"]["containers"][container]["env"][0]["value"].clone();
    assert_eq!(
        (url(0), url(1), url(4)),
        (json!("x"), json!("http://localhost:8093"), json!("http://localhost:80"))
    );
    let said = patch_warnings(&patch);
    assert_eq!(
        said.iter().filter(|warning| warning.contains("sets AUDITOR_URL itself")).count(),
        2,
        "{said:?}"
    );
    assert!(patch_of(&patched).is_empty());
}

#[test]
fn planning_again_after_defaulting_changes_nothing() {
    let yaml = "chain: [{name: a, image: a, env: {EMPTY: ''}, resources: {limits: {cpu: 1000m}}}, {name: b, image: b, resources: {}}]";
    let custom = without_rules(configured(yaml, &["a", "b"]));
    for configuration in [builtin(), custom] {
        for host_network in [false, true] {
            let mut pod = pod(json!({keys::DIRECTION: "both"}), &[5000, 8090]);
            pod["spec"]["hostNetwork"] = json!(host_network);
            let patched = injected_with(&pod, &configuration);
            assert!(patch_in(&patched, &configuration).is_empty());
            let stored = defaulted(&patched);
            assert_eq!(paths(&patch_in(&stored, &configuration)), [], "{stored}");
        }
    }
}

fn with_tokens() -> Configuration {
    let yaml = "chain: [{name: lucid-guardrails-auditor, image: 'ghcr.io/lucid/lucid-guardrails-auditor:latest', port: 8090,
                         serviceAccountToken: true}]";
    without_rules(Configuration::new(parsed(yaml), None).unwrap())
}

#[test]
fn a_foreign_container_with_a_planned_name_is_replaced() {
    let cases = [
        ("command", json!(["sleep"]), "command"),
        ("args", json!(["--off"]), "args"),
        ("image", json!("busybox"), "image"),
        ("env", json!([]), "env \"LUCID_AUDITOR_ID\""),
        ("envFrom", json!([{"configMapRef": {"name": "x"}}]), "envFrom"),
        ("ports", json!([{"containerPort": 1}]), "ports"),
        ("ports", json!([{"containerPort": 8090, "protocol": "UDP"}]), "ports"),
        ("ports", json!([{"containerPort": 8090, "hostPort": 8090}]), "ports"),
        ("ports", json!([]), "ports"),
        (
            "resources",
            json!({"requests": {"cpu": "1m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}}),
            "resources.requests.cpu: expected 50m to 1, found 1m",
        ),
        (
            "resources",
            json!({"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}, "claims": [{"name": "gpu"}]}),
            "resources \"claims\"",
        ),
        ("resources", json!(null), "resources.requests.cpu: expected 50m to 1, found none"),
        ("securityContext", json!({"privileged": true}), "securityContext"),
        ("lifecycle", json!({"postStart": {"exec": {"command": ["kill", "1"]}}}), "lifecycle"),
        ("livenessProbe", json!({"tcpSocket": {"port": 1}}), "livenessProbe"),
        ("volumeMounts", json!([{"name": "x", "mountPath": "/app"}]), "volumeMounts"),
        ("volumeDevices", json!([{"name": "x", "devicePath": "/dev/x"}]), "volumeDevices"),
        ("workingDir", json!("/tmp"), "workingDir"),
        ("terminationMessagePath", json!("/usr/local/bin/auditor"), "terminationMessagePath"),
        ("terminationMessagePath", Value::Null, "terminationMessagePath"),
        ("terminationMessagePolicy", json!("FallbackToLogsOnError"), "terminationMessagePolicy"),
        ("imagePullPolicy", json!("Never"), "imagePullPolicy"),
        ("imagePullPolicy", json!("IfNotPresent"), "imagePullPolicy"),
        ("volumeMounts", token(json!({"name": "scratch"})), "volumeMounts"),
        ("volumeMounts", token(json!({"name": "kube-api-access-scratch"})), "volumeMounts"),
        ("volumeMounts", token(json!({"name": "own-token"})), "volumeMounts"),
        ("volumeMounts", token(json!({"name": "kube-api-access-missing"})), "volumeMounts"),
        ("volumeMounts", token(json!({"readOnly": false})), "volumeMounts"),
        ("volumeMounts", token(json!({"readOnly": null})), "volumeMounts"),
        ("volumeMounts", token(json!({"subPath": "x"})), "volumeMounts"),
        ("volumeMounts", token(json!({"mountPath": "/usr/local/bin"})), "volumeMounts"),
        ("volumeMounts", vec![token(json!({}))[0].clone(); 5].into(), "volumeMounts"),
        (
            "resources",
            with_resource("limits", "example.com/gpu", "1"),
            "resources.limits.\"example.com/gpu\"",
        ),
        ("resources", with_resource("requests", "hugepages-2Mi", "2Mi"), "resources.requests.hugepages-2Mi"),
        ("restartPolicy", json!("Never"), "restartPolicy"),
    ];
    let plain = pod(json!({}), &[5000]);
    let mut original = apply(&plain, &patch_in(&plain, &with_tokens()));
    original["spec"]["volumes"] = volumes();
    for (key, value, difference) in cases {
        let mut pod = original.clone();
        pod["spec"]["containers"][1][key] = value;
        let patch = patch_in(&pod, &with_tokens());
        assert_eq!(paths(&patch), [("replace", "/spec/containers/1")], "{pod}");
        assert_eq!(
            patch_warnings(&patch),
            [format!(
                "container lucid-guardrails-auditor is replaced: it has the name of an auditor and differs from it in {difference}"
            )]
        );
        assert_eq!(apply(&pod, &patch), original);
    }
}

#[test]
fn api_server_defaults_do_not_count_as_differences() {
    let cases = [
        ("ports", json!([{"containerPort": 8090, "protocol": "TCP"}])),
        ("volumeMounts", token(json!({}))),
        ("volumeMounts", json!([])),
        ("command", Value::Null),
        (
            "resources",
            json!({"requests": {"cpu": "0.1", "memory": "131072Ki", "ephemeral-storage": "1Gi"}, "limits": {"cpu": 0.5, "memory": "256Mi"}}),
        ),
        ("resources", with_resource("limits", "ephemeral-storage", "1Gi")),
    ];
    for (key, value) in cases {
        let plain = pod(json!({}), &[5000]);
        let mut pod = apply(&plain, &patch_in(&plain, &with_tokens()));
        pod["spec"]["volumes"] = volumes();
        pod["spec"]["containers"][1][key] = value;
        assert_eq!(paths(&patch_in(&pod, &with_tokens())), [], "{pod}");
    }
}

fn token(other: Value) -> Value {
    let mut mount = json!({
        "name": "kube-api-access-x7k2p", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    });
    mount.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    mount.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    json!([mount])
}

fn volumes() -> Value {
    json!([
        {"name": "scratch", "emptyDir": {}},
        {"name": "kube-api-access-scratch", "emptyDir": {}},
        {"name": "own-token", "projected": {"sources": []}},
        {"name": "kube-api-access-x7k2p", "projected": {"sources": []}},
    ])
}

fn with_resource(list: &str, name: &str, quantity: &str) -> Value {
    let mut resources =
        json!({"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}});
    resources[list][name] = json!(quantity);
    resources
}

#[test]
fn the_pull_policy_is_the_api_server_default() {
    let digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let cases = [
        ("a".to_owned(), "Always"),
        ("a:latest".to_owned(), "Always"),
        ("a:1".to_owned(), "IfNotPresent"),
        (format!("a@{digest}"), "IfNotPresent"),
        (format!("a:1@{digest}"), "IfNotPresent"),
        (format!("a:latest@{digest}"), "Always"),
    ];
    for (image, policy) in cases {
        let catalogue = parsed(&format!("chain: [{{name: a, image: '{image}'}}]"));
        let configuration = Configuration::new(catalogue, Some(&["a".to_owned()])).unwrap();
        let pod = pod(json!({}), &[5000]);
        let mut patched = injected_with(&pod, &configuration);
        assert_eq!(patched["spec"]["containers"][1]["imagePullPolicy"], policy, "{image}");
        // The plugin AlwaysPullImages.
        patched["spec"]["containers"][1]["imagePullPolicy"] = json!("Always");
        assert_eq!(paths(&patch_in(&patched, &configuration)), [], "{image}");
    }
}

#[test]
fn a_variable_of_another_webhook_is_named() {
    let mut pod = injected(&pod(json!({keys::AUDITORS: "injection"}), &[5000]));
    let env = pod["spec"]["containers"][1]["env"].as_array_mut().unwrap();
    env.push(json!({"name": "HTTP_PROXY", "value": "http://proxy.test"}));
    assert_eq!(
        patch_warnings(&patch_of(&pod)),
        [
            "container lucid-injection-auditor is replaced: it has the name of an auditor and differs from it in env \"HTTP_PROXY\""
        ]
    );
}

#[test]
fn workload_identity_does_not_count_as_a_difference() {
    const PATH: &str = "/var/run/secrets/eks.amazonaws.com/serviceaccount";
    let yaml = "chain: [{name: a, image: a, env: {AWS_REGION: eu-west-1}}]";
    let configuration = configured(yaml, &["a"]);
    let pod = pod(json!({}), &[5000]);
    let patched = injected_with(&pod, &configuration);
    let with = |variable: Value, mount: Value| {
        let mut pod = patched.clone();
        let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
        volumes.push(json!({"name": "identity", "projected": {"sources": []}}));
        volumes.push(json!({"name": "x", "emptyDir": {}}));
        for list in ["containers", "initContainers"] {
            for container in pod["spec"][list].as_array_mut().unwrap() {
                let container = container.as_object_mut().unwrap();
                container.entry("env").or_insert(json!([])).as_array_mut().unwrap().push(variable.clone());
                let mounts = container.entry("volumeMounts").or_insert(json!([]));
                mounts.as_array_mut().unwrap().push(mount.clone());
            }
        }
        patch_in(&pod, &configuration)
    };
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path, "readOnly": true});
    let region = || json!({"name": "AWS_DEFAULT_REGION", "value": "us-gov-west-1"});
    assert_eq!(paths(&with(region(), mount("identity", PATH))), []);
    let regions =
        ["x.evil.test/#", "eu-west-1.evil.test", "EU-WEST-1", "eu-1", "west1", "eu--1", "eu-west-", "-1"];
    let cases: [(&str, &str, &[&str]); 5] = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/eks.amazonaws.com/serviceaccount/token", &[]),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials", &[]),
        (
            "AZURE_AUTHORITY_HOST",
            "https://login.microsoftonline.com/",
            &["https://login.microsoftonline.com.evil/"],
        ),
        ("AWS_DEFAULT_REGION", "ap-southeast-2", &regions),
        ("AWS_STS_REGIONAL_ENDPOINTS", "regional", &["other"]),
    ];
    for (name, value, wrong) in cases {
        let variable = json!({"name": name, "value": value});
        assert_eq!(paths(&with(variable, mount("identity", PATH))), [], "{name}");
        let elsewhere = ["/tmp/token", "http://127.0.0.1:9999/v1/credentials", "https://evil.example/", ""];
        for elsewhere in elsewhere.iter().chain(wrong) {
            let variable = json!({"name": name, "value": elsewhere});
            assert_ne!(paths(&with(variable, mount("identity", PATH))), [], "{name}: {elsewhere}");
        }
    }
    for (variable, mount) in [
        (json!({"name": "AWS_REGION", "value": "eu-west-2"}), mount("identity", PATH)),
        (
            json!({"name": "AWS_DEFAULT_REGION", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
            mount("identity", PATH),
        ),
        // Only the catalogue chooses the identity of an auditor.
        (json!({"name": "AWS_ROLE_ARN", "value": "arn:aws:iam::1:role/a"}), mount("identity", PATH)),
        (json!({"name": "AZURE_CLIENT_ID", "value": "a"}), mount("identity", PATH)),
        (json!({"name": "AZURE_TENANT_ID", "value": "a"}), mount("identity", PATH)),
        (json!({"name": "LD_PRELOAD", "value": "/x"}), mount("identity", PATH)),
        (region(), mount("identity", "/usr/bin")),
        (region(), mount("x", PATH)),
        (region(), json!({"name": "identity", "mountPath": PATH})),
        (region(), json!({"name": "identity", "mountPath": PATH, "readOnly": true, "subPath": "x"})),
    ] {
        assert_ne!(paths(&with(variable.clone(), mount.clone())), [], "{variable}, {mount}");
    }
}

#[test]
fn unplanned_limits_must_be_large_enough() {
    let yaml = "chain: [{name: a, image: a, resources: {requests: {}, limits: {}}}]";
    let configuration = configured(yaml, &["a"]);
    let pod = pod(json!({}), &[5000]);
    let patched = injected_with(&pod, &configuration);
    for (list, name, quantity, is_same) in [
        ("limits", "ephemeral-storage", "1", false),
        ("limits", "ephemeral-storage", "63Mi", false),
        ("limits", "ephemeral-storage", "64Mi", true),
        ("limits", "memory", "127Mi", false),
        ("limits", "memory", "128Mi", true),
        ("limits", "cpu", "1m", false),
        ("limits", "cpu", "0.1", true),
        ("limits", "cpu", "x", false),
        ("requests", "ephemeral-storage", "1", true),
        ("requests", "example.com/gpu", "1", false),
    ] {
        let mut pod = patched.clone();
        let container = pod["spec"]["containers"].as_array_mut().unwrap().last_mut().unwrap();
        container["resources"] = json!({list: {name: quantity}});
        assert_eq!(paths(&patch_in(&pod, &configuration)).is_empty(), is_same, "{list} {name} {quantity}");
    }
}

/// Replaces `resources` of the auditor and of the init container, and returns what patching changes of them.
fn with_resources(configuration: &Configuration, auditor: &Value, init: &Value) -> Vec<String> {
    let mut pod = injected_with(&pod(json!({}), &[5000]), configuration);
    let find = |list: &mut Value, name: &str| {
        list.as_array().unwrap().iter().position(|it| it["name"] == name).unwrap()
    };
    let auditor_place = find(&mut pod["spec"]["containers"], "a");
    json_patch::merge(&mut pod["spec"]["containers"][auditor_place]["resources"], auditor);
    json_patch::merge(&mut pod["spec"]["initContainers"][0]["resources"], init);
    patch_warnings(&patch_in(&pod, configuration))
}

#[test]
fn resources_may_differ_within_their_bounds() {
    let unbounded =
        "requests: {cpu: 200m, memory: 128Mi, ephemeral-storage: 1Gi}, limits: {cpu: 500m, memory: 256Mi}";
    let bounded = format!("{unbounded}, min: {{cpu: 20m}}, max: {{cpu: 4, ephemeral-storage: 3Gi}}");
    let gpu = "requests: {cpu: 1}, limits: {example.com/gpu: 2}";
    let of = |list: &str, name: &str, quantity: &str| json!({list: {name: quantity}});
    for (resources, changed, problem) in [
        (unbounded, of("requests", "cpu", "100m"), None),
        (unbounded, of("requests", "cpu", "99m"), Some("requests.cpu: expected 100m to 1, found 99m")),
        (unbounded, of("requests", "memory", "64Mi"), None),
        (
            unbounded,
            of("requests", "memory", "63Mi"),
            Some("requests.memory: expected 64Mi to 512Mi, found 63Mi"),
        ),
        (unbounded, of("limits", "memory", "512Mi"), None),
        (
            unbounded,
            of("limits", "memory", "513Mi"),
            Some("limits.memory: expected 64Mi to 512Mi, found 513Mi"),
        ),
        (unbounded, of("limits", "memory", "1Mi"), Some("limits.memory: expected 64Mi to 512Mi, found 1Mi")),
        (unbounded, of("requests", "cpu", "1"), None),
        (unbounded, of("requests", "ephemeral-storage", "1Ti"), None),
        (
            unbounded,
            of("requests", "ephemeral-storage", "1Mi"),
            Some("requests.ephemeral-storage: expected at least 512Mi, found 1Mi"),
        ),
        (unbounded, of("limits", "ephemeral-storage", "600Mi"), None),
        (unbounded, json!({"requests": null}), Some("requests.cpu: expected 100m to 1, found none")),
        (unbounded, json!({"limits": {"cpu": null}}), Some("limits.cpu: expected 100m to 1, found none")),
        (unbounded, of("requests", "cpu", "many"), Some("requests.cpu: expected 100m to 1, found many")),
        (&bounded, of("requests", "cpu", "20m"), None),
        (&bounded, of("requests", "cpu", "19m"), Some("requests.cpu: expected 20m to 4, found 19m")),
        (&bounded, of("limits", "cpu", "4"), None),
        (&bounded, of("limits", "cpu", "4.1"), Some("limits.cpu: expected 20m to 4, found 4.1")),
        (
            &bounded,
            of("requests", "ephemeral-storage", "4Gi"),
            Some("requests.ephemeral-storage: expected 512Mi to 3Gi, found 4Gi"),
        ),
        (gpu, of("limits", "example.com/gpu", "1"), Some("limits.\"example.com/gpu\": expected 2, found 1")),
        (gpu, of("limits", "example.com/gpu", "4"), Some("limits.\"example.com/gpu\": expected 2, found 4")),
        (gpu, of("limits", "cpu", "99m"), Some("limits.cpu: expected at least 500m, found 99m")),
    ] {
        let yaml = format!(
            "chain: [{{name: a, image: a, resources: {{{resources}}}}}, {{name: lucid-init, resources: {{{resources}}}}}]"
        );
        let configuration = configured(&yaml, &["a"]);
        for (auditor, init, name) in [(&changed, &json!({}), "a"), (&json!({}), &changed, "lucid-init")] {
            let warnings = with_resources(&configuration, auditor, init);
            let is_expected = match problem {
                None => warnings.is_empty(),
                Some(problem) => {
                    matches!(&warnings[..], [it] if it.starts_with(&format!("container {name} ")) && it.contains(&format!("in resources.{problem}")))
                }
            };
            assert!(is_expected, "{name} {changed}: {warnings:?}");
        }
    }
}

#[test]
fn an_image_may_get_its_digest() {
    const A: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    for (planned, found, is_same) in [
        ("r.test/x:1", format!("r.test/x:1@{A}"), true),
        ("r.test/x:1", format!("r.test/x@{A}"), true),
        ("r.test/x:1", format!("R.test:443/x@{A}"), true),
        ("r.test/x:1", format!("r.test/x:2@{A}"), false),
        ("r.test/x:1", "r.test/x:2".to_owned(), false),
        ("r.test/x:1", "r.test/x".to_owned(), false),
        ("r.test/x:1", format!("mirror.test/r.test/x:1@{A}"), false),
        ("r.test/x:1", format!("mirror.test/x:1@{A}"), false),
        ("r.test/x:1", format!("r.test/x-2:1@{A}"), false),
        ("r.test/x:1", format!("r.test/x:1@{A} "), false),
        ("r.test/x", format!("r.test/x:latest@{A}"), true),
        ("r.test/x", "r.test/x:latest".to_owned(), true),
        ("r.test/x", format!("r.test/x:1@{A}"), false),
        ("lucid/x:1", format!("index.docker.io/lucid/x:1@{A}"), true),
        ("lucid/x:1", "docker.io/lucid/x:1".to_owned(), true),
        ("lucid/x:1", format!("ghcr.io/lucid/x:1@{A}"), false),
        (&format!("r.test/x:1@{A}"), format!("r.test/x@{A}"), true),
        (&format!("r.test/x:1@{A}"), format!("r.test/x:1@{B}"), false),
        (&format!("r.test/x:1@{A}"), "r.test/x:1".to_owned(), false),
    ] {
        let yaml =
            format!("chain: [{{name: a, image: '{planned}'}}, {{name: lucid-egress, image: '{planned}'}}]");
        let mut configuration = configured(&yaml, &["a"]);
        configuration.init_image = planned.parse().unwrap();
        let original = injected_with(&pod(json!({keys::DIRECTION: "both"}), &[5000]), &configuration);
        for path in ["/spec/containers/1", "/spec/containers/2", "/spec/initContainers/0"] {
            let mut pod = original.clone();
            let container = pod.pointer_mut(path).unwrap();
            container["image"] = json!(found);
            let patch = patch_in(&pod, &configuration);
            assert_eq!(patch.is_empty(), is_same, "{path}: {planned} {found}: {patch:?}");
        }
    }
}

#[test]
fn a_digest_allows_pulling_if_not_present() {
    let pinned = "ghcr.io/lucid/lucid-guardrails-auditor@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let tag = "ghcr.io/lucid/lucid-guardrails-auditor:latest";
    for (image, policy, is_same) in [
        (pinned, "Always", true),
        (pinned, "IfNotPresent", true),
        (pinned, "Never", false),
        (tag, "IfNotPresent", false),
    ] {
        let mut pod = injected(&pod(json!({}), &[5000]));
        pod["spec"]["containers"][1]["image"] = json!(image);
        pod["spec"]["containers"][1]["imagePullPolicy"] = json!(policy);
        assert_eq!(patch_of(&pod).is_empty(), is_same, "{image} {policy}");
    }
}

#[test]
fn replanned_and_foreign_containers_are_distinguished() {
    let again = |difference: &str| {
        format!(
            "container lucid-injection-auditor is planned again, because its earlier plan is outdated: {difference} differs"
        )
    };
    let pod = |annotations| pod(annotations, &[5000, 9000]);
    let with_port =
        |port: &str| injected(&pod(json!({keys::AUDITORS: "injection", keys::TARGET_PORT: port})));

    let mut elsewhere = with_port("9000");
    elsewhere["metadata"]["annotations"][keys::TARGET_PORT] = json!("5000");
    assert_eq!(patch_warnings(&patch_of(&elsewhere)), [again("env \"LUCID_CHAIN_NEXT\"")]);

    let mut taken = with_port("9000");
    taken["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "proxy", "ports": [{"containerPort": 8090}]}));
    assert_eq!(patch_warnings(&patch_of(&taken)), [again("env \"LUCID_AUDITOR_PORT\"")]);

    let mut second = injected(&pod(json!({keys::AUDITORS: "toxicity,injection"})));
    second["metadata"]["annotations"][keys::AUDITORS] = json!("injection");
    assert_eq!(patch_warnings(&patch_of(&second)), [again("securityContext")]);

    let mut forged = with_port("9000");
    forged["metadata"]["annotations"][keys::TARGET_PORT] = json!("5000");
    forged["spec"]["containers"][1]["command"] = json!(["sleep"]);
    let said = patch_warnings(&patch_of(&forged));
    assert!(
        said[0].contains("is replaced: it has the name of an auditor and differs from it in command"),
        "{said:?}"
    );
}

#[test]
fn a_status_that_does_not_fit_is_omitted() {
    let status = keys::STATUS.len() + status_of(&injected(&pod(json!({"a": ""}), &[5000]))).len();
    let with = |size: usize| pod(json!({"a": "x".repeat(size - 1), keys::STATUS: "x".repeat(1000)}), &[5000]);
    let fits = with(256 * 1024 - status);
    assert!(patch_warnings(&patch_of(&fits)).is_empty());
    assert!(patch_of(&injected(&fits)).is_empty());
    let full = with(256 * 1024 - status + 1);
    let patch = patch_of(&full);
    assert_eq!(
        paths(&patch),
        [
            ("add", "/spec/containers/-"),
            ("add", "/spec/containers/-"),
            ("add", "/spec/volumes"),
            ("remove", STATUS_PATH)
        ],
        "the one that is there is somebody else's"
    );
    // A second plan does not know the additions, so its status would be shorter by their size.
    let fuller = with(256 * 1024 - status + 100);
    assert!(patch_of(&injected(&fuller)).is_empty());
    assert_eq!(
        patch_warnings(&patch),
        [
            "annotation lucid.computing/status is omitted: expected at most 262144 bytes of annotations, found 262145 with it"
        ]
    );
}

#[test]
fn a_forged_status_is_corrected() {
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
fn the_plan_hash_changes_with_every_setting() {
    let annotations = [
        json!({}),
        json!({keys::AUDITORS: "guardrails"}),
        json!({keys::AUDITORS: "injection,toxicity"}),
        json!({keys::AUDIT_MODE: "observe"}),
        json!({keys::DIRECTION: "outbound"}),
        json!({keys::TARGET_PORT: "5001"}),
    ];
    let mut hashes: Vec<_> =
        annotations.into_iter().map(|annotations| hash_of(&pod(annotations, &[5000]))).collect();
    assert_eq!(hashes[0], hash_of(&pod(json!({"other": "x"}), &[5000])));
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 6);
}

fn hash_of(pod: &Value) -> String {
    let status: Value = serde_json::from_str(status_of(&injected(pod))).unwrap();
    status["planHash"].as_str().unwrap().to_owned()
}

#[test]
fn the_chain_hash_changes_only_with_the_injected_parts() {
    let hash = hash_of(&pod(json!({}), &[5000]));
    assert_eq!(hash, "sha256:f3ad93ca1075f436e7add428dd86c07d414b4fae22f1a31270f94dbdc38d4c5d");
}
