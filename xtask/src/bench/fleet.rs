//! `cargo xtask bench fleet`: running pods that an operator with a keeper knows, by time, API requests, memory and CPU time.
//!
//! Pods are stored with their chains before the operator of the measurements starts. No kubelet runs them: their status is
//! written once.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lucid_e2e::{ClusterExt as _, Error, Operator, Verifier};
use lucid_testbed::Cluster;
use serde_json::json;

use super::{programs, scale};
use crate::process::Usage;
use crate::report::{Report, bytes, time};
use crate::soak::eventually;
use crate::testbed::apply_config_map;

#[derive(Args)]
pub(crate) struct Fleet {
    /// Number of running pods. The goals are for the default.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,
    /// Seconds without changes in which CPU time is measured.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

/// Number of pods per ReplicaSet.
const REPLICAS: u32 = 10;
/// Number of concurrent creations.
const CLIENTS: usize = 32;
/// Time at which the pods started.
const TIME: &str = "2026-01-01T00:00:00Z";
const LABEL: (&str, &str) = ("lucid.computing/enabled", "true");
/// Namespace without running pods, whose one pod shows what injection writes.
const TEMPLATE: &str = "template";
const MEMORY_GOAL: u64 = 64 << 20;
/// In cores.
const CPU_GOAL: f64 = 0.01;
const REVOCATION_GOAL: Duration = Duration::from_secs(60);
/// Resources that only the keeper requests while it is measured.
const RESOURCES: [&str; 3] = ["events", "pods", "replicasets"];

pub(super) fn run(fleet: &Fleet, report: &mut Report) -> Result<(), Error> {
    let program = programs::build_own("lucid-operator")?;
    tokio::runtime::Runtime::new()?.block_on(measure(fleet, &program, report))
}

async fn measure(fleet: &Fleet, program: &Path, report: &mut Report) -> Result<(), Error> {
    eprintln!("bench: starting a Kubernetes control plane, a Verifier and lucid-operator");
    let cluster = Cluster::builder().start().await?;
    let [first, second] = ['a', 'b'].map(|digit| format!("sha256:{}", digit.to_string().repeat(64)));
    let verifier = Verifier::start(cluster.folder(), &[&first, &second]).await?;
    cluster.create_namespace("lucid-system", &[]).await?;
    cluster.create_namespace(TEMPLATE, &[LABEL]).await?;
    write_catalogue(&cluster, &first).await?;
    let start = async |keeper: bool| {
        let operator = Operator::builder(&cluster).command([program]).env("LUCID_CHAIN", "injection");
        let operator = operator.env("LUCID_VERIFIER_URL", verifier.url());
        Subject::new(&cluster, operator.env("LUCID_KEEPER", keeper.to_string()).start().await?)
    };

    let off = start(false).await?;
    let template = injected(&cluster.client()).await?;
    off.idle("no pods, LUCID_KEEPER=false", fleet, report).await?;
    drop(off);
    start(true).await?.idle("no pods", fleet, report).await?;
    create_pods(fleet, &cluster, &template).await?;

    let mut subject = start(true).await?;
    subject.known(("operator started", "Audited"), async { Ok(()) }, fleet, report).await?;
    let idle = subject.idle("nothing changes", fleet, report).await?;
    let change = write_catalogue(&cluster, &second);
    subject.known(("catalogue changed", "Stale"), change, fleet, report).await?;
    let change = async { verifier.notarize(&[&second]) };
    let revoked = subject.known(("auditor revoked", "Revoked"), change, fleet, report).await?;
    if subject.operator.has_ended() {
        return Err("the operator has ended".into());
    }

    let goal = "the memory of the operator stays below 64 MB";
    let peak = Usage::of(subject.pid)?.peak_memory;
    report.goal(goal, bytes(peak), peak < MEMORY_GOAL);
    let goal = "the operator takes less than 1 % of a core while nothing changes";
    report.goal(goal, percent(idle), idle < CPU_GOAL);
    let goal = "all pods are Revoked within a minute of the Verifier's change";
    report.goal(goal, time(revoked.as_secs_f64() * 1e6), revoked < REVOCATION_GOAL);
    Ok(())
}

async fn write_catalogue(cluster: &Cluster, digest: &str) -> Result<(), Error> {
    let image = format!("registry.example.com/injection@{digest}");
    let catalogue = json!({"chain": [{"name": "injection", "image": image}]}).to_string();
    apply_config_map(&cluster.client(), "lucid-system", "lucid-auditors", "auditors.yaml", &catalogue).await
}

/// A measured operator.
struct Subject<'a> {
    cluster: &'a Cluster,
    operator: Operator,
    pid: u32,
    http: reqwest::Client,
}

