//! Images on a node: their programs run as configured by their Containerfiles.

use std::net::SocketAddr;

use http::StatusCode;
use lucid_e2e::{Image, Installation, call, image};
use serde_json::{Value, json};

use super::{addresses, create, wait};
use crate::cli::kubectl;
use crate::common::restricted;

const PROGRAMS: [&str; 5] =
    ["lucid-operator", "lucid-validator", "lucid-verifier", "lucid-init", "lucid-egress"];
const NAMESPACE: &str = "default";

#[tokio::test]
async fn every_image_runs_by_tag_and_by_digest() {
    if !Installation::can_run() {
        return;
    }
    let site = Installation::prepare().await.unwrap();
    for name in PROGRAMS {
        let Image { reference, .. } = image(name).unwrap();
        let pinned = image(name).unwrap().pinned();
        let container =
            |name: &str, reference: &str| container(name, reference, json!({"args": ["--version"]}));
        let containers = [container("tag", &reference), container("digest", &pinned)];
        let pod = pod(name, json!({"restartPolicy": "Never", "containers": containers}));
        create(&site, NAMESPACE, &pod).await;
    }
    create_chain(&site).await;

    for name in PROGRAMS {
        wait(&site, NAMESPACE, &format!("pod/{name}"), "jsonpath={.status.phase}=Succeeded");
        for container in ["tag", "digest"] {
            let logs = site.kubectl(&["logs", "-n", NAMESPACE, name, "--container", container]).unwrap();
            assert_eq!(logs.trim(), format!("{name} {}", env!("CARGO_PKG_VERSION")));
        }
    }
    wait(&site, NAMESPACE, "pod/chain", "condition=Ready");
    for address in addresses(&site, NAMESPACE, "chain").await {
        let address = SocketAddr::new(address, 8090);
        let response = call(&site.cluster, address, "/", Some("hello")).await.unwrap();
        assert_eq!(
            (response.status, &response.body["body"]),
            (StatusCode::OK, &json!("hello")),
            "{response:?}"
        );
        let response = call(&site.cluster, address, "/", Some("the secret word")).await.unwrap();
        assert_eq!(response.status, StatusCode::FORBIDDEN, "{response:?}");
    }
}

/// Two auditors and a model, which resolve each other with glibc: the first one by /etc/hosts, the second one by the cluster's
/// DNS.
async fn create_chain(site: &Installation) {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "model", "namespace": NAMESPACE},
        "spec": {"clusterIP": "None", "selector": {"app": "chain"}, "publishNotReadyAddresses": true}});
    kubectl(&site.cluster, &["create", "-f", "-"], &service.to_string());
    let (auditor, model) = (image("example-auditor").unwrap(), image("example-model").unwrap());
    let auditor = |name: &str, port: u16, next: &str| {
        container(
            name,
            &auditor.pinned(),
            json!({
                "env": [
                    {"name": "LUCID_CHAIN_NEXT", "value": next},
                    {"name": "LUCID_AUDITOR_PORT", "value": port.to_string()},
                    {"name": "BLOCKED_PHRASES", "value": "secret word"},
                ],
                "readinessProbe": probe(port),
            }),
        )
    };
    let chain = json!({
        "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["next.example"]}],
        "containers": [
            auditor("first", 8090, "http://next.example:8091"),
            auditor("second", 8091, "http://model:5000"),
            container("model", &model.pinned(), json!({"readinessProbe": probe(5000)})),
        ],
    });
    create(site, NAMESPACE, &pod("chain", chain)).await;
}

fn probe(port: u16) -> Value {
    json!({"httpGet": {"path": "/health", "port": port}, "periodSeconds": 1})
}

/// A container with all restrictions, except for the fields in `rest`.
fn container(name: &str, image: &str, rest: Value) -> Value {
    let mut container = json!({"name": name, "image": image, "imagePullPolicy": "Never",
        "securityContext": restricted()});
    container["securityContext"]["readOnlyRootFilesystem"] = json!(true);
    json_patch::merge(&mut container, &rest);
    container
}

fn pod(name: &str, mut spec: Value) -> Value {
    spec["terminationGracePeriodSeconds"] = json!(5);
    json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
}
