//! Consistency of deploy/ with the code.

#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

use std::collections::BTreeSet;
use std::process::Command;

use lucid_certs::ServingNames;
use lucid_e2e::has_program;
use serde::Deserialize;
use serde_yaml::Value;

fn documents(manifest: &str) -> Vec<Value> {
    let path = format!("{}/../../deploy/{manifest}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    serde_yaml::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap()).collect()
}

fn rules() -> Value {
    documents("prometheus-rule.yaml").remove(0)["spec"].clone()
}

#[test]
fn the_alerts_are_raised_when_they_should_be() {
    if !has_program("promtool") {
        return;
    }
    let folder = std::env::temp_dir().join(format!("lucid-alerts-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("rules.yaml"), serde_yaml::to_string(&rules()).unwrap()).unwrap();
    std::fs::write(folder.join("alerts.yaml"), include_str!("alerts.yaml")).unwrap();
    for arguments in [&["check", "rules", "rules.yaml"], &["test", "rules", "alerts.yaml"]] {
        let output = Command::new("promtool").args(arguments).current_dir(&folder).output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert!(output.status.success(), "{said}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_certificate_covers_all_names_in_the_expected_secret() {
    let certificates = documents("cert-manager.yaml");
    let certificate = certificates.iter().find(|it| it["metadata"]["name"] == "lucid-operator-cert").unwrap();
    assert_eq!(certificate["metadata"]["namespace"], "lucid-system");
    let spec = &certificate["spec"];
    assert_eq!(spec["secretName"], "lucid-operator-tls");
    assert_eq!((&spec["duration"], &spec["renewBefore"]), (&"8760h".into(), &"720h".into()));
    let usages = spec["usages"].as_sequence().unwrap();
    assert!(
        usages.contains(&"key encipherment".into()) && usages.contains(&"server auth".into()),
        "{usages:?}"
    );
    let names =
        ServingNames::for_services("lucid-system", &["lucid-operator", "lucid-operator-webhook"]).unwrap();
    let expected: BTreeSet<_> = names.dns_names().map(str::to_owned).collect();
    let found = spec["dnsNames"].as_sequence().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
    assert_eq!(found.collect::<BTreeSet<_>>(), expected);
    assert_eq!(spec["commonName"], "lucid-operator");
    let issuer = spec["issuerRef"]["name"].as_str().unwrap();
    let is_issuer = |it: &&Value| it["kind"] == "ClusterIssuer" && it["metadata"]["name"] == issuer;
    assert!(certificates.iter().any(|it| is_issuer(&it)));
}
