//! A cluster with Lucid, and helpers of the tests.

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use http::Method;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ValidatingWebhook, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{ConfigMap, Container, Namespace, Pod};
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use lucid_chain::{Catalogue, Configuration, Decision, Inputs, PodView, plan};
use lucid_e2e::{
    API_SERVER, Answer, ClusterExt as _, Operator, OperatorBuilder, create_pod, eventually, send, skip,
    skip_version,
};
use lucid_testbed::Cluster;
use serde_json::{Map, Value, json};

pub(crate) const ENABLED: (&str, &str) = ("lucid.computing/enabled", "true");
pub(crate) const REQUIRED: (&str, &str) = ("lucid.computing/require-chain", "true");

/// Name, port and next hop of each auditor, for [`expected`].
pub(crate) type Auditors = &'static [(&'static str, i32, &'static str)];

pub(crate) const GUARDRAILS: Auditors = &[
    ("lucid-guardrails-auditor", 8090, "http://localhost:8093"),
    ("lucid-guardrails-auditor-2", 8093, "http://localhost:5000"),
];
pub(crate) const TOXICITY: Auditors = &[("lucid-toxicity-auditor", 8093, "http://localhost:5000")];

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

/// Returns `true` if the API server is of Kubernetes 1.`minor` or later, which `what` needs. Otherwise skips the test.
pub(crate) async fn has_kubernetes(cluster: &Cluster, minor: u32, what: &str) -> bool {
    let found = cluster.client().apiserver_version().await.unwrap();
    let has = found.minor.parse::<u32>().unwrap() >= minor;
    if !has {
        skip_version(format_args!("{what} needs Kubernetes 1.{minor}; found {}", found.git_version));
    }
    has
}

/// Returns `true` unless `KUBEBUILDER_ASSETS` names a folder without cert-manager. Otherwise skips the test.
pub(crate) fn has_cert_manager() -> bool {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty());
    let has = assets.is_none_or(|folder| Path::new(&folder).join("cert-manager").is_file());
    if !has {
        skip("KUBEBUILDER_ASSETS has no cert-manager");
    }
    has
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
    secured_with(name, json!({}))
}

pub(crate) fn secured_with(name: &str, annotations: Value) -> Value {
    pod(name, json!({"lucid.io/secured": "true"}), annotations)
}

pub(crate) fn with_chain(name: &str, chain: &str) -> Value {
    secured_with(name, json!({"lucid.computing/auditor-chain": chain}))
}

/// Container security context that satisfies Pod Security `restricted`.
pub(crate) fn restricted() -> Value {
    json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"}})
}

pub(crate) async fn create(cluster: &Cluster, namespace: &str, manifest: &Value) -> Answer {
    create_pod(&cluster.client(), namespace, manifest).await.unwrap()
}

pub(crate) async fn dry_run(cluster: &Cluster, namespace: &str, manifest: &Value) -> Answer {
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    send(&cluster.client(), Method::POST, &path, "application/json", manifest).await.unwrap()
}

pub(crate) const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";

/// Patches a pod of `shop`, or one of its subresources: `web/ephemeralcontainers`.
pub(crate) async fn patch_pod(cluster: &Cluster, path: &str, patch: &Value) -> Answer {
    let path = format!("/api/v1/namespaces/shop/pods/{path}");
    send(&cluster.client(), Method::PATCH, &path, STRATEGIC_MERGE, patch).await.unwrap()
}

pub(crate) async fn create_object<K>(cluster: &Cluster, manifest: Value) -> K
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let api: Api<K> = Api::namespaced(cluster.client(), "shop");
    api.create(&PostParams::default(), &serde_json::from_value(manifest).unwrap()).await.unwrap()
}

pub(crate) async fn label_namespace(cluster: &Cluster, name: &str, labels: Value) {
    patch_namespace(cluster, name, json!({"labels": labels})).await;
}

pub(crate) async fn annotate_namespace(cluster: &Cluster, name: &str, annotations: Value) {
    patch_namespace(cluster, name, json!({"annotations": annotations})).await;
}

