//! Network rules and native sidecars among the init containers.

use crate::common::*;
use lucid_chain::{Configuration, Inputs, PodView, keys, plan};
use serde_json::{Value, json};

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|container| container["name"].as_str().unwrap()).collect()
}

fn job(annotations: Value) -> Value {
    let mut pod = pod(annotations, &[5000]);
    pod["spec"]["restartPolicy"] = json!("Never");
    pod
}

const CHAIN: [&str; 2] = ["lucid-injection-auditor", "lucid-toxicity-auditor"];

#[test]
fn the_rules_follow_the_direction() {
    let cases = [
        (json!({}), r#""inbound":true,"outbound":[]"#),
        (json!({keys::DIRECTION: "outbound"}), r#""inbound":false,"outbound":[8000]"#),
        (json!({keys::DIRECTION: "both"}), r#""inbound":true,"outbound":[8000]"#),
    ];
    for (annotations, expected) in cases {
        let patched = injected_with(&pod(annotations, &[5000]), &with_rules());
        let plan = patched["spec"]["initContainers"][0]["env"][0]["value"].as_str().unwrap();
        assert!(plan.contains(expected), "{plan}");
    }
    let mut elsewhere = with_rules();
    elsewhere.overrides.outbound_port = 9000.try_into().ok();
    let patched = injected_with(&pod(json!({keys::DIRECTION: "both"}), &[5000]), &elsewhere);
    assert!(patched.to_string().contains(r#"\"outbound\":[9000]"#), "{patched}");
}

#[test]
fn a_pod_that_completes_gets_native_sidecars() {
    let cases = [
        ("Always", json!({}), "containers (restartPolicy of the pod)", 0),
        ("Never", json!({}), "native (restartPolicy of the pod)", 0),
        ("OnFailure", json!({keys::SIDECAR_MODE: "auto"}), "native (restartPolicy of the pod)", 0),
        ("Never", json!({keys::SIDECAR_MODE: "containers"}), "containers (annotation)", 1),
        ("Always", json!({keys::SIDECAR_MODE: "native"}), "native (annotation)", 0),
    ];
    for (restart_policy, annotations, mode, warned) in cases {
        let mut pod = pod(annotations, &[5000]);
        pod["spec"]["restartPolicy"] = json!(restart_policy);
        let outcome = outcome(&pod);
        let said = warnings(&outcome);
        assert_eq!(said.len(), warned, "{said:?}");
        assert!(
            said.iter().all(|warning| warning.contains("sidecar-mode") && warning.contains("\"native\""))
        );
        let plan = planned_by(outcome);
        assert_eq!(setting(&plan, "sidecar mode"), mode, "{pod}");
    }
}

#[test]
fn native_sidecars_start_first_unless_they_only_observe() {
    let pod = job(json!({keys::AUDITORS: "injection,toxicity"}));
    let patched = injected(&pod);
    assert_eq!(names(&patched["spec"]["initContainers"]), CHAIN);
    assert_eq!(names(&patched["spec"]["containers"]), ["web"]);
    let first = &patched["spec"]["initContainers"][0];
    assert_eq!(first["restartPolicy"], "Always");
    assert_eq!(
        first["startupProbe"],
        json!({
            "httpGet": {"path": "/health", "port": 8090, "scheme": "HTTP"},
            "timeoutSeconds": 1, "periodSeconds": 1, "successThreshold": 1, "failureThreshold": 120,
        })
    );
    let observed = injected(&job(json!({keys::AUDITORS: "injection", keys::AUDIT_MODE: "observe"})));
    assert_eq!(observed["spec"]["initContainers"][0]["restartPolicy"], "Always");
    assert_eq!(observed["spec"]["initContainers"][0]["startupProbe"], Value::Null);
}

#[test]
fn init_containers_of_the_pod_run_first() {
    let mut pod = job(json!({keys::AUDITORS: "injection,toxicity"}));
    pod["spec"]["initContainers"] =
        json!([{"name": "download"}, {"name": "proxy", "restartPolicy": "Always"}]);
    let patched = injected_with(&pod, &with_rules());
    let order = ["download", "proxy", CHAIN[0], CHAIN[1], "lucid-init"];
    assert_eq!(names(&patched["spec"]["initContainers"]), order);

    // If one of them is the model, the rules are installed before it starts.
    let model = json!({"name": "model", "restartPolicy": "Always", "ports": [{"containerPort": 5000}]});
    pod["spec"]["initContainers"] = json!([{"name": "download"}, model, {"name": "warm-up"}]);
    let patched = injected_with(&pod, &with_rules());
    let order = ["download", CHAIN[0], CHAIN[1], "lucid-init", "model", "warm-up"];
    assert_eq!(names(&patched["spec"]["initContainers"]), order);
}

#[test]
fn auditors_start_before_a_model_that_is_a_native_sidecar() {
    let model = |port: Value| {
        json!({"name": "serve", "restartPolicy": "Always", "ports": [port],
                                     "startupProbe": {"httpGet": {"path": "/health", "port": 8000}}})
    };
    let named = json!({"name": "model", "containerPort": 8000});
    let bare = json!({"containerPort": 8000});
    let other = json!({"name": "http", "containerPort": 15090});
    let told = json!({keys::TARGET_PORT: "8000", keys::AUDITORS: "injection,toxicity"});
    let untold = json!({keys::AUDITORS: "injection,toxicity"});
    let cases = [
        (untold.clone(), named.clone(), 8000, "native (the model, which is a native sidecar)"),
        (told.clone(), bare.clone(), 8000, "native (the model, which is a native sidecar)"),
        (told, other.clone(), 8000, "containers (restartPolicy of the pod)"),
        (untold.clone(), bare, 8000, "native (the model, which is a native sidecar)"),
        // The probe contradicts the only port.
        (untold.clone(), other, 5000, "containers (restartPolicy of the pod)"),
    ];
    for (annotations, port, expected, mode) in cases {
        let mut pod = pod(annotations, &[]);
        pod["spec"]["initContainers"] = json!([{"name": "download"}, model(port)]);
        let plan = planned_by(outcome_in(&pod, &with_rules(), None));
        assert_eq!((model_port(&plan), &*setting(&plan, "sidecar mode")), (expected, mode), "{pod}");
        let patched = injected_with(&pod, &with_rules());
        if mode == "native (the model, which is a native sidecar)" {
            let order = ["download", CHAIN[0], CHAIN[1], "lucid-init", "serve"];
            assert_eq!(names(&patched["spec"]["initContainers"]), order);
            let told = patched["spec"]["initContainers"][1]["env"].to_string();
            let is_probed = told.contains(r#"{"name":"LUCID_PROBE_PATHS","value":"/health"}"#);
            assert_eq!(is_probed, expected == 8000, "{told}");
        }
        assert!(patch_in(&patched, &with_rules()).is_empty());
    }

    // Plain containers on request, with a warning.
    let mut plain = pod(json!({keys::SIDECAR_MODE: "containers", keys::AUDITORS: "injection"}), &[]);
    plain["spec"]["initContainers"] = json!([model(named.clone())]);
    let outcome = outcome_in(&plain, &with_rules(), None);
    let said = warnings(&outcome);
    assert!(matches!(&said[..], [one] if one.contains("starts the auditors after the model")), "{said:?}");
    assert!(!planned_by(outcome).is_native());

    // A forged container with the name of a planned one does not count as the model, because it is replaced.
    let mut pod = pod(untold, &[5000]);
    for name in ["lucid-init", "lucid-injection-auditor", "lucid-injection-auditor-2"] {
        let forged = json!({"name": name, "restartPolicy": "Always", "ports": [named]});
        pod["spec"]["initContainers"] = json!([forged]);
        let patched = injected_with(&pod, &with_rules());
        assert!(patch_in(&patched, &with_rules()).is_empty(), "{patched}");
    }
}

#[test]
fn containers_of_another_injector_stay_in_place() {
    let pod = job(json!({keys::AUDITORS: "injection,toxicity"}));
    let mut patched = injected_with(&pod, &with_rules());
    let list = patched["spec"]["initContainers"].as_array_mut().unwrap();
    let hardened = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let container = |name: &str| json!({"name": name, "securityContext": hardened});
    list.insert(0, container("istio-init"));
    list.insert(2, container("between"));
    list.push(container("last"));
    assert!(patch_in(&patched, &with_rules()).is_empty(), "{patched}");
}

#[test]
fn missing_or_misplaced_init_containers_are_restored() {
    let original = injected_with(&job(json!({keys::AUDITORS: "injection,toxicity"})), &with_rules());
    let mut own = original.clone();
    own["spec"]["initContainers"].as_array_mut().unwrap().insert(0, json!({"name": "download"}));
    let moved = |name: &str| {
        format!("init container {name} is moved: it was after the model, or not in the order of the chain")
    };

    type Change = fn(&mut Vec<Value>);
    let cases: [(&str, Change, Vec<String>); 4] = [
        ("taken away", |list| drop(list.remove(2)), vec![]),
        ("all taken away", |list| list.truncate(1), vec![]),
        ("turned round", |list| list.swap(1, 2), [CHAIN[0], CHAIN[1], "lucid-init"].map(moved).to_vec()),
        (
            "rules first",
            |list| list[1..].rotate_right(1),
            [CHAIN[0], CHAIN[1], "lucid-init"].map(moved).to_vec(),
        ),
    ];
    for (what, change, warned) in cases {
        let mut pod = own.clone();
        change(pod["spec"]["initContainers"].as_array_mut().unwrap());
        let patch = patch_in(&pod, &with_rules());
        let said = patch_warnings(&patch);
        assert_eq!(said, warned, "{what}");
        let patched = apply(&pod, &patch);
        assert_eq!(
            names(&patched["spec"]["initContainers"]),
            names(&own["spec"]["initContainers"]),
            "{what}"
        );
        assert!(patch_in(&patched, &with_rules()).is_empty(), "{what}");
    }

    let model = json!({"name": "model", "restartPolicy": "Always", "ports": [{"containerPort": 5000}]});
    let mut late = original;
    late["spec"]["initContainers"].as_array_mut().unwrap().insert(0, model);
    let patched = injected_with(&late, &with_rules());
    assert_eq!(
        names(&patched["spec"]["initContainers"]),
        [CHAIN[0], CHAIN[1], "lucid-init", "model"],
        "{patched}"
    );
}

#[test]
fn a_foreign_init_container_with_the_name_is_replaced() {
    let original = injected_with(&job(json!({keys::AUDITORS: "injection"})), &with_rules());
    let cases = [
        (1, "image", json!("busybox"), "image"),
        (1, "env", json!([{"name": "LUCID_REDIRECT", "value": "{}"}]), "env \"LUCID_REDIRECT\""),
        (1, "command", json!(["true"]), "command"),
        (1, "restartPolicy", json!("Always"), "restartPolicy"),
        (0, "restartPolicy", Value::Null, "restartPolicy"),
        (0, "startupProbe", json!({"exec": {"command": ["true"]}}), "startupProbe"),
        (0, "lifecycle", json!({"preStop": {"sleep": {"seconds": 9}}}), "lifecycle"),
    ];
    for (place, key, value, difference) in cases {
        let mut pod = original.clone();
        pod["spec"]["initContainers"][place][key] = value;
        let patch = patch_in(&pod, &with_rules());
        let name = [CHAIN[0], "lucid-init"][place];
        assert_eq!(
            patch_warnings(&patch),
            [format!(
                "container {name} is replaced: it has the name of an auditor and differs from it in {difference}"
            )]
        );
        assert_eq!(apply(&pod, &patch), original);
    }
}

#[test]
fn rules_of_an_earlier_chain_are_replanned() {
    let mut pod = injected_with(&pod(json!({keys::AUDITORS: "injection"}), &[5000]), &with_rules());
    pod["metadata"]["annotations"][keys::AUDITORS] = json!("injection,toxicity");
    let patch = patch_in(&pod, &with_rules());
    let said = patch_warnings(&patch);
    let again = |name: &str, key: &str| {
        format!(
            "container {name} is planned again, because its earlier plan is outdated: env \"{key}\" differs"
        )
    };
    assert_eq!(said, [again(CHAIN[0], "LUCID_CHAIN_NEXT"), again("lucid-init", "LUCID_REDIRECT")]);
}

#[test]
fn pod_security_decides_if_intercept_is_not_set() {
    let configuration = with_rules();
    let chosen = |annotations: Value, name| {
        let json = pod(annotations, &[5000]).to_string();
        let view = PodView::from_json(&json).unwrap();
        let settings = level(name);
        let outcome = plan(&view, &Inputs { settings: &settings, ..Inputs::new(&configuration) });
        let said = warnings(&outcome);
        let plan = planned_by(outcome);
        let intercept = setting(&plan, "intercept");
        assert_eq!(plan.init.is_some(), intercept.starts_with("redirect "));
        (intercept, said)
    };
    let built_in = "redirect (built-in default)".to_owned();
    assert_eq!(chosen(json!({}), "privileged"), (built_in, vec![]));
    for level in ["baseline", "restricted"] {
        let (intercept, said) = chosen(json!({}), level);
        assert_eq!(intercept, format!("env (Pod Security level {level} of the namespace)"));
        assert!(
            said[0].contains(&format!("Pod Security level {level} of the namespace refuses NET_ADMIN")),
            "{said:?}"
        );
        assert_eq!(chosen(json!({keys::INTERCEPT: "env"}), level), ("env (annotation)".to_owned(), vec![]));
        let (intercept, said) = chosen(json!({keys::INTERCEPT: "redirect"}), level);
        assert_eq!(intercept, "redirect (annotation)");
        assert!(said[0].contains("expected \"env\""), "{said:?}");
    }
}

#[test]
fn an_unknown_level_counts_as_restricted() {
    let expected = level("restricted");
    assert!([level("privileged"), level("baseline")].iter().all(|other| *other != expected));
    assert_eq!(level("privileged"), settings([]));
    for value in ["Privileged", ""] {
        assert_eq!(level(value), expected, "{value:?}");
    }
}

#[test]
fn auditors_get_the_probe_paths_of_the_model() {
    let paths = |probes: Value, annotations: Value, configuration: &Configuration| {
        let mut pod = pod(annotations, &[]);
        let container = pod["spec"]["containers"][0].as_object_mut().unwrap();
        container.insert(
            "ports".to_owned(),
            json!([{"name": "http", "containerPort": 5000}, {"containerPort": 9000}]),
        );
        container.extend(probes.as_object().unwrap().clone());
        let outcome = outcome_in(&pod, configuration, None);
        let said = warnings(&outcome);
        let plan = planned_by(outcome);
        assert!(patch_in(&injected_with(&pod, configuration), configuration).is_empty());
        (variable(&plan.containers[0].manifest(), keys::PROBE_PATHS_ENV), said)
    };
    let get = |port: Value, path: &str| json!({"httpGet": {"port": port, "path": path}});
    let both = json!({"livenessProbe": get(json!(5000), "/live"), "readinessProbe": get(json!("http"), "/healthz?full=1"),
                      "startupProbe": get(json!("http"), "/live")});
    assert_eq!(
        paths(both.clone(), json!({}), &with_rules()),
        (Some("/healthz?full=1,/live".to_owned()), vec![])
    );
    assert_eq!(
        paths(both.clone(), json!({}), &builtin()).0,
        None,
        "without rules they do not meet the auditors"
    );
    let outbound = json!({keys::DIRECTION: "outbound", keys::TARGET_PORT: "5000"});
    assert_eq!(paths(both, outbound, &with_rules()).0, None);

    let nothing = [
        json!({"livenessProbe": get(json!(9000), "/live")}),
        json!({"livenessProbe": get(json!("other"), "/live")}),
        json!({"livenessProbe": get(json!(5000), "/a,b")}),
        json!({"livenessProbe": get(json!(5000), "/$(HOME)")}),
        json!({"livenessProbe": {"httpGet": {"port": 5000, "host": "10.0.0.1"}}}),
        json!({"livenessProbe": {"exec": {"command": ["true"]}}}),
        json!({"livenessProbe": {"tcpSocket": {"port": 5000}}}),
        json!({"livenessProbe": null}),
    ];
    for probes in nothing {
        assert_eq!(paths(probes.clone(), json!({}), &with_rules()), (None, vec![]), "{probes}");
    }
    let root = json!({"livenessProbe": {"httpGet": {"port": 5000}}});
    assert_eq!(paths(root, json!({}), &with_rules()).0.as_deref(), Some("/"));
    let plain = json!({"livenessProbe": {"httpGet": {"port": 5000, "scheme": "HTTP"}}});
    assert_eq!(paths(plain, json!({}), &with_rules()), (Some("/".to_owned()), vec![]));
    let unlike = [
        (
            json!({"grpc": {"port": 5000}}),
            r#"a grpc probe of container "web" goes to port 5000 and so to the first auditor: it succeeds only if that forwards gRPC"#,
        ),
        (
            json!({"httpGet": {"port": 5000, "path": "/live", "scheme": "HTTPS"}}),
            r#"an https probe of container "web" goes to port 5000 and so to the first auditor: it succeeds only if that speaks TLS"#,
        ),
    ];
    for (probe, warning) in unlike {
        let (found, said) = paths(json!({"livenessProbe": probe}), json!({}), &with_rules());
        assert_eq!(found, None, "{probe}");
        assert_eq!(said, [warning]);
    }
}

#[test]
fn pull_secrets_are_added_to_those_of_the_pod() {
    let mut configuration = builtin();
    configuration.image_pull_secrets = vec!["mirror".to_owned(), "registry".to_owned()];
    let cases = [
        (Value::Null, json!([{"name": "mirror"}, {"name": "registry"}])),
        (json!([]), json!([{"name": "mirror"}, {"name": "registry"}])),
        (json!([{"name": "registry"}]), json!([{"name": "registry"}, {"name": "mirror"}])),
        (
            json!([{"name": "own"}, {}]),
            json!([{"name": "own"}, {}, {"name": "mirror"}, {"name": "registry"}]),
        ),
    ];
    for (own, expected) in cases {
        let mut pod = pod(json!({}), &[5000]);
        pod["spec"]["imagePullSecrets"] = own;
        let patched = injected_with(&pod, &configuration);
        assert_eq!(patched["spec"]["imagePullSecrets"], expected);
        assert!(patch_in(&patched, &configuration).is_empty());
    }
}

#[test]
fn the_status_records_additions_permanently() {
    let mut configuration = with_rules();
    configuration.image_pull_secrets = vec!["mirror".to_owned()];
    let added = |pod: &Value| -> Value {
        let status = pod["metadata"]["annotations"][keys::STATUS].as_str().unwrap();
        serde_json::from_str::<Value>(status).unwrap()["added"].clone()
    };
    let mut pod = pod(json!({keys::DIRECTION: "both"}), &[5000]);
    let all = json!([
        "/spec/containers/web/env",
        "/spec/containers/web/env/AUDITOR_URL",
        "/spec/imagePullSecrets",
        "/spec/imagePullSecrets/mirror",
        "/spec/initContainers",
        "/spec/volumes",
        "/spec/volumes/lucid-no-token",
    ]);
    let patched = injected_with(&pod, &configuration);
    assert_eq!(added(&patched), all);
    assert!(patch_in(&patched, &configuration).is_empty());

    pod["spec"]["initContainers"] = json!([]);
    pod["spec"]["imagePullSecrets"] = json!([{"name": "mirror"}]);
    pod["spec"]["containers"][0]["env"] = json!([]);
    pod["spec"]["volumes"] = json!([]);
    let few = json!(["/spec/containers/web/env/AUDITOR_URL", "/spec/volumes/lucid-no-token"]);
    assert_eq!(added(&injected_with(&pod, &configuration)), few);

    // A forged status gains nothing: only additions that injection makes to this pod are kept.
    pod["spec"]["containers"][0]["env"] = json!([{"name": "AUDITOR_URL", "value": "http://localhost:8090"}]);
    let forged = json!({"added": ["/spec", "/spec/containers/web", "/spec/containers/web/env/AUDITOR_URL"]})
        .to_string();
    pod["metadata"]["annotations"][keys::STATUS] = json!(forged);
    assert_eq!(added(&injected_with(&pod, &configuration)), few);
}

#[test]
fn probes_follow_the_catalogue_and_the_audit_mode() {
    let yaml = "chain: [{name: topics, image: topics, probes: {readiness: {}, liveness: {path: /live}, startup: {failureThreshold: 9}}}]";
    let configuration = without_rules(configured(yaml, &["topics"]));
    for mode in ["containers", "native"] {
        for (audit_mode, expected) in [
            ("enforce", &["livenessProbe", "readinessProbe", "startupProbe"][..]),
            ("observe", &["livenessProbe"][..]),
        ] {
            let pod = pod(json!({keys::SIDECAR_MODE: mode, keys::AUDIT_MODE: audit_mode}), &[5000]);
            let manifest = planned_by(outcome_in(&pod, &configuration, None)).containers[0].manifest();
            let mut probes: Vec<_> =
                manifest.as_object().unwrap().keys().filter(|key| key.ends_with("Probe")).collect();
            probes.sort();
            assert_eq!(probes, expected, "{mode} {audit_mode}");
            assert_eq!(
                manifest["livenessProbe"]["httpGet"],
                json!({"path": "/live", "port": 8080, "scheme": "HTTP"})
            );
            let patched = injected_with(&pod, &configuration);
            assert!(patch_in(&defaulted(&patched), &configuration).is_empty());
        }
    }
}

#[test]
fn app_armor_annotations_of_auditors_are_removed() {
    let ours = "container.apparmor.security.beta.kubernetes.io/lucid-injection-auditor";
    let theirs = "container.apparmor.security.beta.kubernetes.io/web";
    let pod = pod(json!({keys::AUDITORS: "injection", ours: "unconfined", theirs: "unconfined"}), &[5000]);
    let patch = patch_in(&pod, &builtin());
    let said = patch_warnings(&patch);
    assert_eq!(
        said,
        [format!("annotation {ours} is removed: pods cannot set the AppArmor profile of an auditor")]
    );
    let patched = apply(&pod, &patch);
    assert_eq!(patched["metadata"]["annotations"][ours], Value::Null);
    assert_eq!(patched["metadata"]["annotations"][theirs], "unconfined");
    assert!(patch_in(&patched, &builtin()).is_empty());
}

#[test]
fn leftover_rules_of_a_copied_pod_are_reported() {
    let mut copied = injected_with(&pod(json!({keys::AUDITORS: "injection"}), &[5000]), &with_rules());
    copied["metadata"]["annotations"][keys::INTERCEPT] = json!("env");
    let outcome = outcome_in(&copied, &with_rules(), None);
    assert_eq!(
        warnings(&outcome),
        [
            r#"init container "lucid-init" installs network rules of another chain, which lead elsewhere: remove it"#
        ]
    );
    assert!(planned_by(outcome).init.is_none());
}
