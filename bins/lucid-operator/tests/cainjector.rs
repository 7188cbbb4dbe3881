//! `lucid-operator cainjector` as a process
#![allow(clippy::unwrap_used, clippy::panic, reason = "what fails in a helper fails the test")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use lucid_e2e::{ClusterExt as _, Process, eventually};
use lucid_testbed::Cluster;
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(60);

fn command(cluster: &Cluster, arguments: &[&str]) -> Command {
    let mut command = lucid_e2e::command(env!("CARGO_BIN_EXE_lucid-operator"));
    command.arg("cainjector").args(arguments).env("KUBECONFIG", cluster.kubeconfig_path());
    command.env("LUCID_ADMIN_LISTEN", "127.0.0.1:0");
    command
}

struct Cainjector {
    process: Process,
    log: PathBuf,
}

impl Cainjector {
    fn start(cluster: &Cluster, arguments: &[&str]) -> Self {
        let log = cluster.folder().join(format!("cainjector{}.log", arguments.concat()));
        let process = Process::start("cainjector", command(cluster, arguments), log.clone()).unwrap();
        Self { process, log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until what it logged says so, and returns what `find` finds in it.
    async fn logs<T>(&self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        eventually(what, async || {
            let log = self.log();
            find(&log).ok_or(log)
        })
        .await
    }

    async fn get(&self, path: &str) -> String {
        let address = |log: &str| {
            let (_, after) = log.split_once("127.0.0.1:")?;
            let port: String = after.chars().take_while(char::is_ascii_digit).collect();
            (after.len() > port.len()).then(|| format!("127.0.0.1:{port}"))
        };
        let mut stream = TcpStream::connect(self.logs("admin address", address).await).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn injection_ends_at_sigterm_and_beside_cert_manager() {
    let cluster = Cluster::builder().start().await.unwrap();
    let running = Cainjector::start(&cluster, &[]);
    eventually("it is ready", async || {
        let response = running.get("/readyz").await;
        if response.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(running.log()) }
    })
    .await;
    // The default in place of OpenShift's is the certificate authority of `lucid-operator run`.
    let annotations = json!({ "service.beta.openshift.io/inject-cabundle": "true" });
    let config_map = json!({ "metadata": { "name": "trust", "annotations": annotations } });
    let config_maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    config_maps.create(&PostParams::default(), &serde_json::from_value(config_map).unwrap()).await.unwrap();
    let missing = "Secret lucid-system/lucid-operator-ca does not exist";
    running.logs(missing, |log| log.contains(missing).then_some(())).await;
    // CAs come from Secrets of its own namespace, unless others are listed.
    let elsewhere = json!({ "cert-manager.io/inject-ca-from-secret": "default/ca" });
    let service = json!({ "name": "v1.elsewhere.example.org", "annotations": elsewhere });
    let service = json!({ "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": service,
        "spec": { "group": "elsewhere.example.org", "version": "v1", "groupPriorityMinimum": 100,
            "versionPriority": 100, "service": { "namespace": "default", "name": "elsewhere" } } });
    assert!(cluster.kubectl(&["apply", "-f", "-"], &service.to_string()).unwrap().status.success());
    let refused = "CAs of namespace default are not allowed, expected one of: lucid-system";
    running.logs(refused, |log| log.contains(refused).then_some(())).await;
    let metrics = running.get("/metrics").await;
    assert!(metrics.contains("lucid_cainjector_refused{kind=\"ConfigMap\"} 1"), "{metrics}");
    assert!(
        metrics.contains("lucid_cainjector_writes_total{kind=\"APIService\",result=\"written\"} 0"),
        "{metrics}"
    );

    let log = running.log.clone();
    let status = running.process.terminate(PATIENCE).unwrap();
    let log = fs::read_to_string(log).unwrap();
    assert!(status.success() && log.contains("SIGTERM") && log.contains("stopped"), "{log}");

    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "cert-manager-cainjector-leader-election" },
        "spec": { "holderIdentity": "cainjector-0", "leaseDurationSeconds": 60, "renewTime": now },
    });
    let leases: Api<Lease> = Api::namespaced(cluster.client(), "kube-system");
    let name = "cert-manager-cainjector-leader-election";
    leases.patch(name, &PatchParams::apply("test"), &Patch::Apply(lease)).await.unwrap();
    let output = tokio::task::spawn_blocking({
        let mut command = command(&cluster, &[]);
        move || command.output().unwrap()
    });
    let output = output.await.unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    for part in [
        "beside a running cainjector of cert-manager: Lease kube-system/cert-manager-cainjector-leader-election",
        "(held by cainjector-0)",
        "--beside-cert-manager",
    ] {
        assert!(error.contains(part), "{error}");
    }

    let beside = Cainjector::start(&cluster, &["--beside-cert-manager", "--openshift-ca", "none"]);
    let watching = "watching all kinds";
    beside.logs(watching, |log| log.contains(watching).then_some(())).await;
    assert!(!beside.log().contains("lucid-operator-ca"));
}
