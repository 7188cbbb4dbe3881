//! Third-party packaging: agrees with deploy/ and with the operator's behavior.

mod gitops;
mod olm;

use std::fs;
use std::path::PathBuf;

use serde::Deserialize as _;
use serde_json::Value;

fn path(relative: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(relative)
}

fn documents(relative: &str) -> Vec<Value> {
    let text = fs::read_to_string(path(relative)).unwrap_or_else(|error| panic!("{relative}: {error}"));
    let documents = serde_yaml::Deserializer::from_str(&text).map(|it| Value::deserialize(it).unwrap());
    documents.filter(|it| !it.is_null()).collect()
}

fn document(relative: &str, kind: &str) -> Value {
    let mut found = documents(relative).into_iter().filter(|it| it["kind"] == kind);
    found.next().unwrap_or_else(|| panic!("{relative} has no {kind}"))
}

#[test]
fn pods_of_the_programs_are_found_by_app() {
    for (file, kind, name) in [
        ("deploy/lucid.yaml", "Deployment", "lucid-operator"),
        ("deploy/validator.yaml", "Deployment", "lucid-validator"),
    ] {
        assert_eq!(document(file, kind)["spec"]["template"]["metadata"]["labels"]["app"], name, "{file}");
    }
}
