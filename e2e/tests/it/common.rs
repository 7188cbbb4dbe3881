//! A cluster with Lucid, and helpers of the tests.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Container, Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use lucid_chain::{Catalogue, Configuration, Decision, Inputs, PodView, plan};
use lucid_e2e::{API_SERVER, Answer, Operator, OperatorBuilder, create_pod};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

pub(crate) const ENABLED: (&str, &str) = ("lucid.computing/enabled", "true");

/// A cluster with the namespaces `lucid-system`, `shop` (enabled) and `other` (not enabled).
pub(crate) async fn cluster() -> Cluster {
    prepare(Cluster::builder().start().await.unwrap()).await
}

/// Like [`cluster`], for [`OperatorBuilder::authenticated`]: the API server presents a client certificate to webhooks.
pub(crate) async fn authenticated_cluster() -> Cluster {
    prepare(Cluster::builder().webhook_client(API_SERVER).start().await.unwrap()).await
}

pub(crate) async fn prepare(cluster: Cluster) -> Cluster {
    cluster.create_namespace("lucid-system", &[]).await.unwrap();
    cluster.create_namespace("shop", &[ENABLED]).await.unwrap();
    cluster.create_namespace("other", &[]).await.unwrap();
    cluster
}

/// An operator that permits skip-audit, ready to serve.
pub(crate) async fn operator(
    cluster: &Cluster,
    settings: impl FnOnce(OperatorBuilder) -> OperatorBuilder,
) -> Operator {
    let builder = Operator::builder(cluster).env("LUCID_ALLOW_SKIP", "true");
    settings(builder).start().await.unwrap()
}

/// A pod with one container, `model`, that declares port 5000.
pub(crate) fn pod(name: &str, labels: Value, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "model", "image": "example.com/model:1", "ports": [{"containerPort": 5000}]}]},
    })
}

pub(crate) fn secured(name: &str) -> Value {
    pod(name, json!({"lucid.io/secured": "true"}), json!({}))
}

pub(crate) async fn create(cluster: &Cluster, namespace: &str, manifest: &Value) -> Answer {
    create_pod(&cluster.client(), namespace, manifest).await.unwrap()
}

/// Reads the stored pod from the API server.
pub(crate) async fn stored(cluster: &Cluster, namespace: &str, name: &str) -> Pod {
    Api::namespaced(cluster.client(), namespace).get(name).await.unwrap()
}

/// Timeout for asynchronous events on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// Polls until `look` succeeds. Panics with its last error on timeout.
pub(crate) async fn eventually<T, E: Debug>(mut look: impl AsyncFnMut() -> Result<T, E>) -> T {
    let begin = Instant::now();
    loop {
        match look().await {
            Ok(found) => return found,
            Err(instead) => assert!(begin.elapsed() < PATIENCE, "{instead:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Polls until `holds` returns `true`; panics with `otherwise` on timeout.
pub(crate) async fn eventually_holds(otherwise: &str, mut holds: impl AsyncFnMut() -> bool) {
    eventually(async || holds().await.then_some(()).ok_or(otherwise)).await;
}

/// Creates pods under new names until `holds` returns `true`, and panics with the last answer on timeout.
pub(crate) async fn until(
    cluster: &Cluster,
    namespace: &str,
    manifest: impl Fn(&str) -> Value,
    holds: impl Fn(&Answer) -> bool,
) -> Answer {
    let mut attempts = 0..;
    eventually(async || {
        let name = format!("attempt-{}", attempts.next().unwrap_or(0));
        let answer = create(cluster, namespace, &manifest(&name)).await;
        if holds(&answer) { Ok(answer) } else { Err(answer) }
    })
    .await
}

/// `(name, port, next hop)` of every container; no next hop for containers other than auditors.
pub(crate) fn chain(pod: &Pod) -> Vec<(String, Option<i32>, Option<String>)> {
    let containers = &pod.spec.as_ref().unwrap().containers;
    let port = |container: &Container| Some(container.ports.as_ref()?.first()?.container_port);
    containers
        .iter()
        .map(|container| (container.name.clone(), port(container), env(container, "LUCID_CHAIN_NEXT")))
        .collect()
}

/// Operations that the planner, with default settings, would still apply to a stored pod, or its error. Empty if the pod has
/// its chain.
pub(crate) fn unplanned(pod: &Pod) -> String {
    let json = serde_json::to_string(pod).unwrap();
    let view = PodView::from_json(&json).unwrap();
    let configuration = Configuration::new(Catalogue::builtin(), None).unwrap();
    match plan(&view, &Inputs::new(&configuration)).decision {
        Decision::Planned(plan) => {
            let operations = plan.patch(&view).operations;
            if operations.is_empty() { String::new() } else { serde_json::to_string(&operations).unwrap() }
        }
        other => format!("{other:?}"),
    }
}

pub(crate) fn env(container: &Container, name: &str) -> Option<String> {
    container.env.iter().flatten().find(|variable| variable.name == name)?.value.clone()
}

/// Result of [`chain`] for the pod of [`pod`] with these auditors.
pub(crate) fn expected(auditors: &[(&str, i32, &str)]) -> Vec<(String, Option<i32>, Option<String>)> {
    let model = ("model".to_owned(), Some(5000), None);
    let auditors =
        auditors.iter().map(|(name, port, next)| ((*name).to_owned(), Some(*port), Some((*next).to_owned())));
    std::iter::once(model).chain(auditors).collect()
}

pub(crate) async fn config_map(cluster: &Cluster, namespace: &str, name: &str, key: &str, value: &str) {
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: value}});
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), namespace);
    api.patch(name, &PatchParams::apply("e2e").force(), &Patch::Apply(map)).await.unwrap();
}

/// Value of one of the operator's counters: the first line that begins with `series`.
pub(crate) async fn metric(operator: &Operator, series: &str) -> u64 {
    let metrics = reqwest::get(operator.admin_url("/metrics")).await.unwrap().text().await.unwrap();
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    let line = line.unwrap_or_else(|| panic!("{series} is not in {metrics}"));
    line.trim().parse().unwrap_or_else(|_| panic!("{series} is {line}"))
}

/// Finalizes deleted namespaces, like their controller once they are empty.
pub(crate) async fn finalize_namespaces(cluster: &Cluster) {
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    for mut namespace in namespaces.list(&ListParams::default()).await.unwrap() {
        if namespace.metadata.deletion_timestamp.is_some() {
            namespace.spec = None;
            let name = namespace.name_any();
            let params = PostParams::default();
            // The namespace may be gone by now.
            let _ = namespaces.replace_subresource("finalize", &name, &params, &namespace).await;
        }
    }
}

pub(crate) async fn delete_all_pods(cluster: &Cluster, namespace: &str) {
    let api: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    let now = DeleteParams::default().grace_period(0);
    for pod in api.list(&Default::default()).await.unwrap() {
        api.delete(&pod.name_any(), &now).await.unwrap();
    }
}

/// Records of a log with one segment.
pub(crate) fn decisions(log: &std::path::Path) -> Vec<Value> {
    let segment = log.join("segments/00000000000000000000.jsonl");
    let text = std::fs::read_to_string(segment).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
