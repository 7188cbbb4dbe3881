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
        ("privileged: true", "privileged: found true, accepted false", WHY),
        ("privileged: yes", "privileged: found yes, accepted false", WHY),
        ("privileged: ", "privileged: found nothing, accepted false", WHY),
        ("allowPrivilegeEscalation: true", "allowPrivilegeEscalation: found true, accepted false", WHY),
        ("runAsNonRoot: false", "runAsNonRoot: found false, accepted true", WHY),
        ("readOnlyRootFilesystem: false", "readOnlyRootFilesystem: found false, accepted true", WHY),
        ("readOnlyRootFilesystem: tRue", "readOnlyRootFilesystem: found tRue, accepted true", WHY),
        ("procMount: Unmasked", "procMount: found Unmasked, accepted Default", WHY),
        (
            "runAsUser: 0",
            ": found the key runAsUser, accepted allowPrivilegeEscalation, appArmorProfile,",
            "every auditor runs as a uid of its own, which Lucid chooses and by which the kernel tells them apart",
        ),
        ("runAsUser: 20001", ": found the key runAsUser, accepted", "tells them apart"),
        ("runAsGroup: 0", "runAsGroup: found 0, accepted 1 to 2147483647", "0 is root's group"),
        ("runAsGroup: -1", "runAsGroup: found -1, accepted 1 to 2147483647", ""),
        ("runAsGroup: 2147483648", "runAsGroup: found 2147483648, accepted 1 to", ""),
        (
            "capabilities: {add: [NET_ADMIN]}",
            "capabilities.add[0]: found NET_ADMIN, accepted no capability",
            WHY,
        ),
        (
            "capabilities: {add: [NET_BIND_SERVICE], drop: [ALL]}",
            "capabilities.add[0]: found NET_BIND_SERVICE, accepted no capability",
            WHY,
        ),
        ("capabilities: {drop: [NET_RAW]}", "capabilities: `drop` is NET_RAW, accepted ALL", WHY),
        ("capabilities: {drop: [all]}", "capabilities: `drop` is all, accepted ALL", WHY),
        ("capabilities: {drop: []}", "capabilities: `drop` is nothing, accepted ALL", WHY),
        (
            "capabilities: {drop: ALL}",
            "capabilities.drop: invalid type: string \"ALL\", expected a list of values",
            "",
        ),
        ("capabilities: {keep: []}", "capabilities: unknown key \"keep\", accepted add, drop", ""),
        (
            "capabilities: [ALL]",
            "capabilities: invalid type: sequence, expected a map with the keys add, drop",
            "",
        ),
        (
            "seccompProfile: {type: Unconfined}",
            "seccompProfile.type: found Unconfined, accepted RuntimeDefault or Localhost",
            WHY,
        ),
        (
            "seccompProfile: {type: runtimedefault}",
            "seccompProfile.type: found runtimedefault, accepted RuntimeDefault or Localhost",
            WHY,
        ),
        ("seccompProfile: {}", "seccompProfile: `type` is missing, accepted RuntimeDefault or Localhost", ""),
        (
            "seccompProfile: RuntimeDefault",
            "seccompProfile: invalid type: string \"RuntimeDefault\", expected a map with the keys type, localhostProfile",
            "",
        ),
        (
            "seccompProfile: {type: Localhost}",
            "seccompProfile: `localhostProfile` is missing, accepted a relative path",
            "",
        ),
        (
            "seccompProfile: {type: RuntimeDefault, localhostProfile: a}",
            "seccompProfile: found `localhostProfile` with the type RuntimeDefault, accepted only with the type Localhost",
            "",
        ),
        (
            "appArmorProfile: {type: Unconfined}",
            "appArmorProfile.type: found Unconfined, accepted RuntimeDefault or Localhost",
            WHY,
        ),
        (
            "appArmorProfile: {type: Localhost, localhostProfile: unconfined}",
            "appArmorProfile.localhostProfile: found unconfined, accepted the name of a loaded profile",
            "",
        ),
        (
            "appArmorProfile: {localhostProfile: a}",
            "appArmorProfile: `type` is missing, accepted RuntimeDefault or Localhost",
            "",
        ),
        ("seLinuxOptions: {type: spc_t}", "seLinuxOptions.type: found spc_t, accepted container_t", WHY),
        (
            "seLinuxOptions: {type: container_init_t}",
            "seLinuxOptions.type: found container_init_t, accepted container_t",
            WHY,
        ),
        (
            "seLinuxOptions: {level: 's0:c0.c1023'}",
            "seLinuxOptions: found the key level, accepted type",
            "can reach what belongs to other containers",
        ),
        ("seLinuxOptions: {user: system_u}", "seLinuxOptions: found the key user, accepted type", ""),
        ("seLinuxOptions: {role: system_r}", "seLinuxOptions: found the key role, accepted type", ""),
        (
            "windowsOptions: {hostProcess: true}",
            ": found the key windowsOptions, accepted",
            "auditors run on Linux",
        ),
        ("fsGroup: 0", ": unknown key \"fsGroup\", accepted allowPrivilegeEscalation,", ""),
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
            let start = format!("securityContext.{key}.localhostProfile: found ");
            assert!(problem.starts_with(&start) && problem.contains("4095 bytes"), "{name}: {problem}");
        }
    }
}
