//! Clusters with kube-controller-manager and kube-scheduler.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, Pod},
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use lucid_e2e::eventually;
use lucid_testbed::Cluster;
use serde_json::json;

#[tokio::test]
async fn deployments_get_pods_with_the_default_service_account() {
    let cluster = Cluster::builder().controller_manager().scheduler().start().await.unwrap();
    cluster.create_namespace("team", &[("lucid.computing/enabled", "true")]).await.unwrap();

    let node = json!({"metadata": {"name": "paper"}, "status": {
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let nodes = Api::<Node>::all(cluster.client());
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let deployment = json!({"metadata": {"name": "app"}, "spec": {
        "selector": {"matchLabels": {"app": "app"}},
        "template": {"metadata": {"labels": {"app": "app"}}, "spec": {
            "containers": [{"name": "app", "image": "example.com/app:1"}],
            // A controller adds these tolerations to pods on a node without a kubelet.
            "tolerations": [{"operator": "Exists"}],
        }},
    }});
    let deployments = Api::<Deployment>::namespaced(cluster.client(), "team");
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();

    let pods = Api::<Pod>::namespaced(cluster.client(), "team");
    let spec = eventually("a pod on the node", async || {
        let list = pods.list(&ListParams::default()).await.unwrap();
        let spec = list.items.first().and_then(|pod| pod.spec.clone());
        spec.filter(|spec| spec.node_name.as_deref() == Some("paper")).ok_or(list)
    })
    .await;
    assert_eq!(spec.service_account_name.as_deref(), Some("default"));
}
