//! Wrappers around kubectl.

use std::path::PathBuf;

use lucid_e2e::ClusterExt as _;
use lucid_testbed::Cluster;
use serde_json::Value;

pub(crate) fn said(cluster: &Cluster, arguments: &[&str], input: &str) -> String {
    let output = cluster.kubectl(arguments, input).unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn apply(cluster: &Cluster, object: &Value) {
    said(cluster, &["apply", "-f", "-"], &object.to_string());
}

pub(crate) fn refusal(cluster: &Cluster, object: &Value) -> String {
    let output = cluster.kubectl(&["apply", "-f", "-"], &object.to_string()).unwrap();
    assert!(!output.status.success(), "{object} is taken");
    String::from_utf8(output.stderr).unwrap()
}

pub(crate) fn manifest(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}
