//! Benchmark of the released operator beside a real API server: calls of `/mutate` over TLS.

use std::fs;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Api;
use lucid_e2e::{Error, Operator, create_pod};
use lucid_testbed::Cluster;
use serde::Serialize;
use serde_json::json;

use super::super::build;
use super::super::load::{Load, Summary};
use super::super::server::CORE;
use super::time;
use crate::report::Goal;

/// Size of the review in bytes.
const BODY: u64 = 10 << 10;
/// DNS name that the operator's certificate always contains.
const NAME: &str = "lucid-operator-webhook.lucid-system.svc";
/// Namespace of the pods of bench/load.
const NAMESPACE: &str = "shop";
/// Connections with a call in flight at all times.
const CONNECTIONS: &str = "32";

#[derive(Serialize)]
pub(super) struct Figures {
    /// Share of the operator's maximum throughput.
    share: f64,
    #[serde(flatten)]
    summary: Summary,
}

pub(super) fn measure(seconds: u32) -> Result<Vec<Figures>, Error> {
    let load = build::build("bench-load")?;
    let program = build::build_own("lucid-operator")?;
    let runtime = tokio::runtime::Runtime::new()?;
    eprintln!("bench: starting a Kubernetes control plane and the operator");
    let (cluster, operator) = runtime.block_on(async {
        let cluster = Cluster::builder().start().await?;
        cluster.create_namespace("lucid-system", &[]).await?;
        cluster.create_namespace(NAMESPACE, &[("lucid.computing/enabled", "true")]).await?;
        let words = ["taskset".into(), "--cpu-list".into(), CORE.into(), program.into_os_string()];
        let operator = Operator::builder(&cluster).command(words).start().await?;
        check(&cluster).await?;
        Ok::<_, Error>((cluster, operator))
    })?;
    let ca = cluster.folder().join("operator-ca.crt");
    fs::write(&ca, runtime.block_on(trust(&cluster))?)?;
    let endpoint = format!("{}:{}", cluster.host_address(), operator.port());
    let pid = operator.pid().ok_or("the operator has ended")?.to_string();
    let arguments =
        ["--path", "/mutate", "--name", NAME, "--endpoint", &endpoint, "--server", &pid].map(str::to_owned);
    let seconds = seconds.to_string();
    let call = |load_arguments: &[&str]| {
        eprintln!("bench: /mutate, {}", load_arguments.join(" "));
        Load::spawn(&load, &ca, BODY, &arguments, load_arguments)?.summary()
    };
    let saturated = call(&["saturate", "--connections", CONNECTIONS, "--seconds", &seconds])?;
    let most = saturated.per_second;
    let mut figures = vec![Figures { share: 1.0, summary: saturated }];
    for share in [0.5, 0.1] {
        let summary = call(&["schedule", "--rate", &(most * share).to_string(), "--seconds", &seconds])?;
        figures.push(Figures { share, summary });
    }
    Ok(figures)
}

/// Verifies that the operator injects: a pod created through the API server gets a chain.
async fn check(cluster: &Cluster) -> Result<(), Error> {
    let client = cluster.client();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "orders", "labels": {"lucid.io/secured": "true"}},
        "spec": {"containers": [{"name": "orders", "image": "registry.example.com/shop/orders:1.2.3"}]},
    });
    let stored = create_pod(&client, NAMESPACE, &pod).await?.stored()?;
    let containers = stored.spec.map(|spec| spec.containers.len()).unwrap_or_default();
    if containers == 3 { Ok(()) } else { Err(format!("the pod got {containers} containers, not 3").into()) }
}

/// CA bundle by which the API server trusts the operator.
async fn trust(cluster: &Cluster) -> Result<Vec<u8>, Error> {
    let configuration =
        Api::<MutatingWebhookConfiguration>::all(cluster.client()).get("lucid-operator").await?;
    let webhooks = configuration.webhooks.unwrap_or_default();
    let bundle = webhooks.into_iter().next().and_then(|webhook| webhook.client_config.ca_bundle);
    Ok(bundle.ok_or("the webhook has no caBundle")?.0)
}

impl Figures {
    pub(super) fn cells(&self) -> Vec<String> {
        let Summary { per_second, latency_us, .. } = &self.summary;
        let what = match self.share {
            1.0 => {
                format!("/mutate over TLS, saturated by {CONNECTIONS} connections: {per_second:.0} calls/s")
            }
            share => format!("/mutate over TLS, at {:.0} % of that: {per_second:.0} calls/s", share * 100.0),
        };
        let mut cells = vec![what, "10 KB".to_owned(), time(latency_us.p50), time(latency_us.p99)];
        cells.resize(<super::Figures as crate::report::Row>::HEADER.len(), String::new());
        cells
    }
}

pub(super) fn failed(figures: &[Figures]) -> u64 {
    figures.iter().map(|figures| figures.summary.failed).sum()
}

pub(super) fn goals(figures: &[Figures]) -> Vec<Goal> {
    let half = figures.iter().find(|figures| figures.share == 0.5);
    let half = half.map(|half| Goal {
        goal: "/mutate over TLS with a review of 10 KB at half load: p99 under 1 ms",
        found: time(half.summary.latency_us.p99),
        reached: half.summary.latency_us.p99 < 1000.0,
    });
    let failed = failed(figures);
    let fine =
        Goal { goal: "no call of /mutate fails", found: format!("{failed} failed"), reached: failed == 0 };
    half.into_iter().chain([fine]).collect()
}
