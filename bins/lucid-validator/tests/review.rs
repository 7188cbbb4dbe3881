//! `lucid-validator review` as a process.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::Write;
use std::process::{Command, Stdio};

/// Exit code, standard output and standard error.
fn review(pod: &str, arguments: &[&str]) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_lucid-validator"))
        .arg("review")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may not read what it does not need.
    let _ = child.stdin.take().unwrap().write_all(pod.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [
    {"name": "web", "image": "example.com/web:1"},
    {"name": "lucid-toxicity-auditor", "image": "ghcr.io/lucid/lucid-toxicity-auditor:latest"}]}}"#;
const PLAIN: &str = r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]}}"#;
const NOBODY: &str = "--verifier-url=http://127.0.0.1:1";

#[test]
fn a_pod_is_refused_allowed_with_warnings_or_allowed() {
    let line = "container lucid-toxicity-auditor, image ghcr.io/lucid/lucid-toxicity-auditor:latest: missing digest\n";
    let (code, output, _) = review(POD, &["--strict-notarization", NOBODY]);
    assert_eq!((code, output), (3, format!("{line}refused\n")));
    let (code, output, _) = review(POD, &[]);
    assert_eq!((code, output), (0, format!("{line}allowed with warnings\n")));
    let (code, output, _) = review(PLAIN, &["--strict-notarization", NOBODY]);
    assert_eq!((code, output.as_str()), (0, "no auditor containers\nallowed\n"));
}

#[test]
fn auditors_of_a_catalogue_count_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = folder.path().join("auditors.yaml");
    std::fs::write(&catalogue, "chain: [{name: pii, image: example.com/web}]").unwrap();
    let (code, output, _) = review(POD, &["--catalogue", catalogue.to_str().unwrap()]);
    assert_eq!((code, output.lines().count()), (0, 3), "{output}");
}

#[test]
fn what_cannot_be_read_is_an_error_that_names_it() {
    for (pod, arguments, says) in [
        ("{", vec![], "-: "),
        ("{}", vec![], "accepted is one v1 Pod"),
        (r#"{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}"#, vec![], "with containers"),
        (r#"{"apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}"#, vec![], "Deployment"),
        (r#"{"apiVersion": "v1", "kind": "List", "items": []}"#, vec![], "List"),
        (POD, vec!["--file", "/nonexistent/pod.json"], "/nonexistent/pod.json"),
        (POD, vec!["--catalogue", "/nonexistent/auditors.yaml"], "/nonexistent/auditors.yaml"),
        (POD, vec!["--strict-notarization"], "LUCID_VERIFIER_URL"),
    ] {
        let (code, output, error) = review(pod, &arguments);
        assert_eq!((code, output.as_str()), (1, ""), "{arguments:?}");
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
}
