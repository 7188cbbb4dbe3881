//! Running pods: their states, and the actions that namespaces ask for.

use crate::common::{
    STRATEGIC_MERGE, cluster, config_map, create, get, label_namespace, operator, patch_pod, secured, stored,
};
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use lucid_e2e::{Operator, send};
use lucid_testbed::{Cluster, eventually};
use serde_json::{Value, json};

const CATALOGUE: &str = "chain:
  - {name: injection, image: 'registry.example/injection@DIGEST'}
";

fn catalogue(digit: char) -> String {
    CATALOGUE.replace("DIGEST", &format!("sha256:{}", digit.to_string().repeat(64)))
}

/// Waits for the number of pods of namespace `shop` in a state.
async fn until_state(operator: &Operator, state: &str, pods: u64) {
    let series = format!(r#"lucid_running_pods{{namespace="shop",state="{state}"}} "#);
    eventually(&format!("{pods} pods are {state}"), async || {
        let (_, metrics) = get(operator, "/metrics").await;
        let found = metrics.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or("0");
        if found == pods.to_string() { Ok(()) } else { Err(metrics) }
    })
    .await;
}

/// Reports all containers of a pod as a kubelet does.
async fn run(cluster: &Cluster, name: &str, is_ready: bool) {
    let pod = stored(cluster, "shop", name).await;
    let spec = pod.spec.unwrap();
    let statuses: Vec<_> = spec
        .containers
        .iter()
        .map(|container| {
            let image = container.image.clone().unwrap_or_default();
            json!({"name": container.name, "ready": is_ready || container.name == "model", "image": image,
                "imageID": image, "restartCount": 0})
        })
        .collect();
    let ready = if is_ready { "True" } else { "False" };
    let conditions = ["Ready", "ContainersReady"].map(|kind| json!({"type": kind, "status": ready}));
    let status =
        json!({"status": {"phase": "Running", "conditions": conditions, "containerStatuses": statuses}});
    let path = format!("/api/v1/namespaces/shop/pods/{name}/status");
    send(&cluster.client(), Method::PATCH, &path, STRATEGIC_MERGE, &status).await.unwrap().result.unwrap();
}

fn auditor_image(pod: &Pod) -> String {
    let containers = &pod.spec.as_ref().unwrap().containers;
    let auditor = containers.iter().find(|container| container.name == "injection").unwrap();
    auditor.image.clone().unwrap()
}

async fn events(cluster: &Cluster, reason: &str) -> Vec<Event> {
    let api: Api<Event> = Api::namespaced(cluster.client(), "shop");
    let mut found = api.list(&Default::default()).await.unwrap().items;
    found.retain(|event| event.reason.as_deref() == Some(reason));
    found
}

#[tokio::test]
async fn states_of_running_pods_are_reported() {
    let cluster = cluster().await;
    create(&cluster, "shop", &secured("before")).await.result.unwrap();
    config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", &catalogue('a')).await;
    let operator = operator(&cluster, |builder| builder.env("LUCID_CHAIN", "injection")).await;
    create(&cluster, "shop", &secured("web")).await.result.unwrap();
    until_state(&operator, "Missing", 1).await;
    until_state(&operator, "Audited", 1).await;
    eventually("an event", async || !events(&cluster, "Missing").await.is_empty()).await;

    config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", &catalogue('b')).await;
    until_state(&operator, "Stale", 1).await;
    let event = eventually("an event", async || events(&cluster, "Stale").await.pop()).await;
    assert_eq!(event.regarding.unwrap().name.as_deref(), Some("web"));

    let patch = json!({"spec": {"containers": [{"name": "injection", "image": "registry.example/other:1"}]}});
    label_namespace(&cluster, "shop", json!({"lucid.computing/enabled": null})).await;
    until_state(&operator, "Stale", 0).await;
    patch_pod(&cluster, "web", &patch).await.result.unwrap();
    label_namespace(&cluster, "shop", json!({"lucid.computing/enabled": "true"})).await;
    until_state(&operator, "Altered", 1).await;
}

#[tokio::test]
async fn images_are_updated_in_one_pod_after_the_other() {
    let cluster = cluster().await;
    config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", &catalogue('a')).await;
    config_map(&cluster, "lucid-system", "lucid-policy", "keeperRate", "600").await;
    let operator = operator(&cluster, |builder| {
        builder.env("LUCID_CHAIN", "injection").env("LUCID_KEEPER_ACTIONS", "update")
    })
    .await;
    let names = ["a", "b"];
    for name in names {
        create(&cluster, "shop", &secured(name)).await.result.unwrap();
        run(&cluster, name, true).await;
    }
    until_state(&operator, "Audited", 2).await;
    config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", &catalogue('b')).await;
    until_state(&operator, "Stale", 2).await;
    label_namespace(&cluster, "shop", json!({"lucid.computing/keeper": "update"})).await;
    let updated = async || {
        let mut updated = Vec::new();
        for name in names {
            if auditor_image(&stored(&cluster, "shop", name).await).ends_with('b') {
                updated.push(name);
            }
        }
        updated
    };
    eventually("the first pod is updated", async || updated().await == ["a"]).await;
    // Its auditor runs the former image, then is not ready.
    until_state(&operator, "Stale", 1).await;
    run(&cluster, "a", false).await;
    let waits = "a second pod is not touched before the first is ready";
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(updated().await, ["a"], "{waits}");
    run(&cluster, "a", true).await;
    eventually("both are updated", async || updated().await == names).await;
    let status: Value = serde_json::from_str(
        &stored(&cluster, "shop", "b").await.metadata.annotations.unwrap()["lucid.computing/status"],
    )
    .unwrap();
    assert!(status["images"][0].as_str().unwrap().ends_with('b'), "{status}");
}
