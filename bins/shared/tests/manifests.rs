//! Consistency of deploy/ with the code.

#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

use std::collections::BTreeSet;
use std::process::Command;
use std::time::SystemTime;

use lucid_certs::ServingNames;
use lucid_certs::metrics::{CertificateKind, Metrics};
use lucid_certs::source::Phase;
use lucid_testbed::has_program;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
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

/// Output of /metrics after every kind of event.
fn shown() -> String {
    let mut registry = Registry::with_prefix("lucid");
    let metrics = Metrics::new(&mut registry);
    metrics.add_source("files");
    for kind in [CertificateKind::Ca, CertificateKind::NextCa, CertificateKind::Leaf, CertificateKind::Source]
    {
        metrics.expiry("files", kind, Some(SystemTime::now()));
    }
    metrics.phase(Phase::Stable);
    metrics.add_target("MutatingWebhookConfiguration/lucid-operator");
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

/// Returns the metrics of an expression with the selected label values as `(name, label, value)`; the label is empty
/// for the metric itself.
fn asked(expression: &str) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for (at, _) in expression.match_indices("lucid_") {
        let rest = &expression[at..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
        let name = &rest[..end];
        found.push((name.to_owned(), String::new(), String::new()));
        let Some(matchers) = rest[end..].strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
            continue;
        };
        for matcher in matchers.0.split(',') {
            let (label, values) = matcher.split_once('=').unwrap();
            for value in values.trim_start_matches('~').trim_matches('"').split('|') {
                found.push((name.to_owned(), label.to_owned(), value.to_owned()));
            }
        }
    }
    found
}

#[test]
fn every_metric_and_label_of_the_alerts_is_shown() {
    let (rules, shown) = (rules(), shown());
    let mut metrics = BTreeSet::new();
    let mut groups = rules["groups"].as_sequence().unwrap().iter();
    let group = groups.find(|group| group["name"] == "certificates").unwrap();
    for rule in group["rules"].as_sequence().unwrap() {
        let alert = rule["alert"].as_str().unwrap();
        let asked = asked(rule["expr"].as_str().unwrap());
        assert!(!asked.is_empty() || alert == "LucidOperatorCertNotReady", "{alert}");
        for (name, label, value) in asked {
            let matches = shown.lines().any(|line| match label.as_str() {
                "" => line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} ")),
                label => {
                    line.starts_with(&format!("{name}{{")) && line.contains(&format!("{label}=\"{value}\""))
                }
            });
            assert!(matches, "{alert}: nothing shows {name} with {label}={value}:\n{shown}");
            metrics.insert(name);
        }
    }
    assert_eq!(metrics.len(), 7, "an alert for each metric: {metrics:?}");
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
