//! The images on a node: their programs run there as their Containerfiles say.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use lucid_e2e::{call, image};
use lucid_testbed::{Cluster, node};
use serde_json::{Value, json};
use tokio::net::UdpSocket;

/// A busy machine takes its time.
const PATIENCE: Duration = Duration::from_secs(120);

const PROGRAMS: [&str; 4] = ["lucid-operator", "lucid-validator", "lucid-verifier", "lucid-init"];

#[tokio::test]
async fn every_image_runs_on_a_node_by_its_tag_and_by_its_digest() {
    if !node::can_run() {
        return;
    }
    let images = PROGRAMS.map(|name| image(name).unwrap());
    let (auditor, model) = (image("example-auditor").unwrap(), image("example-model").unwrap());
    let cluster = Cluster::builder().node().start().await.unwrap();
    for image in images.iter().chain([&auditor, &model]) {
        assert_eq!(cluster.load_archive(&image.archive).await.unwrap(), [image.pinned()]);
    }
    let pods = Api::<Pod>::default_namespaced(cluster.client());

    for (name, image) in PROGRAMS.iter().zip(&images) {
        let container =
            |name: &str, reference: &str| container(name, reference, json!({"args": ["--version"]}));
        let containers = [container("tag", &image.reference), container("digest", &image.pinned())];
        create(&pods, name, json!({"restartPolicy": "Never", "containers": containers})).await;
    }
    // Names, as programs linked with glibc find them: the first auditor asks /etc/hosts, the second a server.
    let server = cluster.host_address();
    let names = UdpSocket::bind((server, 53)).await.unwrap();
    tokio::spawn(answer_names(names));
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
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": [server]},
        "containers": [
            auditor("first", 8090, "http://next.example:8091"),
            auditor("second", 8091, "http://model.example:5000"),
            container("model", &model.pinned(), json!({"readinessProbe": probe(5000)})),
        ],
    });
    create(&pods, "chain", chain).await;

    for name in PROGRAMS {
        wait(&cluster, &pods, name, |pod| pod["status"]["phase"] == "Succeeded").await;
        for container in ["tag", "digest"] {
            let logs = cluster.kubectl(&["logs", name, "--container", container], "").unwrap();
            let logs = String::from_utf8_lossy(&logs.stdout).into_owned();
            assert_eq!(logs.trim(), format!("{name} {}", env!("CARGO_PKG_VERSION")));
        }
    }
    let pod = wait(&cluster, &pods, "chain", |pod| {
        let conditions = pod["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
    })
    .await;
    for address in pod["status"]["podIPs"].as_array().unwrap() {
        let address = SocketAddr::new(address["ip"].as_str().unwrap().parse::<IpAddr>().unwrap(), 8090);
        let answer = call(&cluster, address, "/", Some("hello")).await.unwrap();
        assert_eq!((answer.status, &answer.body["body"]), (StatusCode::OK, &json!("hello")), "{answer:?}");
        let answer = call(&cluster, address, "/", Some("the secret word")).await.unwrap();
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{answer:?}");
    }
}

/// Serves DNS, in which only names of the model have an address: 127.0.0.1.
async fn answer_names(socket: UdpSocket) {
    const HEADER: usize = 12;
    let mut buffer = [0; 512];
    loop {
        let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
        let query = &buffer[..length];
        // The question: a name, which ends with an empty label, a type and a class.
        let name = query[HEADER..].iter().position(|byte| *byte == 0).unwrap();
        let question = &query[HEADER..HEADER + name + 5];
        let is_known = question.starts_with(b"\x05model") && question[name + 1..name + 3] == [0, 1];
        let mut answer =
            [&query[..2], &[0x81, 0x80, 0, 1, 0, u8::from(is_known), 0, 0, 0, 0], question].concat();
        if is_known {
            // The name of the question, type A, class IN, for 60 s, 4 bytes.
            answer.extend([0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
        }
        socket.send_to(&answer, peer).await.unwrap();
    }
}

fn probe(port: u16) -> Value {
    json!({"httpGet": {"path": "/health", "port": port}, "periodSeconds": 1})
}

/// As restricted as a container can be, but for what `rest` says.
fn container(name: &str, image: &str, rest: Value) -> Value {
    let mut container = json!({
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    json_patch::merge(&mut container, &rest);
    container
}

async fn create(pods: &Api<Pod>, name: &str, mut spec: Value) {
    spec["terminationGracePeriodSeconds"] = json!(5);
    let pod = json!({"metadata": {"name": name}, "spec": spec});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

/// The pod when this is so.
async fn wait(cluster: &Cluster, pods: &Api<Pod>, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pod = serde_json::to_value(pods.get(name).await.unwrap()).unwrap();
        if holds(&pod) {
            return pod;
        }
        if Instant::now() >= deadline {
            let events = cluster.kubectl(&["get", "events"], "").unwrap();
            panic!("{:#}\n{}", pod["status"], String::from_utf8_lossy(&events.stdout));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
