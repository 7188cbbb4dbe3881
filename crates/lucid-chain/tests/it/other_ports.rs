//! Ports that are neither guarded nor listed.

use crate::common::*;
use lucid_chain::{Configuration, Inputs, Outcome, PodView, keys, plan};
use serde_json::{Value, json};

fn outcome_of(pod: &Value, of_namespace: &str, configuration: &Configuration) -> Outcome {
    let json = pod.to_string();
    let settings = settings([(keys::OTHER_PORTS, of_namespace)]);
    let inputs = Inputs { settings: &settings, ..Inputs::new(configuration) };
    plan(&PodView::from_json(&json).unwrap(), &inputs)
}

fn model(annotations: Value) -> Value {
    let mut pod = pod(annotations, &[5000, 9090]);
    pod["spec"]["containers"][0]["ports"][0]["name"] = json!("model");
    pod
}

/// Returns the open ports of the rules: `None` if the pod closes none.
fn rules(outcome: Outcome) -> Option<Vec<u64>> {
    let redirect = redirect_of(&planned_by(outcome)).to_json();
    let redirect: Value = serde_json::from_str(&redirect).unwrap();
    Some(redirect["open"].as_array()?.iter().map(|port| port.as_u64().unwrap()).collect())
}

#[test]
fn the_stricter_of_pod_and_namespace_applies() {
    let (open, closed) = ("open", "closed");
    for (of_pod, of_namespace, closes) in [
        (None, open, false),
        (Some("open"), open, false),
        (Some("closed"), open, true),
        (Some(" closed "), open, true),
        (Some("shut"), open, false),
        (None, closed, true),
        (Some("open"), closed, true),
        (Some("closed"), closed, true),
        (Some("shut"), closed, true),
    ] {
        let annotations = of_pod.map_or(json!({}), |value| json!({keys::OTHER_PORTS: value}));
        let outcome = outcome_of(&model(annotations), of_namespace, &with_rules());
        let said = warnings(&outcome);
        assert_eq!(rules(outcome), closes.then(Vec::new), "{of_pod:?} {of_namespace}");
        let ignored = said.iter().any(|it| it.contains("annotation lucid.computing/other-ports is ignored"));
        let expected = of_pod == Some("shut") || (of_pod == Some("open") && of_namespace == closed);
        assert_eq!(ignored, expected, "{of_pod:?} {of_namespace}: {said:?}");
    }
}

#[test]
fn the_annotation_of_the_namespace_is_read_strictly() {
    let read = |value: &str| settings([(keys::OTHER_PORTS, value)]);
    assert_eq!(read("open"), settings([]));
    assert_eq!(read(" closed "), read("closed"));
    assert_ne!(read("closed"), settings([]));
    for value in ["", "Closed", "true"] {
        let found = read(value);
        assert!(
            planned_by(outcome_of(&model(json!({})), value, &with_rules()))
                .settings()
                .iter()
                .any(|[name, _, source]| name == "open ports" && source.contains("closed"))
        );
        let expected = format!(
            r#"lucid.computing/other-ports: expected "open" or "closed", found "{value}"; "closed" applies"#
        );
        assert_eq!(found.problems(), [expected]);
    }
}

#[test]
fn listed_ports_stay_open() {
    for (list, open) in [
        ("9090", Some(&[9090][..])),
        (" 9091, 9090 ", Some(&[9090, 9091])),
        // The model's port and those of auditors lead to the chain anyway.
        ("5000,8090,8093,9090", Some(&[9090])),
        ("", None),
        ("9090,", None),
        ("0", None),
        ("65536", None),
        ("metrics", None),
    ] {
        let annotations = json!({keys::OTHER_PORTS: "closed", keys::OPEN_PORTS: list});
        let outcome = outcome_of(&model(annotations), "open", &with_rules());
        let said = warnings(&outcome);
        let is_ignored = said.iter().any(|it| {
            it.contains("annotation lucid.computing/open-ports is ignored")
                && it.contains("expected a port from 1 to 65535, or up to 8 such as 8080,8085")
        });
        assert_eq!(is_ignored, open.is_none(), "{list}: {said:?}");
        assert_eq!(rules(outcome), Some(open.unwrap_or_default().to_vec()), "{list}");
    }
    let list = |count: u16| (1..=count).map(|port| port.to_string()).collect::<Vec<_>>().join(",");
    for (count, opens) in [(8, 8), (9, 0)] {
        let annotations = json!({keys::OTHER_PORTS: "closed", keys::OPEN_PORTS: list(count)});
        let outcome = outcome_of(&model(annotations), "open", &with_rules());
        assert_eq!(rules(outcome).unwrap().len(), opens);
    }

    // In a pod that closes none, the list has no effect.
    let outcome = outcome_of(&model(json!({keys::OPEN_PORTS: "9090"})), "open", &with_rules());
    assert_eq!(warnings(&outcome), Vec::<String>::new());
    assert_eq!(rules(outcome), None);
}

