//! `cargo xtask soak memory`: memory of the operator with many namespaces that have their own catalogue.

use std::time::{Duration, Instant};

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lucid_e2e::{ClusterExt as _, Error, Operator};
use lucid_testbed::Cluster;
use serde_json::json;

use crate::bench::programs::build_own;
use crate::command::ROOT;
use crate::process::Usage;
use crate::report::{Percentiles, Report, bytes, time};

#[derive(Args)]
pub(crate) struct Memory {
    /// Number of namespaces with their own catalogue.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..))]
    namespaces: u32,
}

const AUDITORS: u32 = 500;
/// Number of changes of Auditors.
const CHANGES: u32 = 30;
const CONCURRENCY: usize = 32;
const GOAL: u64 = 150 << 20;

pub(super) async fn run(memory: &Memory, report: &mut Report) -> Result<(), Error> {
    let program = build_own("lucid-operator")?;
    let namespaces = memory.namespaces;
    let cluster = Cluster::builder().start().await?;
    let client = cluster.client();
    cluster.create_namespace("lucid-system", &[]).await?;
    let definition = format!("{ROOT}/deploy/auditor-crd.yaml");
    let applied = cluster.kubectl(&["apply", "--server-side", "--filename", &definition], "")?;
    if !applied.status.success() {
        return Err(String::from_utf8_lossy(&applied.stderr).into());
    }
    // The API server does not serve a new CustomResourceDefinition at once.
    super::eventually("the first Auditor", async || Ok(write_auditor(&client, 0, 0).await.ok())).await?;
    parallel("Auditors", 1..AUDITORS, |number| write_auditor(&client, number, 0)).await?;
    parallel("namespaces", 0..namespaces, |number| write_namespace(&cluster, &client, number)).await?;

    let begin = Instant::now();
    let mut operator = Operator::builder(&cluster).command([program]).start().await?;
    let pid = operator.pid().ok_or("the operator does not run")?;
    until_changed(&client, 0, 0).await?;
    let started = begin.elapsed();
    let exercised = exercise(namespaces, &client, || Usage::of(pid)).await;
    if operator.has_ended() {
        return Err("the operator has ended".into());
    }
    let (before, after, durations) = exercised?;
    let cells = [
        ("namespaces", namespaces.to_string()),
        ("auditors", AUDITORS.to_string()),
        ("first pod after", time(started.as_secs_f64() * 1e6)),
        ("memory before changes", bytes(before.memory)),
        ("after", bytes(after.memory)),
        ("anonymous", bytes(after.anonymous_memory)),
        ("peak", bytes(after.peak_memory)),
        ("changes", durations.len().to_string()),
    ];
    report.row(cells.into_iter().chain(Percentiles::of(durations).cells()));
    let goal = "the memory of the operator stays below 150 MB";
    report.goal(goal, bytes(after.peak_memory), after.peak_memory < GOAL);
    Ok(())
}

/// Creates pods and changes Auditors. Returns the memory before and after the changes, and the duration of each change.
async fn exercise(
    namespaces: u32,
    client: &Client,
    used: impl Fn() -> Result<Usage, Error>,
) -> Result<(Usage, Usage, Vec<Duration>), Error> {
    parallel("namespaces have requested a pod", 0..namespaces, |number| until_changed(client, number, 0))
        .await?;
    let before = used()?;
    let mut durations = Vec::new();
    for change in 1..=CHANGES {
        // The first Auditor is in each chain. Another one changes the part that all namespaces share.
        write_auditor(client, 1 + change % (AUDITORS - 1), change).await?;
        write_auditor(client, 0, change).await?;
        let begin = Instant::now();
        // Other namespaces after each change: each catalogue has another version then.
        let mut numbers = (change - 1..namespaces).step_by(usize::try_from(CHANGES)?);
        if let Some(number) = numbers.next() {
            until_changed(client, number, change).await?;
            durations.push(begin.elapsed());
        }
        let pods = stream::iter(numbers.map(|number| until_changed(client, number, change)));
        pods.buffer_unordered(CONCURRENCY).try_collect::<Vec<()>>().await?;
        if change % 10 == 0 {
            eprintln!("soak: {change} changes, {} resident", bytes(used()?.memory));
        }
    }
    Ok((before, used()?, durations))
}

