//! The `defaults` of a catalogue.

use lucid_chain::{AuditMode, Catalogue, Defaults, Direction, Intercept, SidecarMode};

use crate::common::parsed;

fn defaults(yaml: &str) -> Defaults {
    let catalogue = Catalogue::parse("auditors.yaml", yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"));
    catalogue.defaults().clone()
}

#[test]
fn a_catalogue_sets_only_the_written_defaults() {
    assert_eq!(*Catalogue::builtin().defaults(), Defaults::default());
    assert_eq!(defaults("chain: [{name: a, image: a}]"), Defaults::default());
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
    assert_eq!(all.audit_mode, Some(AuditMode::Observe));
    assert_eq!(all.direction, Some(Direction::Both));
    assert_eq!(all.target_port, "8000".parse().ok());
    assert_eq!(all.sidecar_mode, Some(SidecarMode::Native));
    assert_eq!(all.intercept, Some(Intercept::Env));
    assert_eq!(all.outbound_port.map(u16::from), Some(11434));
}

#[test]
fn a_file_may_consist_of_defaults() {
    for yaml in ["defaults: {direction: outbound}", "defaults: {}", "defaults:\n", "defaults: {}\n---\n"] {
        let catalogue = parsed(yaml);
        assert!(catalogue.auditors().is_empty(), "{yaml}");
    }
    assert_eq!(defaults("defaults: {direction: outbound}").direction, Some(Direction::Outbound));
}

#[test]
fn an_overlay_replaces_only_its_own_defaults() {
    let catalogue = |yaml| parsed(yaml);
    let cluster =
        catalogue("defaults: {audit-mode: observe, direction: both, target-port: 1, intercept: env}");
    let namespace = catalogue("defaults: {audit-mode: enforce, sidecar-mode: auto, outbound-port: 2}");
    let over = cluster.overlay(&namespace);
    assert_eq!(
        *over.defaults(),
        defaults(
            "defaults: {audit-mode: enforce, direction: both, target-port: 1, intercept: env, sidecar-mode: auto, outbound-port: 2}"
        )
    );
    assert_eq!(over.overlay(&Catalogue::builtin()).defaults(), over.defaults());
    let reversed = namespace.overlay(&cluster);
    assert_eq!(reversed.defaults().audit_mode, Some(AuditMode::Observe));
    assert_eq!(reversed.defaults().outbound_port.map(u16::from), Some(2));
}

#[test]
fn every_value_of_a_setting_round_trips() {
    for value in ["auto", "containers", "native"] {
        let mode: SidecarMode = value.parse().unwrap();
        assert_eq!((mode.to_string(), mode.as_str()), (value.to_owned(), value));
        assert!(SidecarMode::ACCEPTED.contains(&format!("{value:?}")));
    }
    for value in ["redirect", "env"] {
        let intercept: Intercept = value.parse().unwrap();
        assert_eq!((intercept.to_string(), intercept.as_str()), (value.to_owned(), value));
        assert!(Intercept::ACCEPTED.contains(&format!("{value:?}")));
    }
    assert_eq!(SidecarMode::default(), SidecarMode::Auto);
}
