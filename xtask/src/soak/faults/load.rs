//! Creation of pods at a constant rate, and verification of their chains.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use lucid_e2e::{Error, create_pod};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

/// Namespaces with the chain of the cluster.
pub(super) const NAMESPACES: [&str; 3] = ["soak-1", "soak-2", "soak-3"];
/// Namespace with its own chain.
pub(super) const OWN: &str = "soak-own";

/// Auditors of a chain, by their names in the catalogue.
pub(super) type Chain = &'static [&'static str];

/// Chain of the namespaces without their own.
pub(super) const CLUSTER_CHAIN: Chain = &["alpha", "beta"];

/// Chain of the namespace [`OWN`]: the current one, and the one before the latest change.
#[derive(Clone, Copy)]
pub(super) struct OwnChain {
    pub(super) now: Chain,
    pub(super) before: Chain,
}

pub(super) struct Call {
    pub(super) began: Instant,
    pub(super) ended: Instant,
    pub(super) namespace: &'static str,
    pub(super) name: String,
    pub(super) outcome: Outcome,
}

pub(super) enum Outcome {
    Complete,
    /// Admitted with the chain from before the latest change.
    Outdated,
    /// Admitted with these containers, which differ from its chain.
    Incomplete(Vec<String>),
    /// Not admitted, for this reason.
    Failed(String),
}

pub(super) struct Load {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Vec<Call>>,
    own: Arc<Mutex<OwnChain>>,
}

impl Load {
    /// Creates `rate` pods per second, with the name prefix `prefix`.
    pub(super) fn start(client: Client, prefix: String, rate: f64, own: Chain) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let own = Arc::new(Mutex::new(OwnChain { now: own, before: own }));
        let chain = Arc::clone(&own);
        let task = tokio::spawn(async move {
            let mut ticks = interval(Duration::from_secs_f64(1.0 / rate));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let (mut pods, mut calls) = (JoinSet::new(), Vec::new());
            for number in 0.. {
                tokio::select! {
                    _ = ticks.tick() => {}
                    _ = &mut stopped => break,
                }
                let namespace = NAMESPACES.get(number % (NAMESPACES.len() + 1)).copied().unwrap_or(OWN);
                let (client, name) = (client.clone(), format!("{prefix}-{number}"));
                let chain = Arc::clone(&chain);
                pods.spawn(async move {
                    let began = Instant::now();
                    let created = create(&client, namespace, &name).await;
                    let ended = Instant::now();
                    let own = *chain.lock().unwrap_or_else(PoisonError::into_inner);
                    let outcome = match created {
                        Ok(pod) => compare(&pod, namespace, own),
                        Err(error) => Outcome::Failed(error.to_string()),
                    };
                    Call { began, ended, namespace, name, outcome }
                });
                while let Some(Ok(call)) = pods.try_join_next() {
                    calls.push(call);
                }
            }
            calls.extend(pods.join_all().await);
            calls
        });
        Self { stop, task, own }
    }

    /// Changes the expected chain of the namespace [`OWN`].
    pub(super) fn expect(&self, now: Chain) {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        *own = OwnChain { now, before: own.now };
    }

    /// Stops after the calls in flight.
    pub(super) async fn end(self) -> Result<Vec<Call>, Error> {
        let _ = self.stop.send(());
        Ok(self.task.await?)
    }
}

async fn create(client: &Client, namespace: &str, name: &str) -> Result<Pod, Error> {
    let labels = json!({"lucid.io/secured": "true", "lucid.computing/tier": "A"});
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{
            "name": "model", "image": image("model"), "ports": [{"containerPort": 5000}],
        }]},
    });
    create_pod(client, namespace, &pod).await?.stored()
}

pub(super) fn image(name: &str) -> String {
    format!("registry.example.com/{name}@sha256:{}", "a".repeat(64))
}

fn compare(pod: &Pod, namespace: &str, own: OwnChain) -> Outcome {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let mut found: Vec<_> = containers.map(|container| container.name.clone()).collect();
    found.sort_unstable();
    let has = |chain: Chain| {
        let auditors = chain.iter().map(|name| format!("lucid-{name}-auditor"));
        let mut expected: Vec<_> = auditors.chain(["lucid-init".to_owned(), "model".to_owned()]).collect();
        expected.sort_unstable();
        expected == found
    };
    let (now, before) = if namespace == OWN { (own.now, own.before) } else { (CLUSTER_CHAIN, CLUSTER_CHAIN) };
    match (has(now), has(before)) {
        (true, _) => Outcome::Complete,
        (false, true) => Outcome::Outdated,
        (false, false) => Outcome::Incomplete(found),
    }
}
