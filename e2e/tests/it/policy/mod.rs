//! The policy on a real API server: denials, warnings, and operations that are never blocked.

mod bypasses;
mod images;
mod modes;
mod namespaces;
mod pod_fields;
pub(crate) mod signatures;
mod workloads;

use http::Method;
use lucid_e2e::{ClusterExt as _, Operator, Reply, Verifier, ask};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use crate::common::{ENABLED, REQUIRED, cluster, config_map, operator, pod, secured};

const NOTARIZED: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
const REVOKED: &str = "sha256:3333333333333333333333333333333333333333333333333333333333333333";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const PODS: &str = "/api/v1/namespaces/shop/pods";

/// Writes a catalogue of two auditors and lucid-egress, whose images are notarized.
async fn catalogue(cluster: &Cluster) {
    let entry = |name: &str| format!("  - {{name: {name}, image: \"example.com/{name}@{NOTARIZED}\"}}\n");
    let yaml = format!("chain:\n{}{}{}", entry("good"), entry("weak"), entry("lucid-egress"));
    config_map(cluster, "lucid-system", "lucid-auditors", "auditors.yaml", &yaml).await;
}

/// Starts an operator that denies every violation except a missing label.
async fn enforcing(cluster: &Cluster, verifier: &Verifier) -> Operator {
    operator(cluster, |operator| {
        operator
            .env("LUCID_ADMISSION_MODE", "enforce")
            .env("LUCID_TIER_LABEL", "")
            .env("LUCID_CHAIN", "good")
            .env("LUCID_ALLOW_SKIP", "false")
            .env("LUCID_STRICT_NOTARIZATION", "true")
            .env("LUCID_VERIFIER_URL", verifier.url())
    })
    .await
}

async fn post(cluster: &Cluster, path: &str, object: &Value) -> Reply {
    ask(&cluster.client(), None, Method::POST, path, JSON, object).await.unwrap()
}

async fn patch(cluster: &Cluster, path: &str, kind: &str, change: &Value) -> Reply {
    ask(&cluster.client(), None, Method::PATCH, path, kind, change).await.unwrap()
}

fn assert_passed(what: &str, reply: &Reply) {
    assert!((200..300).contains(&reply.status), "{what}: {reply:?}");
}

fn assert_refused(what: &str, reply: &Reply, parts: &[&str]) {
    let message = reply.body["message"].as_str().unwrap_or_default();
    assert_eq!(reply.status, 403, "{what}: {reply:?}");
    for part in [r#"admission webhook "validate.lucid.computing" denied the request"#].iter().chain(parts) {
        assert!(message.contains(part), "{what}: {part:?} is not in {message:?}");
    }
}

fn with(mut pod: Value, path: &str, value: Value) -> Value {
    let (parent, key) = path.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[key] = value;
    pod
}

fn plain(name: &str) -> Value {
    pod(name, json!({}), json!({}))
}

/// The pod with these fields in its spec, and in its container.
fn merged(name: &str, spec: Value, container: Value) -> Value {
    let mut pod = secured(name);
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod["spec"]["containers"][0].as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    pod
}

/// In one cluster, with one policy.
#[tokio::test]
async fn violations_are_denied_and_ordinary_pods_are_admitted() {
    let cluster = cluster().await;
    catalogue(&cluster).await;
    for (name, choices) in [("bank", None), ("bank-chain", Some("chain")), ("bank-all", Some("all"))] {
        let choices = choices.map(|value| ("lucid.computing/pod-choices", value));
        let labels: Vec<_> = [ENABLED, REQUIRED].into_iter().chain(choices).collect();
        cluster.create_namespace(name, &labels).await.unwrap();
    }
    let verifier = Verifier::start(cluster.folder(), &[NOTARIZED]).await.unwrap();
    let operator = enforcing(&cluster, &verifier).await;
    images::images_are_verified_in_every_list_and_operation(&cluster).await;
    namespaces::namespaces_limit_the_choices_of_pods(&cluster, &operator).await;
    bypasses::bypasses_are_denied(&cluster, &operator).await;
}
