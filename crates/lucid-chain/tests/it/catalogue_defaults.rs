//! The `defaults` of a catalogue.

use lucid_chain::{AuditMode, Catalogue, Defaults, Direction, Intercept, SidecarMode};

use crate::common::assert_refused;

fn defaults(yaml: &str) -> Defaults {
    let catalogue = Catalogue::parse("auditors.yaml", yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"));
    *catalogue.defaults()
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
    assert_eq!(all.target_port.map(u16::from), Some(8000));
    assert_eq!(all.sidecar_mode, Some(SidecarMode::Native));
    assert_eq!(all.intercept, Some(Intercept::Env));
    assert_eq!(all.outbound_port.map(u16::from), Some(11434));
}

#[test]
fn a_file_may_consist_of_defaults() {
    for yaml in ["defaults: {direction: outbound}", "defaults: {}", "defaults:\n", "defaults: {}\n---\n"] {
        let catalogue = Catalogue::parse("auditors.yaml", yaml).unwrap();
        assert!(catalogue.auditors().is_empty(), "{yaml}");
    }
    assert_eq!(defaults("defaults: {direction: outbound}").direction, Some(Direction::Outbound));
}

#[test]
fn an_overlay_replaces_only_its_own_defaults() {
    let catalogue = |yaml| Catalogue::parse("auditors.yaml", yaml).unwrap();
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

#[test]
fn an_error_in_defaults_has_its_position_and_accepted_values() {
    assert_refused(&[
        (
            "defaults:\n  audit-mode: block\n",
            2,
            15,
            r#"defaults.audit-mode: found "block", accepted "enforce" or "observe""#,
        ),
        (
            "defaults:\n  direction: in\n",
            2,
            14,
            r#"defaults.direction: found "in", accepted "inbound", "outbound" or "both""#,
        ),
        (
            "defaults:\n  direction: both\n  sidecar-mode: Native\n",
            3,
            17,
            r#"defaults.sidecar-mode: found "Native", accepted "auto", "containers" or "native""#,
        ),
        (
            "defaults: {intercept: iptables}\n",
            1,
            23,
            r#"defaults.intercept: found "iptables", accepted "redirect" or "env""#,
        ),
        ("defaults:\n  intercept:\n", 2, 13, r#"defaults.intercept: found "", accepted"#),
        ("defaults:\n  target-port: 0\n", 2, 16, "defaults.target-port: found 0, accepted 1 to 65535"),
        (
            "defaults:\n  target-port: 70000\n",
            2,
            16,
            "defaults.target-port: found 70000, accepted 1 to 65535",
        ),
        ("defaults:\n  outbound-port: http\n", 2, 18, "defaults.outbound-port: found http, accepted 1 to"),
        ("defaults:\n  outbound-port: [80, 443]\n", 2, 18, "defaults.outbound-port: invalid type: sequence"),
        (
            "defaults:\n  skip-audit: true\n",
            2,
            3,
            "defaults: unknown key \"skip-audit\", accepted audit-mode, direction, target-port, sidecar-mode, intercept, outbound-port",
        ),
        (
            "defaults:\n  audit-mode: observe\n  audit-mode: enforce\n",
            3,
            3,
            "defaults: found the key \"audit-mode\" twice",
        ),
        (
            "defaults: observe\n",
            1,
            11,
            "defaults: invalid type: string \"observe\", expected a map with the keys audit-mode,",
        ),
        ("defaults: {}\ndefaults: {}\n", 2, 1, "found the key \"defaults\" twice"),
        ("defaults: {}\nchain: []\n", 2, 8, "chain: found an empty list, accepted at least one auditor"),
        ("defaults: {}\nchain:\n- {name: a}\n", 3, 3, "chain[0]: `image` is missing"),
    ]);
}
