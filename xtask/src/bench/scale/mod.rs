//! `cargo xtask bench scale`: many pods in many namespaces, with three replicas of the operator.
//!
//! Each pod is created twice: in a labelled namespace and in an unlabelled one, alternating in batches of a tenth, so that
//! other load of the machine affects both alike.

mod histogram;
mod load;
mod replica;

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use lucid_e2e::Error;
use lucid_testbed::Cluster;
use serde::Serialize;

use self::histogram::Calls;
use self::load::Created;
use self::replica::{Replicas, Use};
use super::build;
use crate::report::{Goal, Output, Report, Row};

#[derive(Args)]
pub(crate) struct Scale {
    /// Numbers of pods in labelled namespaces; each is measured with a new cluster.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000])]
    pods: Vec<usize>,
    /// Number of namespaces.
    #[arg(long, default_value_t = 100)]
    namespaces: usize,
    /// Number of replicas of the operator.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=replica::MOST as i64))]
    replicas: u8,
    /// Number of concurrent creations.
    #[arg(long, default_value_t = 32)]
    clients: usize,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Number of batches, alternating between labelled and unlabelled namespaces.
const TURNS: usize = 10;
const LABEL: (&str, &str) = ("lucid.computing/enabled", "true");
/// Timeout until the API server calls the webhooks.
const PATIENCE: Duration = Duration::from_secs(30);
const MUTATE: &str = "mutate.lucid.computing";
const VALIDATE: &str = "validate.lucid.computing";

#[derive(Serialize)]
struct Figures {
    pods: usize,
    namespaces: usize,
    with_webhooks: Side,
    without: Side,
    mutate: Option<Calls>,
    validate: Option<Calls>,
    /// Resource use of each replica after its start, and after the load.
    before: Vec<Use>,
    after: Vec<Use>,
}

/// Results for clients that create pods.
#[derive(Serialize)]
struct Side {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    failed: u64,
    failure: Option<String>,
}

impl Side {
    fn of(created: Created) -> Self {
        Self {
            per_second: created.per_second(),
            p50_ms: created.quantile(0.5),
            p99_ms: created.quantile(0.99),
            failed: created.failed,
            failure: created.failure,
        }
    }
}

impl Figures {
    /// Pods that were denied, or stored with an unexpected chain.
    fn failed(&self) -> u64 {
        self.with_webhooks.failed + self.without.failed
    }

    /// CPU time of all replicas per pod, in milliseconds.
    fn cpu_ms(&self) -> f64 {
        let used = |uses: &[Use]| uses.iter().map(|use_| use_.cpu_seconds).sum::<f64>();
        (used(&self.after) - used(&self.before)) / self.pods as f64 * 1000.0
    }

    /// Memory of the largest replica.
    fn rss(uses: &[Use]) -> f64 {
        uses.iter().map(|use_| use_.rss).max().unwrap_or_default() as f64 / f64::from(1 << 20)
    }

    /// Ratio of the creation rates without and with webhook calls.
    fn slowdown(&self) -> f64 {
        self.without.per_second / self.with_webhooks.per_second
    }
}

impl Row for Figures {
    const HEADER: &'static [&'static str] = &[
        "pods",
        "created/s:\nlabelled, not, ratio",
        "created, p50 / p99:\nlabelled",
        "not labelled",
        "/mutate, by the API server:\nmean, p50 / p99",
        "/validate:\nmean, p50 / p99",
        "operators' CPU\nfor a pod",
        "memory of a replica:\nbefore, after",
        "calls of /mutate\nby replica",
        "failed",
    ];

    fn cells(&self) -> Vec<String> {
        let side = |side: &Side| format!("{:.1} / {:.0} ms", side.p50_ms, side.p99_ms);
        let calls = |calls: &Option<Calls>| {
            calls.map_or_else(String::new, |Calls { mean_ms, p50_ms, p99_ms, .. }| {
                format!("{mean_ms:.1}, {p50_ms:.1} / {p99_ms:.0} ms")
            })
        };
        let each = self.after.iter().zip(&self.before).map(|(after, before)| after.calls - before.calls);
        let each: Vec<_> = each.map(|calls| calls.to_string()).collect();
        vec![
            format!("{}", self.pods),
            format!(
                "{:.0}, {:.0}, {:.1}",
                self.with_webhooks.per_second,
                self.without.per_second,
                self.slowdown()
            ),
            side(&self.with_webhooks),
            side(&self.without),
            calls(&self.mutate),
            calls(&self.validate),
            format!("{:.2} ms", self.cpu_ms()),
            format!("{:.1}, {:.1} MiB", Self::rss(&self.before), Self::rss(&self.after)),
            each.join(", "),
            self.failed().to_string(),
        ]
    }
}