async fn patch_namespace(cluster: &Cluster, name: &str, metadata: Value) {
    let api: Api<Namespace> = Api::all(cluster.client());
    let patch = Patch::Merge(json!({"metadata": metadata}));
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

pub(crate) async fn stored(cluster: &Cluster, namespace: &str, name: &str) -> Pod {
    Api::namespaced(cluster.client(), namespace).get(name).await.unwrap()
}

/// Schemas of core/v1, as published by the API server.
pub(crate) async fn core_schemas(cluster: &Cluster) -> Map<String, Value> {
    let request = http::Request::get("/openapi/v3/api/v1").body(Vec::new()).unwrap();
    let document: Value = cluster.client().request(request).await.unwrap();
    document["components"]["schemas"].as_object().unwrap().clone()
}

#[track_caller]
pub(crate) fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// Timeout for asynchronous events on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// Creates pods under new names until `holds` returns `true`, and panics with the last response on timeout.
pub(crate) async fn until(
    cluster: &Cluster,
    namespace: &str,
    manifest: impl Fn(&str) -> Value,
    holds: impl Fn(&Answer) -> bool,
) -> Answer {
    let mut attempts = 0..;
    eventually("a pod that meets the condition", async || {
        let name = format!("attempt-{}", attempts.next().unwrap_or(0));
        let response = create(cluster, namespace, &manifest(&name)).await;
        if holds(&response) { Ok(response) } else { Err(response) }
    })
    .await
}

/// Waits until the API server calls the webhooks of the running operator, and not those of one before it.
pub(crate) async fn until_called(cluster: &Cluster) {
    let probe = pod("probe", json!({"lucid.computing/tier": "A"}), json!({}));
    eventually("the webhooks respond", async || {
        let response = dry_run(cluster, "shop", &probe).await;
        if response.refusal().contains("failed calling webhook") { Err(response) } else { Ok(()) }
    })
    .await;
}

/// Waits until a pod named after `prefix` gets these auditors.
pub(crate) async fn until_injected(cluster: &Cluster, namespace: &str, prefix: &str, auditors: Auditors) {
    let manifest = |name: &str| secured(&format!("{prefix}-{name}"));
    until(cluster, namespace, manifest, |response| has_chain(response, auditors)).await;
}

/// Returns `true` if the pod was created with exactly these auditors.
pub(crate) fn has_chain(response: &Answer, auditors: Auditors) -> bool {
    response.result.as_ref().is_ok_and(|pod| chain(pod) == expected(auditors))
}

/// Creates a secured pod in `shop`, which must get these auditors.
pub(crate) async fn assert_injected(cluster: &Cluster, name: &str, auditors: Auditors) {
    let response = create(cluster, "shop", &secured(name)).await;
    assert_eq!(chain(&response.stored().unwrap()), expected(auditors));
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
            let operations = plan.patch(&view).operations();
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

/// Status and body of a path on the admin port; status 0 without a listener.
pub(crate) async fn get(operator: &Operator, path: &str) -> (u16, String) {
    match reqwest::get(operator.admin_url(path)).await {
        Ok(response) => (response.status().as_u16(), response.text().await.unwrap_or_default()),
        Err(error) => (0, error.to_string()),
    }
}

/// Waits for this status and body of `/readyz`.
pub(crate) async fn until_ready_is(operator: &Operator, expected: (u16, &str)) {
    eventually("/readyz responds as expected", async || {
        let found = get(operator, "/readyz").await;
        if (found.0, found.1.trim()) == expected { Ok(()) } else { Err(found) }
    })
    .await;
}

pub(crate) fn log(operator: &Operator) -> String {
    std::fs::read_to_string(operator.log()).unwrap_or_default()
}

/// Waits until a log contains this text, and returns the line.
pub(crate) async fn logged_in(log: &Path, text: &str) -> String {
    eventually(text, async || {
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let line = log.lines().find(|line| line.contains(text)).map(str::to_owned);
        line.ok_or_else(|| format!("{text:?} is not in {log}"))
    })
    .await
}

/// Value of one of the operator's counters: the first line that begins with `series`.
pub(crate) async fn metric(operator: &Operator, series: &str) -> u64 {
    let (_, metrics) = get(operator, "/metrics").await;
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    let line = line.unwrap_or_else(|| panic!("{series} is not in {metrics}"));
    line.trim().parse().unwrap_or_else(|_| panic!("{series} is {line}"))
}

pub(crate) async fn mutating_webhooks(cluster: &Cluster, name: &str) -> Vec<MutatingWebhook> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    api.get_opt(name).await.unwrap().and_then(|found| found.webhooks).unwrap_or_default()
}

pub(crate) async fn validating_webhooks(cluster: &Cluster, name: &str) -> Vec<ValidatingWebhook> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    api.get_opt(name).await.unwrap().and_then(|found| found.webhooks).unwrap_or_default()
}

pub(crate) async fn ca_bundle(cluster: &Cluster) -> Vec<u8> {
    mutating_webhooks(cluster, "lucid-operator").await.remove(0).client_config.ca_bundle.unwrap().0
}

/// An HTTPS client that trusts only these authorities.
pub(crate) fn client_of(bundle: &[u8]) -> reqwest::Client {
    let roots = reqwest::Certificate::from_pem_bundle(bundle).unwrap();
    reqwest::Client::builder().tls_certs_only(roots).tls_info(true).no_proxy().build().unwrap()
}

/// Certificate served by a program to a client that trusts these authorities; `None` if it does not verify.
pub(crate) async fn served(operator: &Operator, bundle: &[u8]) -> Option<Vec<u8>> {
    let response = client_of(bundle).get(format!("{}/mutate", operator.url())).send().await.ok()?;
    response.extensions().get::<reqwest::tls::TlsInfo>()?.peer_certificate().map(<[u8]>::to_vec)
}

/// Template of a workload with this pod, labelled `app`.
pub(crate) fn template(pod: &Value, app: &str) -> Value {
    let mut metadata = pod["metadata"].clone();
    metadata.as_object_mut().unwrap().remove("name");
    metadata["labels"]["app"] = json!(app);
    json!({"metadata": metadata, "spec": pod["spec"]})
}

pub(crate) fn deployment(name: &str, replicas: u32, pod: &Value) -> Value {
    json!({"metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(pod, name)}})
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

/// Records of a log with one segment; none before the first.
pub(crate) fn decisions(log: &Path) -> Vec<Value> {
    let segment = log.join("segments/00000000000000000000.jsonl");
    let text = std::fs::read_to_string(segment).unwrap_or_default();
    // Text after the last line end is still being written.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
