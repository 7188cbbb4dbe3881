//! Clusters with kube-controller-manager.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use lucid_e2e::{ClusterExt as _, eventually};
use lucid_testbed::Cluster;
use serde_json::json;

#[tokio::test]
async fn deployments_get_pods_with_the_default_service_account() {
    let cluster = Cluster::builder().controller_manager().start().await.unwrap();
    cluster.create_namespace("team", &[("lucid.computing/enabled", "true")]).await.unwrap();

    let deployment = json!({"metadata": {"name": "app"}, "spec": {
        "selector": {"matchLabels": {"app": "app"}},
        "template": {"metadata": {"labels": {"app": "app"}}, "spec": {
            "containers": [{"name": "app", "image": "example.com/app:1"}],
        }},
    }});
    let deployments = Api::<Deployment>::namespaced(cluster.client(), "team");
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();

    let pods = Api::<Pod>::namespaced(cluster.client(), "team");
    let spec = eventually("a pod", async || {
        let list = pods.list(&ListParams::default()).await.unwrap();
        list.items.first().and_then(|pod| pod.spec.clone())
    })
    .await;
    assert_eq!(spec.service_account_name.as_deref(), Some("default"));
}
