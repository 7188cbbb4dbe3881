//! kubectl, as users have it.

use std::process::{Command, Output, Stdio};
use std::{io::Write, path::PathBuf};

use lucid_testbed::{Binaries, Cluster, Component};
use serde_json::Value;

/// Runs kubectl with `input` at its standard input.
pub(crate) fn kubectl(cluster: &Cluster, arguments: &[&str], input: &str) -> Output {
    let binaries = Binaries::from_env().unwrap();
    binaries.ensure(&[Component::Kubectl]).unwrap();
    let mut child = Command::new(binaries.path(Component::Kubectl))
        .args(arguments)
        .env("KUBECONFIG", cluster.kubeconfig_path())
        // What it has heard of the API of another cluster on the same port.
        .arg("--cache-dir")
        .arg(cluster.folder().join("kubectl-cache"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// What it prints; it has to succeed.
pub(crate) fn said(cluster: &Cluster, arguments: &[&str], input: &str) -> String {
    let output = kubectl(cluster, arguments, input);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Applies an object.
pub(crate) fn apply(cluster: &Cluster, object: &Value) {
    said(cluster, &["apply", "-f", "-"], &object.to_string());
}

/// Why it is refused.
pub(crate) fn refusal(cluster: &Cluster, object: &Value) -> String {
    let output = kubectl(cluster, &["apply", "-f", "-"], &object.to_string());
    assert!(!output.status.success(), "{object} is taken");
    String::from_utf8(output.stderr).unwrap()
}

pub(crate) fn manifest(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}
