//! Runs of the program, and manifests.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::documents;

/// Result of a run of the program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) output: String,
    pub(crate) messages: String,
}

/// Runs the program with `input` at its standard input.
pub(crate) fn run(arguments: &[&str], input: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lucid"));
    // The environment of the developer must not affect the test.
    std::env::vars().filter(|(name, _)| name.starts_with("LUCID_")).for_each(|(name, _)| {
        command.env_remove(name);
    });
    let mut child = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_owned());
    // It may not read what it does not need.
    let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap(), output: text(output.stdout), messages: text(output.stderr) }
}

/// Runs a command on standard input; it has to succeed.
pub(crate) fn piped(arguments: &[&str], input: &str) -> String {
    let ran = run(&[arguments, &["-f", "-"]].concat(), input);
    assert_eq!(ran.code, 0, "{}", ran.messages);
    ran.output
}

pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/offline/manifests").join(name)
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
