//! examples/admission: Lucid's webhooks in a third-party operator.

use std::net::Ipv4Addr;

use lucid_e2e::{ClusterExt as _, Process, free_port, program};
use serde_json::json;

use crate::common::{cluster, create, pod, until};

#[test]
fn the_example_has_at_most_80_lines() {
    let lines = include_str!("../../../examples/admission/src/main.rs").lines().count();
    assert!(lines <= 80, "examples/admission has {lines} lines");
}

#[tokio::test]
async fn a_third_party_operator_injects_and_validates() {
    let cluster = cluster().await;
    cluster.create_namespace("guard-system", &[]).await.unwrap();
    let port = free_port(Ipv4Addr::LOCALHOST.into()).unwrap();
    let mut command = lucid_e2e::command(program("example-admission").unwrap());
    command.arg(format!("127.0.0.1:{port}")).env("KUBECONFIG", cluster.kubeconfig_path());
    let _operator = Process::start("guard", command, cluster.folder().join("logs/guard.log")).unwrap();

    let labels = json!({"lucid.io/secured": "true", "lucid.computing/tier": "A"});
    let of_tier_a = |name: &str| pod(name, labels.clone(), json!({}));
    let has_chain = |response: &lucid_e2e::Answer| {
        let stored = response.clone().stored();
        stored.is_ok_and(|pod| pod.spec.is_some_and(|spec| spec.containers.len() == 3))
    };
    until(&cluster, "shop", of_tier_a, has_chain).await;
    let untiered = |name: &str| pod(name, json!({"lucid.io/secured": "true"}), json!({}));
    let refused =
        until(&cluster, "shop", untiered, |response| response.refusal().contains("validate.lucid.computing"))
            .await;
    let reason = refused.refusal();
    assert!(reason.contains("lucid.computing/tier"), "{reason}");
    // Namespaces that are not enabled are left alone.
    let other = create(&cluster, "other", &untiered("web")).await.stored().unwrap();
    assert_eq!(other.spec.unwrap().containers.len(), 1);
}
