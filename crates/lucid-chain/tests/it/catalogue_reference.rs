//! The reference of `auditors.yaml` matches the implementation.

use std::collections::BTreeSet;

use lucid_chain::{AuditMode, Catalogue, Direction, Intercept, SidecarMode};

use serde_json::Value;

use crate::common::{manifest, manifests, parsed, refusal};

const PAGE: &str = include_str!("../../../../docs/auditors-yaml.md");

fn blocks() -> Vec<(&'static str, &'static str)> {
    let blocks = PAGE.split("\n```").skip(1).step_by(2);
    blocks.map(|block| block.split_once('\n').unwrap()).collect()
}

#[test]
fn every_example_is_accepted_or_rejected_as_documented() {
    let blocks = blocks();
    let (mut read, mut refused) = (0, 0);
    for (place, (kind, text)) in blocks.iter().enumerate() {
        match *kind {
            "yaml" => {
                Catalogue::parse("auditors.yaml", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
                read += 1;
            }
            "yaml refused" => {
                assert_eq!(refusal(text), format!("auditors.yaml: {}", blocks[place + 1].1));
                refused += 1;
            }
            "text" => {}
            other => panic!("a block of the kind {other:?}"),
        }
    }
    assert!(read >= 4 && refused >= 2, "{read} read, {refused} refused");
}

#[test]
fn every_known_key_is_documented() {
    let rows: BTreeSet<_> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(key, _)| key)
        .collect();
    let mut keys = BTreeSet::new();
    for yaml in [
        "x: 1",
        "chain: [{x: 1}]",
        "chain: [{env: {A: {valueFrom: {x: 1}}}}]",
        "chain: [{env: {A: {valueFrom: {secretKeyRef: {x: 1}}}}}]",
        "chain: [{files: [{x: 1}]}]",
        "chain: [{resources: {x: 1}}]",
        "chain: [{probes: {x: 1}}]",
        "chain: [{probes: {readiness: {x: 1}}}]",
        "chain: [{securityContext: {x: 1}}]",
        "defaults: {x: 1}",
    ] {
        let message = refusal(yaml);
        let (_, expected) = message.split_once("expected ").unwrap();
        keys.extend(expected.trim_start_matches("one of ").split(", ").map(str::to_owned));
    }
    let keys: BTreeSet<_> = keys.iter().map(String::as_str).collect();
    assert_eq!(keys, rows);
}

#[test]
fn probe_defaults_match_the_table() {
    let cells = |key: &str| {
        let start = format!("| `{key}` |");
        let row = PAGE.lines().find(|line| line.starts_with(&start)).unwrap();
        let cells: Vec<_> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        (cells[2].to_owned(), cells[3].to_owned())
    };
    let container = manifest("probes: {readiness: {}, startup: {}}");
    let (probe, startup) = (&container["readinessProbe"], &container["startupProbe"]);
    let path = |probe: &Value| probe["httpGet"]["path"].as_str().unwrap().to_owned();
    assert_eq!(cells("path"), (path(probe), path(startup)));
    for key in
        ["initialDelaySeconds", "periodSeconds", "timeoutSeconds", "successThreshold", "failureThreshold"]
    {
        let number = |probe: &Value| probe[key].as_u64().unwrap_or_default().to_string();
        assert_eq!(cells(key), (number(probe), number(startup)), "{key}");
    }
}

#[test]
fn the_first_example_has_the_documented_meaning() {
    let catalogue = parsed(blocks()[0].1);
    let container = &manifests(blocks()[0].1)[0];
    assert_eq!(container["readinessProbe"]["periodSeconds"], 5);
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/live");
    assert_eq!(container["startupProbe"]["failureThreshold"], 300);
    assert_eq!(container["securityContext"]["runAsGroup"], 30_000);
    let expected = [("audit-mode", "observe".to_owned()), ("direction", "both".to_owned())];
    assert_eq!(catalogue.defaults(), expected.into());
}

#[test]
fn values_of_settings_match_the_table() {
    let errors = [
        ("audit-mode", "".parse::<AuditMode>().unwrap_err()),
        ("direction", "".parse::<Direction>().unwrap_err()),
        ("sidecar-mode", "".parse::<SidecarMode>().unwrap_err()),
        ("intercept", "".parse::<Intercept>().unwrap_err()),
    ];
    for (key, error) in errors {
        let error = error.to_string();
        let (expected, _) = error.split_once(", found").unwrap();
        let values: Vec<_> =
            expected.split('"').skip(1).step_by(2).map(|value| format!("`{value}`")).collect();
        let start = format!("| `{key}` |");
        let row = PAGE.lines().find(|line| line.starts_with(&start)).unwrap();
        assert!(row.ends_with(&format!("| {} |", values.join(", "))), "{row}");
    }
}

#[test]
fn json_is_accepted_and_merge_keys_are_not() {
    let json = r#"{"chain": [{"name": "a", "image": "a", "port": 1, "probes": {"readiness": {"periodSeconds": 2}},
        "securityContext": {"privileged": false}}], "defaults": {"target-port": 3}}"#;
    assert_eq!(manifests(json)[0]["readinessProbe"]["periodSeconds"], 2);
    assert!(refusal("chain: [{name: a, image: a, <<: {port: 1}}]").contains(r#"unknown key "<<""#));
}
