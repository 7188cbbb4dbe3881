//! Cluster operations while pods are created: updates, upgrades, rollbacks, loss of a replica, a policy roll-out,
//! uninstallation.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use lucid_e2e::{Answer, ClusterExt as _, Installation, create_pod, eventually};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::{container, create, installed, kill, pod, stored, values, wait};

const NAMESPACE: &str = "lucid-system";

/// Pods per second.
const RATE: u32 = 20;

/// In one cluster, since a node takes long to start.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test -p lucid-e2e --test it -- --ignored node::operations"]
async fn lucid_is_updated_upgraded_and_removed_while_pods_are_created() {
    if !Installation::can_run() {
        return;
    }
    let mut site = installed(2).await;
    let mut model = pod("model", &json!({}));
    model["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "node"});
    create(&site, "shop", &model).await;
    wait(&site, "shop", "pod/model", "condition=Ready");
    a_rolling_update_goes_unnoticed(&site).await;
    // The replicas of the update are on different nodes: the previous ones did not prevent that.
    a_replica_that_is_killed_lets_nothing_through(&site).await;
    a_node_that_is_lost_lets_nothing_through(&mut site).await;
    an_upgrade_and_its_rollback_go_unnoticed(&site).await;
    the_policy_is_rolled_out_in_four_steps(&site).await;
    nothing_is_left(&site).await;
}

/// A pod that no scheduler handles: hundreds of unschedulable pods would delay the replicas of an update.
fn waiting(name: &str) -> Value {
    let mut pod = pod(name, &json!({}));
    pod["spec"]["schedulerName"] = json!("none");
    pod
}

/// Like [`waiting`], with a generated name.
fn waiting_of(prefix: &str) -> Value {
    let mut pod = waiting(prefix);
    pod["metadata"]["generateName"] = json!(format!("{prefix}-"));
    pod["metadata"].as_object_mut().unwrap().remove("name");
    pod
}

/// Pods created one after another, until they are counted.
struct Stream {
    ended: Arc<AtomicBool>,
    responses: JoinHandle<Vec<Answer>>,
}

impl Stream {
    fn begin(site: &Installation, prefix: &'static str) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (client, end) = (site.cluster.client(), Arc::clone(&ended));
        let responses = tokio::spawn(async move {
            let mut ticks = interval(Duration::from_secs(1) / RATE);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let mut calls = Vec::new();
            while !end.load(Ordering::Relaxed) {
                ticks.tick().await;
                let (client, manifest) = (client.clone(), waiting_of(prefix));
                calls
                    .push(tokio::spawn(async move { create_pod(&client, "shop", &manifest).await.unwrap() }));
            }
            let mut responses = Vec::new();
            for call in calls {
                responses.push(call.await.unwrap());
            }
            responses
        });
        Self { ended, responses }
    }

    async fn end(self) -> Vec<Answer> {
        self.ended.store(true, Ordering::Relaxed);
        self.responses.await.unwrap()
    }
}

fn auditors(pod: &Pod) -> BTreeSet<&str> {
    let spec = pod.spec.as_ref().unwrap();
    let names = spec.containers.iter().map(|container| &*container.name);
    names.filter(|name| name.ends_with("-auditor")).collect()
}

/// Asserts that no pod was denied, and each has its chain.
fn assert_all_have_their_chain(responses: &[Answer], about: &str) {
    assert!(responses.len() > RATE as usize, "{about}: {} pods are too few to tell", responses.len());
    for response in responses {
        let pod = response.result.as_ref().unwrap_or_else(|refusal| panic!("{about}: {refusal}"));
        assert_eq!(auditors(pod), ["lucid-injection-auditor", "lucid-toxicity-auditor"].into(), "{about}");
    }
}

async fn a_rolling_update_goes_unnoticed(site: &Installation) {
    let before = names(&operators(site, 2).await);
    let stream = Stream::begin(site, "update");
    site.kubectl(&["-n", NAMESPACE, "rollout", "restart", "deployment/lucid-operator"]).unwrap();
    let after = names(&operators(site, 2).await);
    assert_all_have_their_chain(&stream.end().await, "during a rolling update");
    assert!(before.is_disjoint(&after), "all were replaced: {before:?}, {after:?}");
}

fn names(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().map(ResourceExt::name_any).collect()
}

/// Waits until the operator has this many pods and all are ready. Terminating pods are gone then, as they respond until
/// their end.
async fn operators(site: &Installation, count: usize) -> Vec<Pod> {
    site.kubectl(&["-n", NAMESPACE, "rollout", "status", "deployment/lucid-operator", "--timeout=180s"])
        .unwrap();
    let pods = Api::<Pod>::namespaced(site.cluster.client(), NAMESPACE);
    let those = ListParams::default().labels("app.kubernetes.io/name=lucid-operator");
    eventually("the pods are complete", async || {
        let pods = pods.list(&those).await.unwrap().items;
        let stay = pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_none());
        if stay && pods.len() == count {
            Ok(pods)
        } else {
            Err(site.kubectl_says(&["-n", NAMESPACE, "get", "pods"]))
        }
    })
    .await
}

/// Without a signal to prepare: until the API server learns of the end, calls to that replica fail, and so do the pods.
async fn a_replica_that_is_killed_lets_nothing_through(site: &Installation) {
    let stream = Stream::begin(site, "killed");
    let victim = operators(site, 2).await[0].name_any();
    let before = stored(site, NAMESPACE, &victim).await;
    kill(&before, "lucid-operator");
    // The kubelet reports the replica as ready until it has noticed the end.
    let restarts = &container(&before, "lucid-operator")["restartCount"];
    eventually("the container restarts", async || {
        let now = container(&stored(site, NAMESPACE, &victim).await, "lucid-operator");
        if now["restartCount"] != *restarts && now["ready"] == true { Ok(()) } else { Err(now) }
    })
    .await;
    assert_none_is_without_its_chain(&stream.end().await);
    let stream = Stream::begin(site, "mended");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_all_have_their_chain(&stream.end().await, "after a replica was killed");
}