pub(super) fn run(scale: &Scale) -> Result<(), Error> {
    if scale.pods.iter().any(|pods| *pods < TURNS) || scale.namespaces == 0 || scale.clients == 0 {
        return Err(
            format!("accepted are {TURNS} pods or more, a namespace or more, a client or more").into()
        );
    }
    let program = build::build_own("lucid-operator")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut report = Report::new(build::versions()?)?;
    for &pods in &scale.pods {
        report.rows.push(runtime.block_on(measure(scale, pods, &program))?);
    }
    report.failed = report.rows.iter().map(Figures::failed).sum();
    report.goals = goals(&report.rows, report.failed);
    report.print(scale.output)
}

async fn measure(scale: &Scale, pods: usize, program: &Path) -> Result<Figures, Error> {
    eprintln!("bench: starting a Kubernetes control plane and {} operators", scale.replicas);
    // The cluster has no scheduler and no nodes: pods are stored and stay pending.
    let cluster = Cluster::builder().controller_manager().webhooks_by_service().start().await?;
    let labelled = namespaces(&cluster, "labelled", scale.namespaces, &[LABEL]).await?;
    let others = namespaces(&cluster, "other", scale.namespaces, &[]).await?;
    cluster.create_namespace("lucid-system", &[]).await?;
    let replicas = Replicas::start(&cluster, program, scale.replicas.into()).await?;
    let client = cluster.client();
    until_audited(&client, &labelled[0]).await?;

    let calls_before = metrics(&client).await?;
    let before = replicas.uses().await?;
    let (mut with, mut without) = (Created::default(), Created::default());
    for turn in 0..TURNS {
        eprintln!("bench: {pods} pods, turn {} of {TURNS}", turn + 1);
        let numbers = turn * pods / TURNS..(turn + 1) * pods / TURNS;
        // The order alternates.
        for is_labelled in [turn % 2 == 0, turn % 2 == 1] {
            let (namespaces, created) =
                if is_labelled { (&labelled, &mut with) } else { (&others, &mut without) };
            created.add(load::create(&client, namespaces, numbers.clone(), scale.clients, is_labelled).await);
        }
    }
    let after = replicas.uses().await?;
    let calls = metrics(&client).await?;
    let calls = |webhook| Calls::between(webhook, &calls_before, &calls);
    Ok(Figures {
        pods,
        namespaces: scale.namespaces,
        with_webhooks: Side::of(with),
        without: Side::of(without),
        mutate: calls(MUTATE),
        validate: calls(VALIDATE),
        before,
        after,
    })
}

async fn namespaces(
    cluster: &Cluster,
    prefix: &str,
    count: usize,
    labels: &[(&str, &str)],
) -> Result<Vec<String>, Error> {
    let names: Vec<_> = (1..=count).map(|number| format!("{prefix}-{number}")).collect();
    let made = stream::iter(&names).map(|name| cluster.create_namespace(name, labels));
    made.buffer_unordered(16).try_collect::<Vec<()>>().await?;
    Ok(names)
}

async fn until_audited(client: &Client, namespace: &str) -> Result<(), Error> {
    let begin = Instant::now();
    while !load::is_audited(client, namespace).await? {
        if begin.elapsed() > PATIENCE {
            return Err("the API server does not call the operators, or they make no chain".into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn metrics(client: &Client) -> Result<String, Error> {
    Ok(client.request_text(http::Request::get("/metrics").body(Vec::new())?).await?)
}

fn goals(rows: &[Figures], failed: u64) -> Vec<Goal> {
    let first =
        rows.iter().find_map(|row| row.with_webhooks.failure.as_ref().or(row.without.failure.as_ref()));
    let found = first.map_or_else(String::new, |failure| format!(", the first: {failure}"));
    let mut goals = vec![Goal {
        goal: "every pod of a labelled namespace has its chain, and none is refused",
        found: format!("{failed} failed{found}"),
        reached: failed == 0,
    }];
    if let (Some(few), Some(many)) =
        (rows.iter().min_by_key(|row| row.pods), rows.iter().max_by_key(|row| row.pods))
        && few.pods < many.pods
    {
        let growth = many.cpu_ms() / few.cpu_ms();
        goals.push(Goal {
            goal: "the operators' CPU time for a pod does not grow with the pods: at most 1.2 times",
            found: format!("{growth:.2} times"),
            reached: growth <= 1.2,
        });
        let growth = Figures::rss(&many.after) - Figures::rss(&few.after);
        goals.push(Goal {
            goal: "memory of a replica does not grow with the pods: at most 8 MiB from the fewest to the most",
            found: format!("{growth:.1} MiB"),
            reached: growth <= 8.0,
        });
    }
    goals
}
