//! The `securityContext` of a catalogue entry.

use serde_json::{Value, json};

use crate::common::{manifest, refusal_of};

fn hardened() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": 20001,
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

#[test]
fn the_default_is_hardened_and_equal_values_change_nothing() {
    for members in [
        "description: x",
        "securityContext: {}",
        "securityContext: {runAsNonRoot: true, allowPrivilegeEscalation: false, privileged: False}",
        "securityContext: {readOnlyRootFilesystem: TRUE, procMount: Default}",
        "securityContext: {capabilities: {drop: [ALL]}}",
        "securityContext: {capabilities: {add: [], drop: [NET_RAW, ALL]}}",
        "securityContext: {capabilities: {}}",
        "securityContext: {seccompProfile: {type: RuntimeDefault}}",
        "securityContext: {seLinuxOptions: {}}",
    ] {
        assert_eq!(manifest(members)["securityContext"], hardened(), "{members}");
    }
}

#[test]
fn tightening_values_are_added() {
    let longest = "p".repeat(4095);
    let cases = [
        ("runAsGroup: 1".to_owned(), json!({"runAsGroup": 1})),
        ("runAsGroup: 2147483647".to_owned(), json!({"runAsGroup": 2_147_483_647})),
        (
            "seccompProfile: {type: Localhost, localhostProfile: profiles/auditor.json}".to_owned(),
            json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "profiles/auditor.json"}}),
        ),
        (
            format!("seccompProfile: {{localhostProfile: {longest}, type: Localhost}}"),
            json!({"seccompProfile": {"type": "Localhost", "localhostProfile": longest}}),
        ),
        (
            "appArmorProfile: {type: RuntimeDefault}".to_owned(),
            json!({"appArmorProfile": {"type": "RuntimeDefault"}}),
        ),
        (
            "appArmorProfile: {type: Localhost, localhostProfile: /usr/bin/auditor}".to_owned(),
            json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "/usr/bin/auditor"}}),
        ),
        (
            "seLinuxOptions: {type: container_t}".to_owned(),
            json!({"seLinuxOptions": {"type": "container_t"}}),
        ),
        (
            "runAsGroup: 30000, appArmorProfile: {type: Localhost, localhostProfile: a}, seLinuxOptions: {type: container_t}"
                .to_owned(),
            json!({
                "runAsGroup": 30_000,
                "appArmorProfile": {"type": "Localhost", "localhostProfile": "a"},
                "seLinuxOptions": {"type": "container_t"},
            }),
        ),
    ];
    for (members, added) in cases {
        let mut expected = hardened();
        expected.as_object_mut().unwrap().append(&mut added.as_object().unwrap().clone());
        let found = manifest(&format!("securityContext: {{{members}}}"));
        assert_eq!(found["securityContext"], expected, "{members}");
    }
}

