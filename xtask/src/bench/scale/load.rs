//! Creation of pods at the maximum rate of the API server.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, client::Body};
use lucid_e2e::Error;
use serde_json::json;

/// Auditor of every pod that has a chain, absent from all others.
const AUDITOR: &str = "lucid-guardrails-auditor";

/// Result of creating pods.
#[derive(Default)]
pub(super) struct Created {
    /// Time from each request to the end of its answer.
    pub(super) latencies: Vec<Duration>,
    /// Total time.
    pub(super) time: Duration,
    pub(super) failed: u64,
    /// Reason of the first failure.
    pub(super) failure: Option<String>,
}

impl Created {
    pub(super) fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.time += other.time;
        self.failed += other.failed;
        self.failure = self.failure.take().or(other.failure);
    }

    pub(super) fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.time.as_secs_f64()
    }

    /// Quantile in milliseconds; a `share` of the creations took no longer.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let mut latencies = self.latencies.clone();
        latencies.sort_unstable();
        let index = (share * latencies.len() as f64) as usize;
        let latency = latencies.get(index.min(latencies.len().saturating_sub(1)));
        latency.map_or(0.0, |latency| latency.as_secs_f64() * 1000.0)
    }
}

/// Creates the pods of these numbers, `clients` at a time, round-robin over the namespaces. Expects a chain in each pod if
/// `audited` is set, and none otherwise.
pub(super) async fn create(
    client: &Client,
    namespaces: &[String],
    numbers: std::ops::Range<usize>,
    clients: usize,
    audited: bool,
) -> Created {
    let begin = Instant::now();
    let pods = stream::iter(numbers).map(|number| {
        let namespace = &namespaces[number % namespaces.len()];
        async move {
            let begin = Instant::now();
            let outcome = create_one(client, namespace, number, audited).await;
            (begin.elapsed(), outcome)
        }
    });
    let outcomes: Vec<_> = pods.buffer_unordered(clients).collect().await;
    let mut created = Created { time: begin.elapsed(), ..Created::default() };
    for (latency, outcome) in outcomes {
        created.latencies.push(latency);
        if let Err(error) = outcome {
            created.failed += 1;
            created.failure.get_or_insert_with(|| error.to_string());
        }
    }
    created
}

async fn create_one(client: &Client, namespace: &str, number: usize, audited: bool) -> Result<(), Error> {
    let request = Request::post(format!("/api/v1/namespaces/{namespace}/pods"));
    let request = request.header(http::header::CONTENT_TYPE, "application/json");
    let response = client.send(request.body(Body::from(pod(number).to_string().into_bytes()))?).await?;
    let status = response.status();
    let body = response.into_body().collect_bytes().await?;
    let text = String::from_utf8_lossy(&body);
    match (status.is_success(), text.contains(AUDITOR) == audited) {
        (true, true) => Ok(()),
        (true, false) if audited => Err(format!("pod {number} has no chain").into()),
        (true, false) => Err(format!("pod {number} has a chain in a namespace without the label").into()),
        (false, _) => Err(format!("pod {number}: {status}: {text}").into()),
    }
}

/// A model with a log collector, as created by a Deployment.
fn pod(number: usize) -> serde_json::Value {
    let env = ["LOG_LEVEL", "REGION", "MODEL_NAME"];
    let env = env.map(|name| json!({"name": name, "value": format!("value-of-{name}")}));
    let container = |name: &str, port: u16| {
        json!({
            "name": name, "image": format!("registry.example.com/shop/{name}:1.2.3"),
            "ports": [{"containerPort": port}], "env": env,
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "readinessProbe": {"httpGet": {"path": "/healthz", "port": port}},
            "volumeMounts": [{"name": "logs", "mountPath": "/var/log/app"}],
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("model-{number}"),
            "labels": {"lucid.io/secured": "true", "app": "model", "pod-template-hash": "7d4b9c6f5"},
        },
        "spec": {
            "containers": [container("model", 5000), container("logs", 5170)],
            "volumes": [{"name": "logs", "emptyDir": {}}],
        },
    })
}

/// Returns `true` if a new pod gets a chain. The API server may call the webhook only some time after its registration.
pub(super) async fn is_audited(client: &Client, namespace: &str) -> Result<bool, Error> {
    let pods = kube::Api::<Pod>::namespaced(client.clone(), namespace);
    let params = kube::api::PostParams { dry_run: true, ..Default::default() };
    let pod = serde_json::from_value(pod(0))?;
    let created = pods.create(&params, &pod).await;
    let names = created.map(|pod| pod.spec.map(|spec| spec.containers).unwrap_or_default());
    Ok(names.is_ok_and(|containers| containers.iter().any(|container| container.name == AUDITOR)))
}