impl<'a> Subject<'a> {
    fn new(cluster: &'a Cluster, operator: Operator) -> Result<Self, Error> {
        let pid = operator.pid().ok_or("the operator has ended")?;
        let http = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { cluster, operator, pid, http })
    }

    /// Measures an operator that has nothing to do. Returns its CPU time in cores.
    async fn idle(&self, step: &str, fleet: &Fleet, report: &mut Report) -> Result<f64, Error> {
        eprintln!("bench: {step}, {} s", fleet.seconds);
        // The work after a start or a change ends.
        tokio::time::sleep(Duration::from_secs(10)).await;
        let (requests, before) = (self.requests()?, Usage::of(self.pid)?);
        let time = Duration::from_secs(fleet.seconds);
        tokio::time::sleep(time).await;
        let after = Usage::of(self.pid)?;
        let cores = (after.cpu_seconds - before.cpu_seconds) / time.as_secs_f64();
        let cells = [("CPU time", percent(cores)), ("API requests", self.requests_since(&requests)?)];
        report.row(row(step, after).into_iter().chain(cells));
        Ok(cores)
    }

    /// Makes a change and waits until all pods are in `state`. Returns the time that it took.
    async fn known(
        &self,
        (step, state): (&str, &str),
        change: impl Future<Output = Result<(), Error>>,
        fleet: &Fleet,
        report: &mut Report,
    ) -> Result<Duration, Error> {
        eprintln!("bench: {step}");
        let (requests, before, begin) = (self.requests()?, Usage::of(self.pid)?, Instant::now());
        change.await?;
        eventually(&format!("{} pods are {state}", fleet.pods), async || {
            tokio::time::sleep(Duration::from_millis(90)).await;
            Ok((self.count(state).await? == fleet.pods).then_some(()))
        })
        .await?;
        let (known, after) = (begin.elapsed(), Usage::of(self.pid)?);
        let cells = [
            ("CPU time", time((after.cpu_seconds - before.cpu_seconds) * 1e6)),
            ("API requests", self.requests_since(&requests)?),
            ("known after", time(known.as_secs_f64() * 1e6)),
        ];
        report.row(row(step, after).into_iter().chain(cells));
        Ok(known)
    }

    /// Number of pods in a state, by the operator's metrics.
    async fn count(&self, state: &str) -> Result<u32, Error> {
        let metrics = self.http.get(self.operator.admin_url("/metrics")).send().await?.text().await?;
        let state = format!("state=\"{state}\"");
        let series = metrics.lines().filter(|line| line.starts_with("lucid_running_pods{"));
        let series = series.filter(|line| line.contains(&state));
        Ok(series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u32>().ok()).sum())
    }

    /// Finished requests that the API server has counted, by resource and verb.
    fn requests(&self) -> Result<BTreeMap<String, u64>, Error> {
        let found = self.cluster.kubectl(&["get", "--raw", "/metrics"], "")?;
        let mut requests = BTreeMap::new();
        for line in String::from_utf8_lossy(&found.stdout).lines() {
            let Some(series) = line.strip_prefix("apiserver_request_total{") else { continue };
            let Some((labels, count)) = series.rsplit_once(' ') else { continue };
            let label = |name: &str| labels.split_once(&format!("{name}=\""))?.1.split('"').next();
            if let Some((resource, verb)) = label("resource").zip(label("verb"))
                && RESOURCES.contains(&resource)
            {
                *requests.entry(format!("{verb} {resource}")).or_default() += count.parse::<u64>()?;
            }
        }
        Ok(requests)
    }

    fn requests_since(&self, before: &BTreeMap<String, u64>) -> Result<String, Error> {
        let now = self.requests()?.into_iter();
        let since = now.map(|(kind, count)| (count - before.get(&kind).copied().unwrap_or_default(), kind));
        let since: Vec<_> =
            since.filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}")).collect();
        Ok(if since.is_empty() { "none".to_owned() } else { since.join(", ") })
    }
}