/// Some may have been denied, but not all.
fn assert_none_is_without_its_chain(responses: &[Answer]) {
    let stored: Vec<_> = responses.iter().filter_map(|response| response.result.as_ref().ok()).collect();
    assert!(!stored.is_empty(), "the other replica goes on: {:?}", responses.first());
    for pod in stored {
        assert_eq!(auditors(pod).len(), 2, "a pod is refused rather than stored without its chain");
    }
}

/// Calls to the lost replica time out until Kubernetes notices, some 40 s later.
async fn a_node_that_is_lost_lets_nothing_through(site: &mut Installation) {
    let replicas = operators(site, 2).await;
    let places = replicas.iter().map(|pod| pod.spec.as_ref().unwrap().node_name.as_deref().unwrap());
    assert_eq!(places.collect::<BTreeSet<_>>(), ["node", "node-2"].into(), "replicas are on different nodes");
    let stream = Stream::begin(site, "lost");
    assert!(site.cluster.kill_node("node-2"));
    wait(site, "default", "node/node-2", "condition=Ready=Unknown");
    assert_none_is_without_its_chain(&stream.end().await);

    let begin = Instant::now();
    loop {
        let stream = Stream::begin(site, "found");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let responses = stream.end().await;
        assert_none_is_without_its_chain(&responses);
        if responses.iter().all(|response| response.result.is_ok()) {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", responses.last());
    }
    // Like an administrator does for a lost machine.
    site.kubectl(&["delete", "node", "node-2"]).unwrap();
}

async fn an_upgrade_and_its_rollback_go_unnoticed(site: &Installation) {
    let stream = Stream::begin(site, "upgrade");
    let mut values = values();
    values["injection"] = json!({"auditMode": "observe"});
    values["operator"] = json!({"replicas": 3});
    site.install(&values.to_string()).await.unwrap();
    operators(site, 3).await;
    create(site, "shop", &waiting("upgraded")).await;
    assert_eq!(audit_mode(site, "upgraded").await, "observe");

    site.helm(&["rollback", "lucid"], "").await.unwrap();
    operators(site, 2).await;
    create(site, "shop", &waiting("rolled-back")).await;
    assert_eq!(audit_mode(site, "rolled-back").await, "enforce");
    assert_all_have_their_chain(&stream.end().await, "during an upgrade and its rollback");
}

async fn audit_mode(site: &Installation, name: &str) -> Value {
    let pod = stored(site, "shop", name).await;
    let containers = pod["spec"]["containers"].as_array().unwrap();
    let auditor = containers.iter().find(|one| one["name"] == "lucid-injection-auditor").unwrap();
    let mut variables = auditor["env"].as_array().unwrap().iter();
    variables.find(|variable| variable["name"] == "LUCID_AUDIT_MODE").unwrap()["value"].clone()
}

/// Applies the chart values for the steps of docs/canary.md.
async fn the_policy_is_rolled_out_in_four_steps(site: &Installation) {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/lucid");
    for (step, replicas, enforced) in [(1, 1, false), (2, 3, false), (3, 1, true), (4, 3, true)] {
        if step == 4 {
            let authority = format!("--from-file=ca.crt={}", site.cluster.authority_path().display());
            let create = ["-n", "lucid-system", "create", "configmap", "lucid-client-ca", &authority];
            site.kubectl(&create).unwrap();
        }
        let values = format!("{chart}/canary/{step}.yaml");
        site.helm(&["upgrade", "lucid", chart, "--reuse-values", "-f", &values], "").await.unwrap();
        operators(site, replicas).await;
        // The pod has no tier.
        let response = create_pod(&site.cluster.client(), "shop", &waiting_of("step")).await.unwrap();
        let said = format!("{}{}", response.refusal(), response.warnings.join("\n"));
        assert!(said.contains("label lucid.computing/tier is missing"), "step {step}: {said}");
        assert_eq!(response.result.is_err(), enforced, "step {step}: {said}");
    }
}

async fn nothing_is_left(site: &Installation) {
    let uninstalled = site.helm(&["uninstall", "lucid"], "").await.unwrap();
    assert!(uninstalled.contains("uninstalled"), "{uninstalled}");
    site.kubectl(&["delete", "crd", "auditors.lucid.computing"]).unwrap();
    site.kubectl(&["-n", "lucid-system", "delete", "configmap", "lucid-client-ca"]).unwrap();

    // Kubernetes removes the pods of the lost node with its next garbage collection.
    eventually("nothing of Lucid remains", async || {
        let kinds =
            site.kubectl(&["api-resources", "--verbs=list", "-o", "name"]).map_err(|it| it.to_string())?;
        // Events describe the past.
        let kinds: Vec<_> = kinds.lines().filter(|kind| !kind.starts_with("events")).collect();
        let names = site.kubectl(&["get", &kinds.join(","), "-A", "-o", "name"]);
        let names = names.map_err(|error| error.to_string())?;
        let of_lucid = names.lines().filter(|name| name.contains("lucid")).collect::<Vec<_>>();
        if of_lucid == ["namespace/lucid-system"] { Ok(()) } else { Err(of_lucid.join("\n")) }
    })
    .await;

    // New pods have no chain, and existing ones keep theirs.
    let response = create_pod(&site.cluster.client(), "shop", &waiting("without")).await.unwrap();
    assert!(auditors(&response.stored().unwrap()).is_empty());
    wait(site, "shop", "pod/model", "condition=Ready");
}
