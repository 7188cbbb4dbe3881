//! Invalid input never blocks a pod, never takes effect and always produces a warning.

use crate::common::*;
use lucid_chain::{Decision, Inputs, MAX_CHAIN, Plan, PodView, keys, plan};
use serde_json::{Value, json};

/// Annotations with a setting, and the expected values that their warnings name.
const SETTINGS: [(&str, &str); 8] = [
    (keys::AUDITOR_CHAIN, "lucid-injection-auditor|auditor names separated by commas|at most 128"),
    (keys::AUDITORS, "lucid-injection-auditor|auditor names separated by commas|at most 128"),
    (keys::AUDIT_MODE, r#"expected "enforce" or "observe""#),
    (keys::SKIP_AUDIT, r#"expected "true" or "false""#),
    (keys::TARGET_PORT, "expected a port from 1 to 65535"),
    (keys::DIRECTION, r#"expected "inbound", "outbound" or "both""#),
    (keys::SIDECAR_MODE, r#"expected "auto", "containers" or "native""#),
    (keys::INTERCEPT, r#"expected "redirect" or "env""#),
];

fn invalid_values() -> Vec<String> {
    let mut values: Vec<String> = [
        "",
        " ",
        "\t\n\r",
        ",",
        ",,,",
        " , ",
        "injection,",
        ",injection",
        "injection;toxicity",
        "injection toxicity",
        "0",
        "-1",
        "+1",
        "+80",
        "80 80",
        "８０",
        "sideways",
        "plain",
        "65536",
        "70000",
        "99999999999999999999",
        "5000.0",
        "0x1388",
        "5e3",
        "５０００",
        "5 000",
        "on",
        "yes",
        "1,,2",
        "TRUE",
        "True",
        "null",
        "{}",
        "[]",
        "\"true\"",
        "'enforce'",
        "Enforce",
        "OBSERVE",
        "inbound,outbound",
        "nativ",
        "iptables",
        "nft",
        "enforce\u{0}",
        "\u{0}",
        "\u{1b}[31mred",
        "\u{0}\n\r\u{1b}[31m\u{202e}",
        "a\u{202e}b",
        "\u{feff}true",
        "\u{200b}",
        "аудитор",
        "注入",
        "🦀",
        "e\u{301}",
        "$(PATH)",
        "${HOME}",
        "%s%n",
        "../../etc",
        "lucid-",
        "-auditor",
        "lucid--auditor",
        "lucid-injection-auditor-2",
        "Injection",
        "injektion",
        "\\",
        "\"",
    ]
    .map(str::to_owned)
    .to_vec();
    values.push("injection,".repeat(2 * MAX_CHAIN));
    values.push("\u{202e}".repeat(80));
    values
}

fn oversized_values() -> Vec<String> {
    vec![
        "x".repeat(256 * 1024 - 64),
        "🦀".repeat(64 * 1024 - 16),
        ",".repeat(256 * 1024 - 64),
        "injection,".repeat(26_000),
        "9".repeat(256 * 1024 - 64),
        " ".repeat(256 * 1024 - 64),
        "\"\\\n".repeat(80_000),
    ]
}

fn manifests(plan: &Plan) -> Vec<Value> {
    plan.containers
        .iter()
        .map(|planned| planned.manifest())
        .chain(plan.init.iter().map(|init| init.manifest()))
        .collect()
}

#[test]
fn invalid_annotations_are_ignored_with_a_warning() {
    let configuration = with_rules();
    let untouched = manifests(&planned_by(outcome_in(&pod(json!({}), &[5000]), &configuration, None)));
    for value in invalid_values().into_iter().chain(oversized_values()) {
        for (key, expected) in SETTINGS {
            let shown: String = value.chars().take(40).collect();
            let outcome = outcome_in(&pod(json!({key: value}), &[5000]), &configuration, None);
            let said = warnings(&outcome);
            let [warning] = &said[..] else { panic!("{key} {shown}: {said:?}") };
            assert!(warning.starts_with(&format!("annotation {key} is ignored: ")), "{warning}");
            assert!(expected.split('|').any(|expected| warning.contains(expected)), "{warning}");
            let start: String =
                shown.chars().take_while(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\')).collect();
            assert!(warning.contains(&format!("found \"{start}")), "{warning}");
            assert!(!warning.contains(char::is_control) && !warning.contains('\u{202e}'), "{warning}");
            // The API server truncates longer warnings if their total is too long.
            assert!(warning.chars().count() <= 256, "{} {warning}", warning.chars().count());
            let plan = planned_by(outcome);
            assert_eq!(manifests(&plan), untouched, "{key} {shown}");
        }
    }
}

#[test]
fn all_annotations_invalid_yields_the_default_chain() {
    let configuration = with_rules();
    let untouched = manifests(&planned_by(outcome_in(&pod(json!({}), &[5000]), &configuration, None)));
    for value in invalid_values() {
        let annotations: Value = SETTINGS
            .iter()
            .map(|(key, _)| ((*key).to_owned(), json!(value)))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let outcome = outcome_in(&pod(annotations, &[5000]), &configuration, None);
        let said = warnings(&outcome);
        for (key, _) in SETTINGS {
            assert_eq!(
                said.iter().filter(|warning| warning.contains(&format!("{key} is"))).count(),
                1,
                "{said:?}"
            );
        }
        assert_eq!(manifests(&planned_by(outcome)), untouched);
    }
}

#[test]
fn an_invalid_status_changes_nothing() {
    let honest = injected(&pod(json!({}), &[5000]));
    for value in invalid_values() {
        let forged = pod(json!({keys::STATUS: value}), &[5000]);
        assert_eq!(injected(&forged), honest);
    }
}

#[test]
fn a_repeated_name_yields_several_auditors() {
    let plan = planned(&pod(
        json!({keys::AUDITOR_CHAIN: "injection, lucid-injection-auditor,injection-auditor"}),
        &[5000],
    ));
    let names: Vec<_> = plan.containers.iter().map(|planned| planned.name.as_str()).collect();
    assert_eq!(names, ["lucid-injection-auditor", "lucid-injection-auditor-2", "lucid-injection-auditor-3"]);
}

#[test]
fn an_invalid_namespace_chain_names_config_map_and_key() {
    for value in invalid_values() {
        let error = namespace(&[(keys::CHAIN_KEY, &value)]).unwrap_err();
        assert!(error.starts_with("ConfigMap team-a/lucid-auditor-chain, chain: "), "{error}");
        assert!(!error.contains(char::is_control) && error.chars().count() <= 256, "{error}");
    }
}

#[test]
fn an_invalid_label_triggers_nothing_but_a_warning() {
    for value in invalid_values() {
        let mut pod = pod(json!({}), &[5000]);
        pod["metadata"]["labels"][keys::SECURED_LABEL] = json!(value);
        let outcome = outcome(&pod);
        assert_eq!(outcome.decision, Decision::NotRequested);
        let said = warnings(&outcome);
        let [warning] = &said[..] else { panic!("{said:?}") };
        assert!(
            warning.contains(keys::SECURED_LABEL) && warning.contains(r#"expected "true" or "false""#),
            "{warning}"
        );
        assert!(!warning.contains(char::is_control) && warning.chars().count() <= 256, "{warning}");
    }
}

#[test]
fn hostile_names_stay_out_of_messages() {
    let hostile = ["\u{0}\u{1b}[2J\n", "\u{202e}gpj.exe", &"x".repeat(253), &"\n".repeat(253), "a\"b'c", ""];
    for name in hostile {
        let container = |port: u16| {
            json!({"name": name, "image": name, name: {name: name},
                   "ports": [{"name": name, "containerPort": port}, {"name": "http", "containerPort": 8090}],
                   "env": [{"name": "AUDITOR_URL", "value": name}, {"name": name, "value": name}],
                   "readinessProbe": {"grpc": {"port": 8090}}})
        };
        let ours = |name: &str| {
            let mut container = container(1);
            container["name"] = json!(name);
            container
        };
        for direction in ["inbound", "both"] {
            let pod = json!({
                "metadata": {"labels": {keys::SECURED_LABEL: "true", name: name}, "annotations": {keys::DIRECTION: direction, name: name}},
                "spec": {"containers": [container(5000), ours("lucid-guardrails-auditor"), ours("lucid-guardrails-auditor-2")],
                         "initContainers": [container(8093), ours("lucid-init")], "imagePullSecrets": [{"name": name}],
                         "resources": {"limits": {name: "1"}}, "restartPolicy": name},
            });
            let configuration = with_rules();
            let outcome = outcome_in(&pod, &configuration, None);
            let mut said = warnings(&outcome);
            let plan = planned_by(outcome);
            let patch = patch_in(&pod, &configuration);
            said.push(setting(&plan, "model port"));
            said.extend(patch_warnings(&patch));
            said.extend(plan.containers.iter().map(|planned| planned.port_reason()));
            for message in said {
                assert!(!message.contains(char::is_control) && !message.contains('\u{202e}'), "{message:?}");
                assert!(message.chars().count() <= 256, "{} {message}", message.chars().count());
            }
            assert!(patch_in(&apply(&pod, &patch), &configuration).is_empty());
        }
        for pod in [
            json!({"metadata": {"labels": {name: 1}}}),
            json!({"spec": {"restartPolicy": [name], "containers": {name: name}}}),
            json!({"spec": {"containers": name}}),
            json!({"spec": {"containers": [{"ports": [{"containerPort": name}]}]}}),
        ] {
            let json = pod.to_string();
            let message = PodView::from_json(&json).unwrap_err().to_string();
            assert!(!message.contains(char::is_control) && !message.contains('\u{202e}'), "{message:?}");
            assert!(message.chars().count() <= 512, "{}", message.chars().count());
        }
    }
}

#[test]
fn duplicate_keys_of_known_fields_are_rejected() {
    for json in [
        r#"{"spec": {"containers": [], "containers": [{"name": "web"}]}}"#,
        r#"{"spec": {}, "spec": {"containers": []}}"#,
        r#"{"spec": {"containers": [{"name": "web", "name": "lucid-init"}]}}"#,
        r#"{"spec": {"containers": [{"ports": [{"containerPort": 1, "containerPort": 2}]}]}}"#,
        r#"{"metadata": {"labels": {}, "labels": {}}}"#,
    ] {
        assert!(PodView::from_json(json).is_err(), "{json}");
    }
    // The last of duplicate labels counts, as in the API server.
    let json = r#"{"metadata": {"labels": {"lucid.io/secured": "false", "lucid.io/secured": "true"}}, "spec": {"containers": [{"name": "a"}]}}"#;
    let configuration = builtin();
    let decision = plan(&PodView::from_json(json).unwrap(), &Inputs::new(&configuration)).decision;
    assert!(matches!(decision, Decision::Planned(_)));
}
