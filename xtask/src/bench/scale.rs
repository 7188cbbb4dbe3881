//! `cargo xtask bench scale`: many pods in many namespaces, with three replicas of the operator.
//!
//! Each pod is created twice: in a labelled namespace and in an unlabelled one, alternating in batches of a tenth, so that
//! other load of the machine affects both alike.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use lucid_e2e::{ClusterExt as _, Error, Operator, create_pod};
use lucid_testbed::Cluster;
use serde_json::json;

use super::programs;
use crate::process::Usage;
use crate::report::{Percentiles, Report, bytes, time};
use crate::soak::eventually;

#[derive(Args)]
pub(crate) struct Scale {
    /// Numbers of pods in labelled namespaces; each is measured with a new cluster.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000])]
    pods: Vec<usize>,
}

const NAMESPACES: usize = 100;
/// Number of concurrent creations.
const CLIENTS: usize = 32;

/// Number of batches, alternating between labelled and unlabelled namespaces.
const TURNS: usize = 10;
const LABEL: (&str, &str) = ("lucid.computing/enabled", "true");
const REPLICAS: [&str; 3] = ["lucid-operator-1", "lucid-operator-2", "lucid-operator-3"];

pub(super) fn run(scale: &Scale, report: &mut Report) -> Result<(), Error> {
    if scale.pods.iter().any(|pods| *pods < TURNS) {
        return Err(format!("--pods: expected at least {TURNS}").into());
    }
    let program = programs::build_own("lucid-operator")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut costs = Vec::new();
    for &pods in &scale.pods {
        costs.push((pods, runtime.block_on(measure(pods, &program, report))?));
    }
    costs.sort_by_key(|(pods, _)| *pods);
    if let [(fewest, few), .., (most, many)] = costs.as_slice()
        && fewest < most
    {
        let growth = many.cpu_seconds / few.cpu_seconds;
        let goal = "the operators' CPU time per pod grows at most 1.2 times from the fewest to the most pods";
        report.goal(goal, format!("{growth:.2} times"), growth <= 1.2);
        let growth = many.memory.saturating_sub(few.memory);
        let goal = "memory of a replica grows at most 8 MB from the fewest to the most pods";
        report.goal(goal, bytes(growth), growth <= 8 << 20);
    }
    Ok(())
}

/// Returns the operators' CPU time per pod, and the memory of the largest replica.
async fn measure(pods: usize, program: &Path, report: &mut Report) -> Result<Usage, Error> {
    eprintln!("bench: starting a Kubernetes control plane and {} operators", REPLICAS.len());
    // The cluster has no scheduler and no nodes: pods are stored and stay pending.
    let cluster = Cluster::builder().controller_manager().webhooks_by_service().start().await?;
    let labelled = namespaces(&cluster, "labelled", &[LABEL]).await?;
    let others = namespaces(&cluster, "other", &[]).await?;
    cluster.create_namespace("lucid-system", &[]).await?;
    let mut replicas = Vec::new();
    for name in REPLICAS {
        let operator = Operator::builder(&cluster).named(name).by_service().command([program]);
        replicas.push(operator.start().await?);
    }
    let ports: Vec<_> = replicas.iter().map(Operator::port).collect();
    cluster.expose_service("lucid-system", "lucid-operator-webhook", &ports).await?;
    let client = cluster.client();
    let is_audited = async || Ok(is_audited(&client, &labelled[0]).await?.then_some(()));
    eventually("the first pod with a chain", is_audited).await?;

    let before = usage(&replicas)?;
    let (mut with, mut without) = (Created::default(), Created::default());
    for turn in 0..TURNS {
        eprintln!("bench: {pods} pods, turn {} of {TURNS}", turn + 1);
        let numbers = turn * pods / TURNS..(turn + 1) * pods / TURNS;
        // The order alternates.
        for is_labelled in [turn % 2 == 0, turn % 2 == 1] {
            let (namespaces, created) =
                if is_labelled { (&labelled, &mut with) } else { (&others, &mut without) };
            created.add(create(&client, namespaces, numbers.clone(), is_labelled).await);
        }
    }
    let after = usage(&replicas)?;
    let cpu_seconds = (after.cpu_seconds - before.cpu_seconds) / pods as f64;
    let (rate, rate_without) = (with.per_second(), without.per_second());
    report.row([
        ("pods", pods.to_string()),
        ("pods/s with Lucid", format!("{rate:.0}")),
        ("without", format!("{rate_without:.0}")),
        ("ratio", format!("{:.1}", rate_without / rate)),
        ("creation with Lucid, p50 / p99 / maximum", Percentiles::of(with.latencies).to_string()),
        ("without it", Percentiles::of(without.latencies).to_string()),
        ("CPU time of the operators per pod", time(cpu_seconds * 1e6)),
        ("memory of a replica before", bytes(before.memory)),
        ("after", bytes(after.memory)),
    ]);
    let failures: Vec<_> = with.failures.into_iter().chain(without.failures).collect();
    report.require_none(format!("{pods} pods: each has its chain, and none is denied"), &failures);
    Ok(Usage { cpu_seconds, ..after })
}

