//! Manifests.

use std::path::PathBuf;

use serde_json::Value;

use crate::documents;
pub(crate) use crate::program::{run, run_within};

/// Runs a command on standard input; it has to succeed.
pub(crate) fn piped(arguments: &[&str], input: &str) -> String {
    let ran = run(&[arguments, &["-f", "-"]].concat(), input);
    assert_eq!(ran.code, 0, "{}", ran.messages);
    ran.output
}

pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/offline/manifests").join(name)
}

pub(crate) fn manifest(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

/// The values of all documents.
pub(crate) fn values(text: &str) -> Vec<Value> {
    documents::parse(text).iter().filter_map(|document| document.value().unwrap()).collect()
}

/// A pod that asks for a chain.
pub(crate) const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  labels:\n    lucid.io/secured: \"true\"\nspec:\n  containers:\n  - name: model\n    image: registry.example/model:1\n    ports:\n    - containerPort: 5000\n";

pub(crate) fn names(containers: &Value) -> Vec<&str> {
    containers.as_array().into_iter().flatten().map(|it| it["name"].as_str().unwrap()).collect()
}