/// Runs `once` for all numbers concurrently, and reports each thousand.
async fn parallel<F>(what: &str, numbers: std::ops::Range<u32>, once: impl Fn(u32) -> F) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let count = numbers.len();
    let mut created = stream::iter(numbers.map(once)).buffer_unordered(CONCURRENCY);
    let mut done = 0;
    while created.try_next().await?.is_some() {
        done += 1;
        if done % 1_000 == 0 || done == count {
            eprintln!("soak: {done} of {count} {what}");
        }
    }
    Ok(())
}

fn auditor(number: u32) -> String {
    format!("lucid-soak-{number:04}-auditor")
}

fn namespace(number: u32) -> String {
    format!("soak-{number:05}")
}

fn image(number: u32, version: u32) -> String {
    format!("registry.example.com/soak-{number:04}:{version}")
}

fn fields() -> PatchParams {
    PatchParams::apply("soak").force()
}

async fn write_auditor(client: &Client, number: u32, version: u32) -> Result<(), Error> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("lucid.computing", "v1", "Auditor"));
    let auditors: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let name = auditor(number);
    let object = json!({
        "apiVersion": "lucid.computing/v1", "kind": "Auditor", "metadata": {"name": name},
        "spec": {
            "image": image(number, version),
            "description": "Refuses what the soak does not want",
            "labels": {"tier": "core"},
            "container": {
                "port": 10_000 + number,
                "env": [{"name": "THRESHOLD", "value": "0.8"}, {"name": "MODEL", "value": "small"}],
                "resources": {
                    "requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"},
                },
                "probes": {"readiness": {"periodSeconds": 5}},
            },
        },
    });
    auditors.patch(&name, &fields(), &Patch::Apply(object)).await?;
    Ok(())
}

/// Creates a namespace whose catalogue has the first Auditor with another port, one more auditor, and its own default.
async fn write_namespace(cluster: &Cluster, client: &Client, number: u32) -> Result<(), Error> {
    let namespace = namespace(number);
    cluster.create_namespace(&namespace, &[("lucid.computing/enabled", "true")]).await?;
    let (first, second) = (auditor(0), auditor(1 + number % (AUDITORS - 1)));
    let port = 20_000 + number;
    let file = format!(
        "chain:\n- name: {first}\n  port: {port}\n- name: {second}\ndefaults:\n  audit-mode: observe\n"
    );
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "lucid-auditor-chain"},
        "data": {"auditors.yaml": file, "chain": format!("{first},{second}")},
    });
    maps.patch("lucid-auditor-chain", &fields(), &Patch::Apply(map)).await?;
    Ok(())
}

/// Creates pods until one has this version of the first Auditor, on the namespace's port.
async fn until_changed(client: &Client, number: u32, version: u32) -> Result<(), Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace(number));
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let manifest: Pod = serde_json::from_value(json!({
        "metadata": {"name": "model", "labels": {"lucid.io/secured": "true"}},
        "spec": {"containers": [{
            "name": "model", "image": "registry.example.com/model:1", "ports": [{"containerPort": 5000}],
        }]},
    }))?;
    let expected = (Some(image(0, version)), Some(i32::try_from(20_000 + number)?));
    let what = format!("a pod in {} with {expected:?}", namespace(number));
    super::eventually(&what, async || {
        let created = pods.create(&params, &manifest).await;
        let containers = created.iter().filter_map(|pod| pod.spec.as_ref()).flat_map(|spec| &spec.containers);
        let mut found = containers.map(|container| {
            let ports = container.ports.iter().flatten();
            (container.image.clone(), ports.map(|port| port.container_port).next())
        });
        Ok(found.any(|found| found == expected).then_some(()))
    })
    .await
}
