//! Lucid on a real node, installed by its chart: pods run, and callers get the responses that the chain permits.

mod chain;
mod hardening;
mod host_network;
mod images;
mod keeper;
mod operations;
mod validator;

use std::fs;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use lucid_e2e::{ClusterExt as _, Installation, Reaction, call, eventually, image, notarized_auditors};
use serde_json::{Value, json};

use crate::common::{ENABLED, restricted};

/// Values of [`notarized_auditors`], with the Verifier on the first node.
fn values() -> Value {
    let mut values = notarized_auditors().unwrap();
    values["verifier"]["nodeSelector"] = json!({"kubernetes.io/hostname": "node"});
    values
}

async fn installed(nodes: u8) -> Installation {
    let site = Installation::prepare_with_nodes(nodes).await.unwrap();
    let mut values = values();
    let authority = fs::read_to_string(site.cluster.authority_path()).unwrap();
    let chain = values["catalogue"]["chain"].as_array_mut().unwrap();
    let egress = chain.iter_mut().find(|entry| entry["name"] == "lucid-egress").unwrap();
    egress["env"] = json!({"LUCID_UPSTREAM_CA": authority});
    chain.push(reader());
    let notarized = values["verifier"]["notarized"].as_array_mut().unwrap();
    notarized.push(json!(image("example-model").unwrap().digest));
    site.install(&values.to_string()).await.unwrap();
    site.cluster.create_namespace("shop", &[ENABLED]).await.unwrap();
    site
}

/// An auditor whose phrases are in a Secret, with files of every kind.
fn reader() -> Value {
    json!({
        "name": "reader", "image": image("example-auditor").unwrap().pinned(), "port": 8099,
        "env": {"BLOCKED_PHRASES": {"valueFrom": {"secretKeyRef": {"name": "reader", "key": "phrases"}}}},
        "files": [
            {"mountPath": "/rules", "configMap": {"name": "reader"}},
            {"mountPath": "/keys", "secret": {"secretName": "reader"}},
            {"mountPath": "/models", "image": {"reference": image("example-model").unwrap().pinned()}},
        ],
    })
}

/// A pod with a model on port 5000 and an application with a shell, valid for Pod Security `restricted`.
fn pod(name: &str, annotations: &Value) -> Value {
    let mut annotations = annotations.clone();
    annotations["lucid.computing/auditors"] = json!("injection,toxicity");
    let mut security = restricted();
    security["runAsUser"] = json!(10001);
    let probe =
        json!({"httpGet": {"path": "/health", "port": 5000}, "periodSeconds": 1, "timeoutSeconds": 10});
    let mut liveness = probe.clone();
    // An auditor that restarts, or other load, may take some of them.
    liveness["failureThreshold"] = json!(60);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}, "annotations": annotations},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {"name": "model", "image": image("example-model").unwrap().pinned(), "ports": [{"containerPort": 5000}],
                    "readinessProbe": probe, "livenessProbe": liveness, "securityContext": security},
                {"name": "app", "image": Installation::BUSYBOX, "args": ["sleep", "3600"], "securityContext": security},
            ],
        },
    })
}

async fn create(site: &Installation, namespace: &str, manifest: &Value) {
    let pod: Pod = serde_json::from_value(manifest.clone()).unwrap();
    let pods = Api::<Pod>::namespaced(site.cluster.client(), namespace);
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

/// Waits for a condition of `what`, like `kubectl wait`.
fn wait(site: &Installation, namespace: &str, what: &str, condition: &str) {
    let condition = format!("--for={condition}");
    let arguments = ["wait", "-n", namespace, what, &condition, "--timeout=120s"];
    if let Err(error) = site.kubectl(&arguments) {
        let about = site.kubectl_says(&["describe", "-n", namespace, what]);
        let all = site.kubectl_says(&["get", "pods", "-A", "-o", "wide"]);
        panic!("{error}\n{about}\n{all}");
    }
}

async fn stored(site: &Installation, namespace: &str, name: &str) -> Value {
    let pods = Api::<Pod>::namespaced(site.cluster.client(), namespace);
    serde_json::to_value(pods.get(name).await.unwrap()).unwrap()
}

/// Addresses of a pod: IPv4, IPv6.
async fn addresses(site: &Installation, namespace: &str, name: &str) -> Vec<IpAddr> {
    let pod = stored(site, namespace, name).await;
    let addresses = pod["status"]["podIPs"].as_array().unwrap();
    addresses.iter().map(|address| address["ip"].as_str().unwrap().parse().unwrap()).collect()
}

async fn ask(site: &Installation, address: impl Into<SocketAddr>, prompt: &str) -> Reaction {
    let address = address.into();
    let body = json!({"prompt": prompt}).to_string();
    // Without a readiness probe a pod is ready before its auditors listen.
    let what = format!("a response from {address}");
    eventually(&what, async || call(&site.cluster, address, "/v1/chat", Some(&body)).await).await
}

/// Asserts that the request has passed both auditors in order, and no hop but lucid-egress otherwise.
fn assert_through_the_chain(response: &Value, about: &str) {
    let way = response["headers"]["via"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let way: Vec<_> = way.filter(|hop| !hop.starts_with("1.1 lucid-egress-")).collect();
    assert_eq!(way, ["1.1 lucid-injection-auditor", "1.1 lucid-toxicity-auditor"], "{about}: {response}");
}

fn busybox(site: &Installation, namespace: &str, pod: &str, container: &str, arguments: &[&str]) -> String {
    let mut all = vec!["exec", "-n", namespace, pod, "-c", container, "--", "/busybox"];
    all.extend(arguments);
    site.kubectl_says(&all)
}

/// Requests this URL from a container of a pod. Without a response, the object contains the error.
fn wget(site: &Installation, namespace: &str, pod: &str, container: &str, url: &str) -> Value {
    // Debian's busybox crashes on the option `-T` of wget.
    let wget = ["timeout", "10", "/busybox", "wget", "-q", "-O", "-", url];
    let response = busybox(site, namespace, pod, container, &wget);
    serde_json::from_str(&response).unwrap_or_else(|_| json!({"url": url, "said": response}))
}

fn on_node(site: &Installation, pod: &Value, line: &str) -> String {
    assert_eq!(pod["spec"]["nodeName"], "node");
    let output = site.cluster.command("sh").args(["-c", line]).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn container(pod: &Value, name: &str) -> Value {
    let lists = ["containerStatuses", "initContainerStatuses"];
    let mut all = lists.into_iter().filter_map(|list| pod["status"][list].as_array()).flatten();
    all.find(|status| status["name"] == name).cloned().unwrap_or_default()
}

fn find_processes(pod: &Value, name: &str) -> String {
    let id = container(pod, name)["containerID"].as_str().unwrap().replace("containerd://", "");
    format!("grep -l {id} /proc/[0-9]*/cgroup 2>/dev/null | cut -d / -f 3")
}

fn processes(site: &Installation, pod: &Value, name: &str) -> Vec<String> {
    let pids = on_node(site, pod, &find_processes(pod, name));
    assert!(!pids.is_empty(), "no process of {name}");
    pids.lines().map(str::to_owned).collect()
}

/// Kills the container from outside of its node.
fn kill(pod: &Value, name: &str) {
    let kill = format!("kill -9 $({})", find_processes(pod, name));
    assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}
