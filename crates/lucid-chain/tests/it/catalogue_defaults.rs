//! The `defaults` of a catalogue.

use std::collections::BTreeMap;

use lucid_chain::{
    Catalogue, Configuration, Intercept, NamespaceChain, NamespaceSettings, SidecarMode, keys,
};
use serde_json::{Value, json};

use crate::common::{configured, outcome_in, parsed, planned_by, pod, refusal};

fn defaults(yaml: &str) -> BTreeMap<&'static str, String> {
    let catalogue = Catalogue::parse("auditors.yaml", yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"));
    catalogue.defaults()
}

#[test]
fn a_catalogue_sets_only_the_defaults_it_contains() {
    assert!(Catalogue::builtin().defaults().is_empty());
    assert!(defaults("chain: [{name: a, image: a}]").is_empty());
    let all = defaults(
        "chain: [{name: a, image: a}]
defaults:
  audit-mode: observe
  direction: both
  target-port: 8000
  sidecar-mode: native
  intercept: env
  outbound-port: 11434
",
    );
    let expected = [
        ("audit-mode", "observe"),
        ("direction", "both"),
        ("target-port", "8000"),
        ("sidecar-mode", "native"),
        ("intercept", "env"),
        ("outbound-port", "11434"),
    ];
    assert_eq!(all, expected.map(|(key, value)| (key, value.to_owned())).into());
}

#[test]
fn a_file_may_consist_of_defaults() {
    for yaml in ["defaults: {direction: outbound}", "defaults: {}", "defaults:\n", "defaults: {}\n---\n"] {
        let catalogue = parsed(yaml);
        assert!(catalogue.auditors().is_empty(), "{yaml}");
    }
    assert_eq!(defaults("defaults: {direction: outbound}")["direction"], "outbound");
}

#[test]
fn an_overlay_replaces_only_its_own_defaults() {
    let catalogue = |yaml| parsed(yaml);
    let cluster =
        catalogue("defaults: {audit-mode: observe, direction: both, target-port: 1, intercept: env}");
    let namespace = catalogue("defaults: {audit-mode: enforce, sidecar-mode: auto, outbound-port: 2}");
    let over = cluster.overlay(&namespace);
    assert_eq!(
        over.defaults(),
        defaults(
            "defaults: {audit-mode: enforce, direction: both, target-port: 1, intercept: env, sidecar-mode: auto, outbound-port: 2}"
        )
    );
    assert_eq!(over.overlay(&Catalogue::builtin()).defaults(), over.defaults());
    let reversed = namespace.overlay(&cluster);
    assert_eq!(reversed.defaults()["audit-mode"], "observe");
    assert_eq!(reversed.defaults()["outbound-port"], "2");
}

#[test]
fn every_value_of_a_setting_round_trips() {
    for value in ["auto", "containers", "native"] {
        let mode: SidecarMode = value.parse().unwrap();
        assert_eq!(mode.to_string(), value);
    }
    for value in ["redirect", "env"] {
        let intercept: Intercept = value.parse().unwrap();
        assert_eq!(intercept.to_string(), value);
    }
    assert_eq!(SidecarMode::default(), SidecarMode::Auto);
}

#[test]
fn default_resources_are_those_of_containers_without_their_own() {
    let storage = |size: &str| format!("resources: {{requests: {{cpu: 150m, ephemeral-storage: {size}}}}}");
    let of = |yaml: &str| {
        let catalogue = Catalogue::builtin().overlay(&parsed(yaml));
        let chain = ["injection".to_owned(), "toxicity".to_owned()];
        let configuration = Configuration::new(catalogue, Some(&chain)).unwrap();
        let pod = pod(json!({keys::DIRECTION: "both"}), &[5000]);
        let plan = planned_by(outcome_in(&pod, &configuration, None));
        let auditors = plan.containers.iter().map(|planned| planned.manifest());
        let manifests = auditors.chain(plan.init.iter().map(|init| init.manifest()));
        let requests = manifests.map(|manifest| {
            let requests = &manifest["resources"]["requests"];
            format!("{} {}", requests["memory"], requests["ephemeral-storage"]).replace('"', "")
        });
        requests.collect::<Vec<_>>()
    };
    let [defaults, own] = [storage("1Gi"), storage("2Gi")];
    for (yaml, expected) in [
        ("defaults: {direction: both}".to_owned(), ["128Mi null", "128Mi null", "128Mi null", "32Mi null"]),
        (format!("defaults: {{{defaults}}}"), ["null 1Gi"; 4]),
        (
            format!("{{chain: [{{name: toxicity, {own}}}], defaults: {{{defaults}}}}}"),
            ["null 1Gi", "null 2Gi", "null 1Gi", "null 1Gi"],
        ),
        (
            format!(
                "{{chain: [{{name: lucid-egress, {own}}}, {{name: lucid-init, {own}}}], defaults: {{{defaults}}}}}"
            ),
            ["null 1Gi", "null 1Gi", "null 2Gi", "null 2Gi"],
        ),
        (
            format!("chain: [{{name: lucid-init, description: rules, {own}}}]"),
            ["128Mi null", "128Mi null", "128Mi null", "null 2Gi"],
        ),
    ] {
        assert_eq!(of(&yaml), expected, "{yaml}");
    }
}

#[test]
fn the_namespace_takes_precedence_over_resources_of_the_cluster() {
    let requests = |cpu: &str| format!("resources: {{requests: {{cpu: {cpu}}}}}");
    let cluster =
        format!("{{chain: [{{name: lucid-init, {}}}], defaults: {{{}}}}}", requests("1"), requests("2"));
    for (own, init, auditor) in [
        ("defaults: {audit-mode: observe}".to_owned(), "1", "2"),
        (format!("defaults: {{{}}}", requests("3")), "1", "3"),
        (format!("chain: [{{name: lucid-init, {}}}]", requests("4")), "4", "2"),
        ("chain: [{name: lucid-init}]".to_owned(), "1", "2"),
    ] {
        let configuration = configured(&cluster, &["injection"]);
        let data = BTreeMap::from([
            ("auditors.yaml".to_owned(), own.clone()),
            ("chain".to_owned(), "injection".to_owned()),
        ]);
        let namespace =
            NamespaceChain::from_data("a", &data, configuration.catalogue(), &NamespaceSettings::default())
                .unwrap();
        let plan = planned_by(outcome_in(&pod(json!({}), &[5000]), &configuration, Some(&namespace)));
        let cpu = |manifest: Value| manifest["resources"]["requests"]["cpu"].clone();
        assert_eq!(cpu(plan.init.unwrap().manifest()), init, "{own}");
        assert_eq!(cpu(plan.containers[0].manifest()), auditor, "{own}");
    }
}

#[test]
fn an_entry_of_the_init_container_has_only_resources() {
    for (key, value) in [("image", "a"), ("port", "1"), ("env", "{A: b}"), ("serviceAccountToken", "true")] {
        let message = refusal(&format!("chain: [{{name: lucid-init, resources: {{}}, {key}: {value}}}]"));
        let says = format!("expected only name, description, resources; found `{key}`");
        assert!(message.contains(&says), "{message}");
    }
    assert!(Catalogue::builtin().resolve("lucid-init").is_err());
    assert!(parsed("chain: [{name: lucid-init, resources: {}}]").auditors().is_empty());
}