fn row(step: &str, usage: Usage) -> [(&'static str, String); 4] {
    let Usage { memory, anonymous_memory, peak_memory, .. } = usage;
    let memory = [("memory", memory), ("anonymous", anonymous_memory), ("peak since start", peak_memory)];
    let [memory, anonymous, peak] = memory.map(|(column, size)| (column, bytes(size)));
    [("step", step.to_owned()), memory, anonymous, peak]
}

fn percent(cores: f64) -> String {
    format!("{:.2} % of a core", cores * 100.0)
}

/// Returns a pod with its chain. The API server may call the webhook only some time after its registration.
async fn injected(client: &Client) -> Result<Pod, Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), TEMPLATE);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let mut pod = scale::pod(0);
    pod["metadata"]["annotations"] = json!({"lucid.computing/target-port": "5000"});
    let pod: Pod = serde_json::from_value(pod)?;
    let count = |pod: &Pod| pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    eventually("a pod with a chain", async || {
        Ok(pods.create(&params, &pod).await.ok().filter(|created| count(created) > count(&pod)))
    })
    .await
}

/// Stores the running pods in namespaces that the webhooks leave alone, and enables these.
async fn create_pods(fleet: &Fleet, cluster: &Cluster, template: &Pod) -> Result<(), Error> {
    let namespaces = scale::namespaces(cluster, "shop", &[]).await?;
    let (client, namespaces) = (cluster.client(), &namespaces);
    let pods = stream::iter((0..fleet.pods).map(|number| create(&client, namespaces, template, number)));
    let mut created = pods.buffer_unordered(CLIENTS);
    let mut done = 0;
    while created.try_next().await?.is_some() {
        done += 1;
        if done % 1_000 == 0 || done == fleet.pods {
            eprintln!("bench: {done} of {} pods", fleet.pods);
        }
    }
    scale::namespaces(cluster, "shop", &[LABEL]).await?;
    Ok(())
}

/// Stores a pod of a ReplicaSet, and a status as a kubelet reports it.
async fn create(client: &Client, namespaces: &[String], template: &Pod, number: u32) -> Result<(), Error> {
    let group = number / REPLICAS;
    let (replica_set, name) = (format!("model-{group}"), format!("model-{group}-{number}"));
    let mut pod = template.clone();
    let containers = template.spec.iter().flat_map(|spec| &spec.containers);
    let statuses: Vec<_> = containers
        .map(|container| {
            json!({
                "name": container.name, "image": container.image, "imageID": container.image, "ready": true,
                "started": true, "restartCount": 0, "containerID": format!("containerd://{}", "0".repeat(64)),
                "state": {"running": {"startedAt": TIME}},
            })
        })
        .collect();
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
    let conditions =
        conditions.map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": TIME}));
    let status =
        json!({"status": {"phase": "Running", "conditions": conditions, "containerStatuses": statuses}});
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set, "uid": replica_set, "controller": true,
    });
    pod.metadata = ObjectMeta {
        name: Some(name.clone()),
        labels: template.metadata.labels.clone(),
        annotations: template.metadata.annotations.clone(),
        owner_references: Some(vec![serde_json::from_value(owner)?]),
        ..ObjectMeta::default()
    };
    let namespace = &namespaces[group as usize % namespaces.len()];
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    pods.create(&PostParams::default(), &pod).await?;
    pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await?;
    Ok(())
}
