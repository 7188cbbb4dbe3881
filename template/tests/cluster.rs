//! The operator on a real API server, which calls it by its Service. Needs root.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::process::{Child, Command};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Endpoints, Namespace, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use lucid_testbed::{Cluster, binary};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn object<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).unwrap()
}

async fn apply_manifest(cluster: &Cluster) {
    let mut kubectl = Command::new(binary("kubectl").await.unwrap());
    kubectl.env("KUBECONFIG", cluster.kubeconfig_path()).args(["apply", "--server-side", "-f"]);
    let output = kubectl.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy.yaml")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Starts the operator in the network of the API server, with the permissions of the manifest.
async fn start_operator(cluster: &Cluster) -> Child {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
    let server = kubeconfig.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap();
    let address = server.parse::<http::Uri>().unwrap().host().unwrap().to_owned();
    let slice = object::<EndpointSlice>(json!({
        "metadata": {"name": "{{project-name | kebab_case}}", "labels": {"kubernetes.io/service-name": "{{project-name | kebab_case}}"}}, "addressType": "IPv4",
        "ports": [{"port": 8443}], "endpoints": [{"addresses": [&address], "conditions": {"ready": true}}],
    }));
    let slices = Api::namespaced(cluster.client(), "{{project-name | kebab_case}}-system");
    slices.create(&PostParams::default(), &slice).await.unwrap();
    // API servers before 1.34 read no slices.
    let endpoints = object::<Endpoints>(json!({
        "metadata": {"name": "{{project-name | kebab_case}}", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": 8443}]}],
    }));
    let all = Api::namespaced(cluster.client(), "{{project-name | kebab_case}}-system");
    all.create(&PostParams::default(), &endpoints).await.unwrap();

    let path = cluster.folder().join("{{project-name | kebab_case}}.kubeconfig");
    let user = "system:serviceaccount:{{project-name | kebab_case}}-system:{{project-name | kebab_case}}";
    std::fs::write(&path, cluster.kubeconfig_for(user, None).unwrap()).unwrap();
    let mut operator = cluster.command(env!("CARGO_BIN_EXE_{{project-name}}"));
    let log = File::create(cluster.folder().join("logs/{{project-name | kebab_case}}.log")).unwrap();
    operator.env("KUBECONFIG", path).stderr(log).spawn().unwrap()
}

#[tokio::test]
async fn pods_get_their_creator() {
    let builder = Cluster::builder().webhooks_by_service();
    if let Err(error) = builder.check() {
        return eprintln!("skipped: {error:?}");
    }
    let cluster = builder.start().await.unwrap();
    apply_manifest(&cluster).await;
    let mut operator = start_operator(&cluster).await;

    let namespace = object::<Namespace>(json!({
        "metadata": {"name": "shop", "labels": {"{{group}}/enabled": "true"}},
    }));
    Api::all(cluster.client()).create(&PostParams::default(), &namespace).await.unwrap();
    let pods = Api::<Pod>::namespaced(cluster.client(), "shop");
    let pod = object(json!({
        "metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]},
    }));
    let owned = async {
        loop {
            // Denied until the API server trusts the operator's certificate.
            if let Ok(pod) = pods.create(&PostParams::default(), &pod).await
                && let Some(owner) =
                    pod.metadata.annotations.unwrap_or_default().remove("{{group}}/owner")
            {
                break owner;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let owner = tokio::time::timeout(Duration::from_mins(2), owned).await.unwrap();
    assert_eq!(owner, "kubernetes-admin");
    operator.kill().unwrap();
    operator.wait().unwrap();
}
