//! A node that runs pods.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{IpAddr, SocketAddr},
    path::Path,
    process::Stdio,
};

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use lucid_e2e::{ClusterExt as _, eventually};
use lucid_testbed::Cluster;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::common::{all_end, processes_of, test_in_a_process};

const HELLO: &str = "testbed.test/hello:1";

#[tokio::test]
async fn pods_run_respond_through_their_service_and_end() {
    if !lucid_e2e::can_run_nodes() {
        return;
    }
    let cluster = Cluster::builder().nodes(1).start().await.unwrap();
    let archive = cluster.folder().join("hello.tar");
    ctr(&cluster, &["tag", HELLO, "example.com/hello:1"]);
    ctr(&cluster, &["export", archive.to_str().unwrap(), "example.com/hello:1"]);
    ctr(&cluster, &["rm", "example.com/hello:1"]);
    let [pinned] = cluster.load_image(&archive).await.unwrap().try_into().unwrap();
    assert!(pinned.starts_with("example.com/hello@sha256:"), "{pinned}");

    // One names the image by its tag, the other by its digest.
    let pods = Api::<Pod>::default_namespaced(cluster.client());
    for (name, reference) in [("tag", "example.com/hello:1"), ("digest", &pinned)] {
        pods.create(&PostParams::default(), &pod(name, reference)).await.unwrap();
    }
    let services = Api::<Service>::default_namespaced(cluster.client());
    let service = json!({"metadata": {"name": "hello"}, "spec": {
        "selector": {"app": "hello"}, "ports": [{"port": 80, "targetPort": 8080}],
    }});
    let service = services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await;
    let address: IpAddr = service.unwrap().spec.unwrap().cluster_ip.unwrap().parse().unwrap();
    let address = SocketAddr::from((address, 80));

    for name in ["tag", "digest"] {
        let status = wait(&pods, name, is_ready).await["status"].clone();
        // Each pod, over both IP families.
        for pod_ip in status["podIPs"].as_array().unwrap() {
            let pod_ip: IpAddr = pod_ip["ip"].as_str().unwrap().parse().unwrap();
            answers(&cluster, (pod_ip, 8080).into(), name).await;
        }
        answers(&cluster, address, name).await;
    }
    let logs = cluster.kubectl(&["logs", "tag"], "").unwrap();
    assert!(String::from_utf8_lossy(&logs.stdout).contains("tag listens on :8080"), "{logs:?}");

    for name in ["tag", "digest"] {
        pods.delete(name, &DeleteParams::default()).await.unwrap();
        wait(&pods, name, Value::is_null).await;
    }
    eventually("the Service leads nowhere", async || get(&cluster, address).await.is_err()).await;
}

/// Runs containerd's client for the node's images.
fn ctr(cluster: &Cluster, arguments: &[&str]) {
    let socket = cluster.folder().join("node/containerd.sock");
    let mut ctr = cluster.command("ctr");
    ctr.arg("--address").arg(socket).args(["--namespace", "k8s.io", "images"]).args(arguments);
    let output = ctr.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn pod(name: &str, image: &str) -> Pod {
    let pod = json!({"metadata": {"name": name, "labels": {"app": "hello"}}, "spec": {
        "terminationGracePeriodSeconds": 5,
        "containers": [{
            "name": "hello",
            "image": image,
            "imagePullPolicy": "Never",
            "readinessProbe": {"httpGet": {"port": 8080}, "periodSeconds": 1},
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "runAsNonRoot": true,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        }],
    }});
    serde_json::from_value(pod).unwrap()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

/// Waits until the condition holds for the pod, or for null without one.
async fn wait(pods: &Api<Pod>, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    eventually(name, async || {
        let pod = serde_json::to_value(pods.get_opt(name).await.unwrap()).unwrap();
        if holds(&pod) { Ok(pod) } else { Err(pod) }
    })
    .await
}

/// Waits until the Service routes to this pod: the choice of the two is random.
async fn answers(cluster: &Cluster, address: SocketAddr, name: &str) {
    eventually(name, async || {
        let answer = get(cluster, address).await;
        if answer.as_deref().is_ok_and(|answer| answer == name) { Ok(()) } else { Err(answer) }
    })
    .await;
}

async fn get(cluster: &Cluster, address: SocketAddr) -> std::io::Result<String> {
    let mut stream = cluster.connect(address).await?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.lines().last().unwrap_or_default().to_owned())
}

#[tokio::test]
#[ignore = "run by the next test, in a process"]
async fn run_a_pod_until_killed() {
    let cluster = Cluster::builder().nodes(1).start().await.unwrap();
    let pods = Api::<Pod>::default_namespaced(cluster.client());
    pods.create(&PostParams::default(), &pod("hello", HELLO)).await.unwrap();
    wait(&pods, "hello", is_ready).await;
    // Installed before the parent learns the pid to signal.
    let mut end = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::user_defined1()).unwrap();
    println!("\ncluster {}", cluster.folder().display());
    end.recv().await;
}

#[tokio::test]
async fn nothing_remains_of_ended_and_killed_nodes() {
    if !lucid_e2e::can_run_nodes() {
        return;
    }
    let parent = tempfile::TempDir::new().unwrap();
    for signal in [Signal::USR1, Signal::KILL] {
        let mut process = test_in_a_process("node::run_a_pod_until_killed");
        let mut process = process.env("TMPDIR", parent.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find(|line| line.starts_with("cluster ")).unwrap();
        let folder = Path::new(line.strip_prefix("cluster ").unwrap());
        let cgroup = folder.file_name().unwrap().to_str().unwrap();
        assert!(!cgroups(cgroup).is_empty());
        assert!(pods_of(cgroup) > 0, "a pod has processes");
        assert_eq!(mounts_of(folder), 0, "they are the node's own");

        kill_process(Pid::from_raw(process.id().try_into().unwrap()).unwrap(), signal).unwrap();
        process.wait().unwrap();
        if signal == Signal::KILL {
            all_end(folder).await;
            eventually("the pods end", async || pods_of(cgroup) == 0).await;
            // The next start removes leftovers of the killed process, here a start of a cluster without programs.
            let mut next = test_in_a_process("binaries::start");
            let next =
                next.env("TMPDIR", parent.path()).env("KUBEBUILDER_ASSETS", programs_that_end(&parent));
            next.output().unwrap();
        }
        assert_eq!(processes_of(folder), []);
        assert_eq!(cgroups(cgroup), [""; 0]);
        assert!(!folder.exists());
    }
}

/// Programs that exit at once.
fn programs_that_end(parent: &tempfile::TempDir) -> std::path::PathBuf {
    let assets = parent.path().join("assets");
    fs::create_dir_all(&assets).unwrap();
    for name in ["etcd", "kube-apiserver"] {
        crate::common::script(&assets, name, "exit 7");
    }
    assets
}

fn cgroups(name: &str) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let hierarchies = mounts.lines().filter(|line| line.starts_with("cgroup"));
    let paths = hierarchies.map(|line| format!("{}/{name}", line.split(' ').nth(1).unwrap()));
    paths.filter(|path| Path::new(path).exists()).collect()
}

fn pods_of(name: &str) -> usize {
    let line = format!("/{name}/");
    let pids = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("cgroup"));
    pids.filter(|path| fs::read_to_string(path).is_ok_and(|text| text.contains(&line))).count()
}

fn mounts_of(folder: &Path) -> usize {
    fs::read_to_string("/proc/mounts").unwrap().matches(folder.to_str().unwrap()).count()
}
