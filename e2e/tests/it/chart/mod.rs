//! The chart charts/lucid, by helm itself.

mod deploy;
mod modes;
mod values;

use std::ffi::OsStr;
use std::process::{Command, Output};

use lucid_testbed::{Binaries, Component};
use serde::Deserialize as _;
use serde_yaml::Value;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/lucid");
const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");

/// A program of the test bed.
async fn program(component: Component) -> Command {
    let binaries = Binaries::from_env().unwrap();
    binaries.ensure_async(&[component]).await.unwrap();
    Command::new(binaries.path(component))
}

/// What a command has printed, or else what it complains of.
fn printed(output: Output) -> Result<String, String> {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// `helm template` into a namespace with these values, each as `--set` has it.
async fn template<V: AsRef<OsStr>>(
    namespace: &str,
    values: &[V],
    arguments: &[String],
) -> Result<String, String> {
    let mut helm = program(Component::Helm).await;
    helm.args(["template", "lucid", CHART, "--namespace", namespace]);
    for value in values {
        helm.arg("--set").arg(value);
    }
    printed(helm.args(arguments).output().unwrap())
}

/// The objects of a manifest.
fn documents(text: &str) -> Vec<Value> {
    serde_yaml::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).unwrap())
        .filter(|document| !document.is_null())
        .collect()
}

/// Kind and name.
fn key(document: &Value) -> (&str, &str) {
    (document["kind"].as_str().unwrap(), document["metadata"]["name"].as_str().unwrap())
}

/// The specification of the pods of an object, if it has any.
fn pods(document: &Value) -> Option<&Value> {
    match document["kind"].as_str()? {
        "Deployment" | "StatefulSet" | "Job" => Some(&document["spec"]["template"]["spec"]),
        "Pod" => Some(&document["spec"]),
        _ => None,
    }
}