/// CPU time of all replicas, and memory of the largest.
fn usage(replicas: &[Operator]) -> Result<Usage, Error> {
    let mut total = Usage::default();
    for operator in replicas {
        let usage = Usage::of(operator.pid().ok_or("an operator has ended")?)?;
        total.cpu_seconds += usage.cpu_seconds;
        total.memory = total.memory.max(usage.memory);
    }
    Ok(total)
}

pub(super) async fn namespaces(
    cluster: &Cluster,
    prefix: &str,
    labels: &[(&str, &str)],
) -> Result<Vec<String>, Error> {
    let names: Vec<_> = (1..=NAMESPACES).map(|number| format!("{prefix}-{number}")).collect();
    let made = stream::iter(&names).map(|name| cluster.create_namespace(name, labels));
    made.buffer_unordered(16).try_collect::<Vec<()>>().await?;
    Ok(names)
}

/// Auditor of every pod that has a chain, absent from all others.
const AUDITOR: &str = "lucid-guardrails-auditor";

#[derive(Default)]
struct Created {
    /// Time from each request to the end of its response.
    latencies: Vec<Duration>,
    time: Duration,
    failures: Vec<String>,
}

impl Created {
    fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.time += other.time;
        self.failures.extend(other.failures);
    }

    fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.time.as_secs_f64()
    }
}

/// Creates the pods of these numbers, [`CLIENTS`] at a time, round-robin over the namespaces. Expects a chain in each pod if
/// `audited` is set, and none otherwise.
async fn create(
    client: &Client,
    namespaces: &[String],
    numbers: std::ops::Range<usize>,
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
    let outcomes: Vec<_> = pods.buffer_unordered(CLIENTS).collect().await;
    let mut created = Created { time: begin.elapsed(), ..Created::default() };
    for (latency, outcome) in outcomes {
        created.latencies.push(latency);
        created.failures.extend(outcome.err().map(|error| error.to_string()));
    }
    created
}

async fn create_one(client: &Client, namespace: &str, number: usize, audited: bool) -> Result<(), Error> {
    let stored = create_pod(client, namespace, &pod(number)).await?.stored()?;
    match has_auditor(&stored) {
        has_auditor if has_auditor == audited => Ok(()),
        true => Err(format!("pod {number} has a chain in a namespace without the label").into()),
        false => Err(format!("pod {number} has no chain").into()),
    }
}

fn has_auditor(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.into_iter().any(|container| container.name == AUDITOR)
}

/// A model with a log collector, as created by a Deployment.
pub(super) fn pod(number: usize) -> serde_json::Value {
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
async fn is_audited(client: &Client, namespace: &str) -> Result<bool, Error> {
    let pods = kube::Api::<Pod>::namespaced(client.clone(), namespace);
    let params = kube::api::PostParams { dry_run: true, ..Default::default() };
    let pod = serde_json::from_value(pod(0))?;
    Ok(pods.create(&params, &pod).await.is_ok_and(|pod| has_auditor(&pod)))
}
