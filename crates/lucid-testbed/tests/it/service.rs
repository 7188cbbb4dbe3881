//! A webhook registered by Service.

use std::{net::IpAddr, process::Command, time::Duration};

use k8s_openapi::api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::ConfigMap};
use kube::{Api, api::PostParams};
use lucid_e2e::{ClusterExt as _, can_use_namespaces, eventually};
use lucid_testbed::Cluster;
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream},
};

use crate::common::{script, test_in_a_process};

#[tokio::test]
async fn the_api_server_calls_a_service_of_this_process() {
    if !can_use_namespaces() {
        return;
    }
    let builder = Cluster::builder().webhooks_by_service();
    let (one, two) = tokio::join!(builder.clone().start(), builder.start());
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.host_address(), two.host_address());

    for cluster in [&one, &two] {
        register(cluster).await;
        let refused = create(cluster).await.unwrap_err().to_string();
        assert!(refused.contains("service \"hook\" not found"), "{refused}");

        let listener = TcpListener::bind((cluster.host_address(), 0)).await.unwrap();
        cluster.expose_service("hooks", "hook", &[listener.local_addr().unwrap().port()]).await.unwrap();
        let (hello, refused) = tokio::join!(client_hello(&listener), called(cluster));
        assert!(refused.contains("failed calling webhook"), "{refused}");
        let (hello, from) = hello;
        assert_eq!(hello[0], 22, "a TLS handshake record");
        let name = b"hook.hooks.svc";
        assert!(hello.windows(name.len()).any(|window| window == name), "the server name");
        assert!(cluster.server().contains(&from.to_string()), "{from} is not {}", cluster.server());
    }

    let addresses = [one.host_address(), two.host_address()];
    drop((one, two));
    for address in addresses {
        let error = TcpListener::bind((address, 0)).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrNotAvailable, "the link is gone");
    }
}

#[tokio::test]
#[ignore = "run by the next test, in a process"]
async fn start_by_service() {
    let error = Cluster::builder().webhooks_by_service().start().await.unwrap_err();
    eprintln!("{error:?}");
}

/// Uses a network namespace of the test, to leave the routes of this machine unchanged.
#[test]
fn subnets_with_a_route_are_not_taken() {
    if !can_use_namespaces() {
        return;
    }
    let assets = TempDir::new().unwrap();
    script(assets.path(), "etcd", "exec sleep 60");
    script(assets.path(), "kube-apiserver", "echo \"$@\"; exit 7");
    for (routes, outcome) in [
        ("", "--bind-address=10.77.0.2 "),
        ("default 0.0.0.0/1", "--bind-address=10.77.0.2 "),
        ("10.77.0.0/29 10.77.0.9", "--bind-address=10.77.0.14 "),
        ("10.0.0.0/8", "--bind-address=10.77.0.2 "),
        ("10.77.0.0/16", "this machine has routes into every one of 10.77.0.0/16: 10.77.0.0/16 (lo)"),
    ] {
        let test = test_in_a_process("service::start_by_service");
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-ec"]).arg(
            "ip link set lo up; for route in $ROUTES; do ip route add $route dev lo; done; exec \"$0\" \"$@\"",
        );
        command.arg(test.get_program()).args(test.get_args());
        command.env("ROUTES", routes).env("TMPDIR", assets.path()).env("KUBEBUILDER_ASSETS", assets.path());
        let output = String::from_utf8(command.output().unwrap().stderr).unwrap();
        assert!(output.contains(outcome), "{routes}: {output}");
    }
}

#[tokio::test]
async fn missing_root_is_reported() {
    if rustix::process::geteuid().is_root() {
        return;
    }
    let error = Cluster::builder().webhooks_by_service().start().await.unwrap_err();
    assert!(format!("{error:?}").contains("webhooks by Service need root"), "{error:?}");
}

async fn register(cluster: &Cluster) {
    let configuration = json!({"metadata": {"name": "hook"}, "webhooks": [{
        "name": "hook.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "clientConfig": {"service": {"namespace": "hooks", "name": "hook", "path": "/validate"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        // Excludes the cluster's own ConfigMaps.
        "objectSelector": {"matchLabels": {"checked": "true"}},
    }]});
    let configurations = Api::<ValidatingWebhookConfiguration>::all(cluster.client());
    let configuration = serde_json::from_value(configuration).unwrap();
    configurations.create(&PostParams::default(), &configuration).await.unwrap();
    // The API server learns of the registration by a watch.
    eventually("the webhook is called", async || create(cluster).await.is_err()).await;
}

/// Returns the denial of a ConfigMap once the API server, which watches Services too, has the endpoint.
async fn called(cluster: &Cluster) -> String {
    eventually("the endpoint is known", async || {
        let refused = create(cluster).await.unwrap_err().to_string();
        let is_called = !refused.contains("not found") && !refused.contains("no endpoints");
        if is_called { Ok(refused) } else { Err(refused) }
    })
    .await
}

async fn create(cluster: &Cluster) -> kube::Result<ConfigMap> {
    let config_map = json!({"metadata": {"generateName": "checked-", "labels": {"checked": "true"}}});
    let config_map = serde_json::from_value(config_map).unwrap();
    Api::default_namespaced(cluster.client()).create(&PostParams::default(), &config_map).await
}

async fn client_hello(listener: &TcpListener) -> (Vec<u8>, IpAddr) {
    let accepted = tokio::time::timeout(Duration::from_secs(30), listener.accept()).await;
    let (mut stream, peer): (TcpStream, _) = accepted.expect("the API server connects").unwrap();
    let mut hello = vec![0; 4096];
    let length = stream.read(&mut hello).await.unwrap();
    hello.truncate(length);
    (hello, peer.ip())
}