#[test]
fn loosening_values_are_rejected_with_a_reason() {
    const WHY: &str = "a security context may only be tightened";
    let cases = [
        ("privileged: true", "privileged: expected false, found true", WHY),
        ("privileged: yes", "privileged: expected false, found yes", WHY),
        ("privileged: ", "privileged: expected false, found nothing", WHY),
        ("allowPrivilegeEscalation: true", "allowPrivilegeEscalation: expected false, found true", WHY),
        ("runAsNonRoot: false", "runAsNonRoot: expected true, found false", WHY),
        ("readOnlyRootFilesystem: false", "readOnlyRootFilesystem: expected true, found false", WHY),
        ("readOnlyRootFilesystem: tRue", "readOnlyRootFilesystem: expected true, found tRue", WHY),
        ("procMount: Unmasked", "procMount: expected Default, found Unmasked", WHY),
        (
            "runAsUser: 0",
            ": unexpected key runAsUser, expected one of allowPrivilegeEscalation, appArmorProfile,",
            "every auditor runs as a uid of its own, which Lucid chooses and by which the kernel tells them apart",
        ),
        ("runAsUser: 20001", ": unexpected key runAsUser, expected", "tells them apart"),
        ("runAsGroup: 0", "runAsGroup: expected 1 to 2147483647, found 0", "0 is root's group"),
        ("runAsGroup: -1", "runAsGroup: expected 1 to 2147483647, found -1", ""),
        ("runAsGroup: 2147483648", "runAsGroup: expected 1 to 2147483647, found 2147483648", ""),
        (
            "capabilities: {add: [NET_ADMIN]}",
            "capabilities.add[0]: expected no capability, found NET_ADMIN",
            WHY,
        ),
        (
            "capabilities: {add: [NET_BIND_SERVICE], drop: [ALL]}",
            "capabilities.add[0]: expected no capability, found NET_BIND_SERVICE",
            WHY,
        ),
        ("capabilities: {drop: [NET_RAW]}", "capabilities: `drop`: expected ALL, found NET_RAW", WHY),
        ("capabilities: {drop: [all]}", "capabilities: `drop`: expected ALL, found all", WHY),
        ("capabilities: {drop: []}", "capabilities: `drop`: expected ALL, found nothing", WHY),
        (
            "capabilities: {drop: ALL}",
            "capabilities.drop: invalid type: string \"ALL\", expected a list of values",
            "",
        ),
        ("capabilities: {keep: []}", "capabilities: unknown key \"keep\", expected one of add, drop", ""),
        (
            "capabilities: [ALL]",
            "capabilities: invalid type: sequence, expected a map with the keys add, drop",
            "",
        ),
        (
            "seccompProfile: {type: Unconfined}",
            "seccompProfile.type: expected RuntimeDefault or Localhost, found Unconfined",
            WHY,
        ),
        (
            "seccompProfile: {type: runtimedefault}",
            "seccompProfile.type: expected RuntimeDefault or Localhost, found runtimedefault",
            WHY,
        ),
        ("seccompProfile: {}", "seccompProfile: `type` is missing, expected RuntimeDefault or Localhost", ""),
        (
            "seccompProfile: RuntimeDefault",
            "seccompProfile: invalid type: string \"RuntimeDefault\", expected a map with the keys type, localhostProfile",
            "",
        ),
        (
            "seccompProfile: {type: Localhost}",
            "seccompProfile: `localhostProfile` is missing, expected a relative path",
            "",
        ),
        (
            "seccompProfile: {type: RuntimeDefault, localhostProfile: a}",
            "seccompProfile: `localhostProfile`: expected the type Localhost, found RuntimeDefault",
            "",
        ),
        (
            "appArmorProfile: {type: Unconfined}",
            "appArmorProfile.type: expected RuntimeDefault or Localhost, found Unconfined",
            WHY,
        ),
        (
            "appArmorProfile: {type: Localhost, localhostProfile: unconfined}",
            "appArmorProfile.localhostProfile: expected the name of a loaded profile, at most 4095 bytes, found unconfined",
            "",
        ),
        (
            "appArmorProfile: {localhostProfile: a}",
            "appArmorProfile: `type` is missing, expected RuntimeDefault or Localhost",
            "",
        ),
        ("seLinuxOptions: {type: spc_t}", "seLinuxOptions.type: expected container_t, found spc_t", WHY),
        (
            "seLinuxOptions: {type: container_init_t}",
            "seLinuxOptions.type: expected container_t, found container_init_t",
            WHY,
        ),
        (
            "seLinuxOptions: {level: 's0:c0.c1023'}",
            "seLinuxOptions: unexpected key level, expected type",
            "can reach what belongs to other containers",
        ),
        ("seLinuxOptions: {user: system_u}", "seLinuxOptions: unexpected key user, expected type", ""),
        ("seLinuxOptions: {role: system_r}", "seLinuxOptions: unexpected key role, expected type", ""),
        (
            "windowsOptions: {hostProcess: true}",
            ": unexpected key windowsOptions, expected",
            "auditors run on Linux",
        ),
        ("fsGroup: 0", ": unknown key \"fsGroup\", expected one of allowPrivilegeEscalation,", ""),
    ];
    for (members, problem, why) in cases {
        let found = refusal_of(&format!("securityContext: {{{members}}}"));
        let dot = if problem.starts_with(':') { "" } else { "." };
        assert!(found.starts_with(&format!("securityContext{dot}{problem}")), "{members}: {found}");
        assert!(found.ends_with(why), "{members}: {found}");
    }
}

#[test]
fn localhost_profiles_are_valid_for_the_api_server() {
    let long = "p".repeat(4096);
    let both = ["''", "~", "' a'", "'a '", "\"a\\tb\"", "\"a\\0\"", &long];
    let paths = [&both[..], &["/etc/passwd", "..", "../a", "a/../b", "a/.."]].concat();
    let names = [&both[..], &["unconfined", "Unconfined"]].concat();
    for (key, refused) in [("seccompProfile", paths), ("appArmorProfile", names)] {
        for name in refused {
            let members =
                format!("securityContext: {{{key}: {{type: Localhost, localhostProfile: {name}}}}}");
            let problem = refusal_of(&members);
            let start = format!("securityContext.{key}.localhostProfile: expected ");
            assert!(problem.starts_with(&start) && problem.contains("4095 bytes"), "{name}: {problem}");
        }
    }
}
