//! Tests of charts/lucid with helm.

mod alerts;
mod deploy;
mod modes;
mod network;
mod notes;
mod objects;
mod rbac;
mod release;
mod rendered;
mod restriction;
mod values;

use std::ffi::OsStr;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::Api;
use lucid_e2e::{ClusterExt as _, Operator, OperatorBuilder, binary};
use lucid_testbed::Cluster;
use serde::Deserialize as _;
use serde_yaml::Value;

use crate::cli::kubeconfig_of;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/lucid");
const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");

/// Standard output of a successful command, or standard error.
fn printed(output: Output) -> Result<String, String> {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// Runs `helm template` for a namespace with these values in the syntax of `--set`.
async fn template<V: AsRef<OsStr>>(
    namespace: &str,
    values: &[V],
    arguments: &[String],
) -> Result<String, String> {
    let mut helm = Command::new(binary("helm").unwrap());
    helm.args(["template", "lucid", CHART, "--namespace", namespace]);
    for value in values {
        helm.arg("--set").arg(value);
    }
    printed(helm.args(arguments).output().unwrap())
}

fn documents(text: &str) -> Vec<Value> {
    serde_yaml::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).unwrap())
        .filter(|document| !document.is_null())
        .collect()
}

fn key(document: &Value) -> (&str, &str) {
    (document["kind"].as_str().unwrap(), document["metadata"]["name"].as_str().unwrap())
}

fn pods(document: &Value) -> Option<&Value> {
    match document["kind"].as_str()? {
        "Deployment" | "StatefulSet" | "Job" => Some(&document["spec"]["template"]["spec"]),
        "Pod" => Some(&document["spec"]),
        _ => None,
    }
}

/// Runs helm in namespace `lucid-system` of a cluster. Returns its output, or its error.
fn helm(cluster: &Cluster, arguments: &[&str]) -> Result<String, String> {
    printed(cluster.helm(&[arguments, &["--namespace", "lucid-system"]].concat(), "").unwrap())
}

/// Runs `helm upgrade --install` with these values; previous values are reset.
fn upgrade(cluster: &Cluster, values: &[&str]) {
    let values = values.iter().flat_map(|value| ["--set", *value]);
    let arguments: Vec<_> =
        ["upgrade", "--install", "--reset-values", "lucid", CHART].into_iter().chain(values).collect();
    helm(cluster, &arguments).unwrap();
}

/// A program with the variables and flags from the chart, and the permissions of its ServiceAccount.
async fn as_installed(cluster: &Cluster, program: &str) -> OperatorBuilder {
    let builder = match program {
        "lucid-operator" => Operator::builder(cluster),
        _ => Operator::validator(cluster),
    };
    let container = pod_template(cluster, program).await.spec.unwrap().containers.remove(0);
    let variables = container.env.unwrap_or_default().into_iter();
    let variables = variables.filter_map(|variable| Some((variable.name, variable.value?)));
    // Only the program knows its port.
    let variables = variables.filter(|(name, _)| name != "LUCID_WEBHOOK_URL");
    // Each pod has its own volume.
    static PODS: AtomicUsize = AtomicUsize::new(0);
    let volume = cluster.folder().join(format!("volume-{}", PODS.fetch_add(1, Ordering::Relaxed)));
    let variables = variables.map(|(name, value)| match &*name {
        "LUCID_DECISION_LOG" => (name, volume.display().to_string()),
        _ => (name, value),
    });
    let builder = builder.kubeconfig(kubeconfig_of(cluster, program)).env("LUCID_NAMESPACE", "lucid-system");
    let builder = variables.fold(builder, |builder, (name, value)| builder.env(&name, value));
    let flags = container.args.unwrap_or_default();
    flags
        .iter()
        .filter_map(|argument| argument.split_once('='))
        .fold(builder, |builder, (flag, value)| builder.flag(flag, value))
}

async fn pod_template(cluster: &Cluster, program: &str) -> PodTemplateSpec {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "lucid-system");
    if let Some(found) = deployments.get_opt(program).await.unwrap() {
        return found.spec.unwrap().template;
    }
    let sets: Api<StatefulSet> = Api::namespaced(cluster.client(), "lucid-system");
    sets.get(program).await.unwrap().spec.unwrap().template
}
