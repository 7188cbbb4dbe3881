//! examples/embed: an operator of somebody else, with the rights of its manifest.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::PostParams;
use lucid_e2e::{call, create_pod, program};
use lucid_testbed::{Cluster, Process, can_use_namespaces};
use serde_json::json;

use crate::common::{eventually, eventually_holds, pod};

#[test]
fn sixty_lines_are_enough() {
    let lines = include_str!("../../../examples/embed/src/main.rs").lines().count();
    assert!(lines <= 60, "examples/embed has {lines} lines");
}

#[tokio::test]
async fn an_operator_of_somebody_else_changes_pods_with_a_certificate_of_its_own() {
    if !can_use_namespaces() {
        return;
    }
    let path = program("example-embed").unwrap();
    let cluster = Cluster::builder().webhooks_by_service().start().await.unwrap();
    let manifest = include_str!("../../../examples/embed/deploy.yaml");
    let applied = cluster.kubectl(&["apply", "--server-side", "-f", "-"], manifest).unwrap();
    assert!(applied.status.success(), "{applied:?}");
    // It runs beside the API server, which stands for the node of its Deployment.
    let address = cluster.server().parse::<http::Uri>().unwrap().host().unwrap().to_owned();
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": {"name": "tidy", "labels": {"kubernetes.io/service-name": "tidy"}}, "addressType": "IPv4",
        "ports": [{"port": 8443}], "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
    }))
    .unwrap();
    let slices = Api::<EndpointSlice>::namespaced(cluster.client(), "tidy-system");
    slices.create(&PostParams::default(), &slice).await.unwrap();
    let user = "system:serviceaccount:tidy-system:tidy";
    let kubeconfig = cluster.folder().join("tidy.kubeconfig");
    std::fs::write(&kubeconfig, cluster.kubeconfig_for(user, Some("system:serviceaccounts")).unwrap())
        .unwrap();
    let log = cluster.folder().join("tidy.log");
    let mut command = cluster.command(path);
    command.env("KUBECONFIG", &kubeconfig);
    let operator = Process::start("tidy", command, log.clone()).unwrap();

    let admin = format!("{address}:8080").parse().unwrap();
    eventually_holds("it is not ready", async || {
        call(&cluster, admin, "/readyz", None).await.is_ok_and(|ready| ready.status.is_success())
    })
    .await;
    let labels = [("tidy.example.com/enabled", "true")];
    cluster.create_namespace("shop", &labels).await.unwrap();
    cluster.create_namespace("other", &[]).await.unwrap();
    let manifest = pod("web", json!({}), json!({}));
    // The API server has to have heard of the registration, and whom to trust.
    eventually(async || {
        let path = "/api/v1/namespaces/shop/pods?dryRun=All";
        let sent =
            lucid_e2e::send(&cluster.client(), http::Method::POST, path, "application/json", &manifest).await;
        let pod = sent.unwrap().stored().map_err(|refusal| refusal.to_string())?;
        let annotations = pod.metadata.annotations.unwrap_or_default();
        let owner = annotations.get("tidy.example.com/owner");
        let is_named = owner.is_some_and(|owner| owner == "kubernetes-admin");
        if is_named { Ok(()) } else { Err(format!("{annotations:?}")) }
    })
    .await;
    let other = create_pod(&cluster.client(), "other", &manifest).await.unwrap().stored().unwrap();
    assert_eq!(other.metadata.annotations, None, "a namespace that has not asked for it");

    let secrets = Api::<Secret>::namespaced(cluster.client(), "tidy-system");
    assert!(secrets.get("tidy-ca").await.unwrap().data.is_some());
    let registered = Api::<MutatingWebhookConfiguration>::all(cluster.client()).get("tidy").await.unwrap();
    assert!(registered.webhooks.unwrap()[0].client_config.ca_bundle.is_some());
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(!said.contains("forbidden") && !said.contains("ERROR"), "{said}");
    operator.kill();
}