#[test]
fn ports_that_the_kubelet_calls_stay_open() {
    let mut pod = model(json!({keys::OTHER_PORTS: "closed"}));
    pod["spec"]["containers"][0]["readinessProbe"] = json!({"httpGet": {"path": "/", "port": 5000}});
    pod["spec"]["containers"][0]["livenessProbe"] = json!({"httpGet": {"path": "/", "port": 8081}});
    pod["spec"]["containers"][0]["startupProbe"] = json!({"tcpSocket": {"port": "admin"}});
    pod["spec"]["containers"][0]["ports"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "admin", "containerPort": 8082}));
    pod["spec"]["containers"][0]["lifecycle"] =
        json!({"preStop": {"httpGet": {"path": "/quit", "port": 8083}}});
    pod["spec"]["containers"].as_array_mut().unwrap().push(json!({
        "name": "other",
        "image": "registry.example/other:1",
        "readinessProbe": {"httpGet": {"host": "example.com", "port": 8084}},
        "livenessProbe": {"exec": {"command": ["true"]}},
    }));
    pod["spec"]["initContainers"] = json!([
        {
            "name": "mesh",
            "image": "registry.example/mesh:1",
            "restartPolicy": "Always",
            "readinessProbe": {"grpc": {"port": 15021}},
        },
        {"name": "once", "image": "registry.example/once:1", "lifecycle": null},
    ]);
    let open = [8081, 8082, 8083, 15021];
    assert_eq!(rules(outcome_of(&pod, "open", &with_rules())), Some(open.to_vec()));
    // Probes of the injected auditors are not among them.
    let injected = injected_with(&pod, &with_rules());
    assert_eq!(rules(outcome_of(&injected, "open", &with_rules())), Some(open.to_vec()));

    let plan = planned_by(outcome_of(&pod, "open", &with_rules()));
    assert_eq!(
        setting(&plan, "open ports"),
        "8081 (probe or hook of container web), 8082 (probe or hook of container web), \
         8083 (probe or hook of container web), 15021 (probe or hook of container mesh) \
         (other ports closed (annotation))"
    );
}

#[test]
fn unaudited_ports_of_an_open_pod_are_reported() {
    let open_ports = |outcome| setting(&planned_by(outcome), "open ports");
    let mut pod = model(json!({}));
    pod["spec"]["containers"][0]["ports"]
        .as_array_mut()
        .unwrap()
        .push(json!({"containerPort": 9999, "protocol": "UDP"}));
    let outcome = outcome_of(&pod, "open", &with_rules());
    assert_eq!(
        open_ports(outcome.clone()),
        "9090 (declared by container web) (other ports open (built-in default))"
    );
    assert_eq!(rules(outcome), None);
    // Without rules, the model's port is also open.
    let both = "5000 (declared by container web), 9090 (declared by container web) (intercept env)";
    assert_eq!(open_ports(outcome_of(&pod, "open", &builtin())), both);
    assert_eq!(open_ports(outcome_of(&pod, "closed", &builtin())), both);
}

#[test]
fn ports_that_stay_open_without_rules_are_reported() {
    let message = |source: &str| {
        format!(
            "lucid.computing/other-ports: \"closed\" ({source}) needs network rules and closes no port: expected \
             lucid.computing/intercept: \"redirect\", found \"env\" (operator configuration)"
        )
    };
    let closed = model(json!({keys::OTHER_PORTS: "closed"}));
    assert!(warnings(&outcome_of(&closed, "open", &builtin())).contains(&message("annotation")));
    let outcome = outcome_of(&model(json!({})), "closed", &builtin());
    assert!(warnings(&outcome).contains(&message("annotation of the namespace")), "{outcome:?}");
    assert!(outcome.warnings.iter().any(|warning| warning.reason() == "PortsNotClosed"));
    assert_eq!(warnings(&outcome_of(&model(json!({})), "open", &builtin())), Vec::<String>::new());
}

#[test]
fn a_chain_for_outbound_traffic_closes_the_model_as_well() {
    let pod = model(json!({keys::OTHER_PORTS: "closed", keys::DIRECTION: "outbound"}));
    let plan = planned_by(outcome_of(&pod, "open", &with_rules()));
    assert_eq!(setting(&plan, "direction"), "outbound (annotation)");
    assert_eq!(setting(&plan, "open ports"), "none (other ports closed (annotation))");
    let listed = json!({keys::OTHER_PORTS: "closed", keys::DIRECTION: "outbound", keys::OPEN_PORTS: "5000"});
    assert_eq!(rules(outcome_of(&model(listed), "open", &with_rules())), Some(vec![5000]));
}
