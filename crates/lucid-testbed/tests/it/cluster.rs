//! Lifecycle of running clusters.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{IpAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use lucid_e2e::{ClusterExt as _, can_use_namespaces, eventually};
use lucid_testbed::Cluster;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::json;

use crate::common::{all_end, processes_of, test_in_a_process};

fn pod(name: &str) -> Pod {
    let pod = json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "app", "image": "example.com/app:1"}]},
    });
    serde_json::from_value(pod).unwrap()
}

#[tokio::test]
async fn two_clusters_at_once_are_apart_and_end_on_drop() {
    let (one, two) = tokio::join!(Cluster::builder().start(), Cluster::builder().start());
    let (one, two) = (one.unwrap(), two.unwrap());
    let pods = |cluster: &Cluster| Api::<Pod>::default_namespaced(cluster.client());

    pods(&one).create(&PostParams::default(), &pod("only-in-one")).await.unwrap();
    assert_eq!(pods(&one).list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert_eq!(pods(&two).list(&ListParams::default()).await.unwrap().items.len(), 0);
    audit_log_has_the_pod_and_nothing_else(&one, &two).await;
    a_user_has_no_permissions_by_default(&one).await;
    assert_eq!(one.host_address().to_string(), "127.0.0.1");
    one.expose_service("default", "hook", &[9443]).await.unwrap_err();

    let folders = [one.folder().to_owned(), two.folder().to_owned()];
    for folder in &folders {
        assert_eq!(processes_of(folder).len(), 2, "etcd and kube-apiserver");
    }
    drop((one, two));
    for folder in &folders {
        assert_eq!(processes_of(folder), []);
        assert!(!folder.exists());
    }
}

async fn audit_log_has_the_pod_and_nothing_else(one: &Cluster, two: &Cluster) {
    let config_map = ConfigMap { metadata: pod("settings").metadata, ..ConfigMap::default() };
    let config_maps = Api::<ConfigMap>::default_namespaced(one.client());
    config_maps.create(&PostParams::default(), &config_map).await.unwrap();

    let events = one.audit_events().unwrap();
    let created = events.iter().find(|event| event["verb"] == "create").unwrap();
    assert_eq!(created["objectRef"]["name"], "only-in-one");
    assert_eq!(created["level"], "Metadata");
    assert_eq!(created["user"]["username"], "kubernetes-admin");
    assert!(events.iter().all(|event| event["objectRef"]["resource"] == "pods"), "{events:?}");
    assert!(two.audit_events().unwrap().iter().all(|event| event["verb"] != "create"));
}

async fn a_user_has_no_permissions_by_default(cluster: &Cluster) {
    for (group, allowed) in [(None, false), (Some("somebody"), false), (Some("system:masters"), true)] {
        let kubeconfig = Kubeconfig::from_yaml(&cluster.kubeconfig_for("jane", group).unwrap()).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        config.proxy_url = None;
        let client = Client::try_from(config).unwrap();
        let list = Api::<ConfigMap>::default_namespaced(client).list(&ListParams::default()).await;
        match list {
            Ok(_) => assert!(allowed, "{group:?}"),
            Err(kube::Error::Api(status)) => {
                assert!(!allowed && status.code == 403 && status.message.contains("jane"), "{status:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Runs a test's work on a separate thread with its own runtime.
fn on_a_thread<T: Send + 'static>(
    test: impl AsyncFnOnce(Cluster) -> T + Send + 'static,
) -> std::thread::Result<T> {
    let test = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { test(Cluster::builder().start().await.unwrap()).await })
    });
    test.join()
}

#[test]
fn a_panic_ends_the_cluster_and_keeps_its_logs() {
    let (sender, folder) = std::sync::mpsc::channel::<PathBuf>();
    let outcome = on_a_thread(async move |cluster| {
        sender.send(cluster.folder().to_owned()).unwrap();
        panic!("a test fails");
    });
    assert!(outcome.is_err());
    has_ended_with_its_logs_kept(&folder.recv().unwrap());
}

#[test]
fn clusters_outlive_their_thread_but_not_their_components() {
    let cluster = on_a_thread(async |cluster| cluster).unwrap();
    let folder = cluster.folder().to_owned();
    std::thread::sleep(Duration::from_millis(300));
    let processes = processes_of(&folder);
    assert_eq!(processes.len(), 2, "{processes:?}");

    let (pid, _) = processes.into_iter().find(|(_, line)| line.contains("kube-apiserver")).unwrap();
    let pid = Pid::from_raw(pid).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    // Waits for the end without reaping, so that the drop is the first to see the status.
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
    drop(cluster);
    has_ended_with_its_logs_kept(&folder);
}

fn has_ended_with_its_logs_kept(folder: &Path) {
    assert_eq!(processes_of(folder), []);
    assert!(fs::metadata(folder.join("logs/kube-apiserver.log")).unwrap().len() > 0);
    assert!(!folder.join("etcd").exists(), "the data is of no use");
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
#[ignore = "run by the next test, in a process"]
async fn run_until_killed() {
    let builder = Cluster::builder();
    let builder = if can_use_namespaces() { builder.webhooks_by_service() } else { builder };
    let cluster = builder.start().await.unwrap();
    println!("\ncluster {} {}", cluster.folder().display(), cluster.host_address());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn nothing_remains_of_a_killed_process() {
    // Another test's start would remove the folder of the killed process.
    let parent = tempfile::TempDir::new().unwrap();
    let mut process = test_in_a_process("cluster::run_until_killed");
    let mut process = process.env("TMPDIR", parent.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.starts_with("cluster ")).unwrap();
    let [_, folder, address] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let (folder, address): (_, IpAddr) = (Path::new(folder), address.parse().unwrap());
    assert_eq!(processes_of(folder).len(), 2);
    TcpListener::bind((address, 0)).unwrap();

    process.kill().unwrap();
    process.wait().unwrap();
    all_end(folder).await;
    if !address.is_loopback() {
        eventually("the address is gone", async || TcpListener::bind((address, 0)).is_err()).await;
    }
    assert!(folder.exists());

    // Like the next tests under cargo-nextest, which runs each in a process.
    let next =
        [(); 2].map(|()| test_in_a_process("binaries::start").env("TMPDIR", parent.path()).spawn().unwrap());
    for mut next in next {
        assert!(next.wait().unwrap().success());
    }
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0, "they remove what was left, and their own");
}
