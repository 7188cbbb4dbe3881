//! `cargo xtask bench change`: delay until new pods reflect a change of the catalogue, a chain or an Auditor.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lucid_e2e::{Error, Operator};
use lucid_testbed::Cluster;
use serde::Serialize;
use serde_json::{Value, json};

use super::build;
use crate::command::ROOT;
use crate::report::{Goal, Output, Report, Row};

#[derive(Args)]
pub(crate) struct Change {
    /// Number of changes of each subject.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    changes: u32,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

const NAMESPACE: &str = "shop";
const LIMIT: Duration = Duration::from_secs(1);
/// Timeout of one change. The first one includes the time until the API server calls the webhooks.
const PATIENCE: Duration = Duration::from_secs(30);

/// Subject of a change.
#[derive(Clone, Copy, Serialize)]
enum Subject {
    /// Catalogue of the cluster.
    Catalogue,
    /// Chain of a namespace.
    Chain,
    /// Auditor object.
    Auditor,
}

impl Subject {
    const ALL: [Self; 3] = [Self::Catalogue, Self::Chain, Self::Auditor];

    fn name(self) -> &'static str {
        match self {
            Self::Catalogue => "ConfigMap lucid-auditors of the cluster: an image",
            Self::Chain => "ConfigMap lucid-auditor-chain of a namespace: the chain",
            Self::Auditor => "Auditor: an image",
        }
    }

    /// Chain that the pod requests, or `None` for the chain of its namespace.
    fn asked(self) -> Option<&'static str> {
        match self {
            Self::Catalogue => Some("pii"),
            Self::Chain => None,
            Self::Auditor => Some("subject"),
        }
    }

    async fn write(self, client: &Client, number: u32) -> Result<(), Error> {
        let image = image(number);
        match self {
            Self::Catalogue => {
                let file = format!("chain: [{{name: lucid-pii-auditor, image: {image}}}]");
                write_map(client, "lucid-system", "lucid-auditors", "auditors.yaml", &file).await
            }
            Self::Chain => {
                let chain = if number.is_multiple_of(2) { "toxicity" } else { "injection,toxicity" };
                write_map(client, NAMESPACE, "lucid-auditor-chain", "chain", chain).await
            }
            Self::Auditor => {
                let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("lucid.computing", "v1", "Auditor"));
                let auditors: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
                let auditor = json!({
                    "apiVersion": "lucid.computing/v1", "kind": "Auditor", "metadata": {"name": "subject"},
                    "spec": {"image": image, "container": {"port": 9000}},
                });
                auditors.patch("subject", &fields(), &Patch::Apply(auditor)).await?;
                Ok(())
            }
        }
    }

    /// Returns `true` if a pod with these images reflects the change.
    fn is_in(self, images: &[String], number: u32) -> bool {
        match self {
            Self::Catalogue | Self::Auditor => images.contains(&image(number)),
            Self::Chain => {
                let injection = images.iter().any(|image| image.contains("injection"));
                let toxicity = images.iter().any(|image| image.contains("toxicity"));
                toxicity && injection != number.is_multiple_of(2)
            }
        }
    }
}

fn image(number: u32) -> String {
    format!("registry.example.com/subject:{number}")
}

fn fields() -> PatchParams {
    PatchParams::apply("bench").force()
}

async fn write_map(client: &Client, namespace: &str, name: &str, key: &str, text: &str) -> Result<(), Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: text}});
    maps.patch(name, &fields(), &Patch::Apply(map)).await?;
    Ok(())
}

/// One change, and the pods created one after another since the API server accepted it.
#[derive(Serialize)]
struct Seen {
    /// Time until the answer with the first pod that reflects the change.
    seconds: f64,
    /// Number of pods that did not reflect the change.
    pods_before: u32,
}

#[derive(Serialize)]
struct Figures {
    subject: Subject,
    /// Sorted by time.
    seen: Vec<Seen>,
}

impl Figures {
    fn milliseconds(&self, percent: usize) -> f64 {
        let index = (self.seen.len() * percent / 100).min(self.seen.len() - 1);
        self.seen[index].seconds * 1000.0
    }
}

impl Row for Figures {
    const HEADER: &'static [&'static str] = &[
        "what is changed",
        "changes",
        "seen by the very\nnext pod",
        "pods without it:\nmost",
        "from the change to the answer\nwith it: p50, p99, max",
    ];

    fn cells(&self) -> Vec<String> {
        let next = self.seen.iter().filter(|seen| seen.pods_before == 0).count();
        let most = self.seen.iter().map(|seen| seen.pods_before).max().unwrap_or_default();
        let [p50, p99, max] = [50, 99, 100].map(|percent| self.milliseconds(percent));
        vec![
            self.subject.name().to_owned(),
            self.seen.len().to_string(),
            format!("{next}"),
            format!("{most}"),
            format!("{p50:.0}, {p99:.0}, {max:.0} ms"),
        ]
    }
}

pub(super) fn run(change: &Change) -> Result<(), Error> {
    let program = build::build_own("lucid-operator")?;
    let mut report = Report::new(build::versions()?)?;
    report.rows = tokio::runtime::Runtime::new()?.block_on(measure(change, &program))?;
    let latest = report.rows.iter().map(|row| row.milliseconds(100)).fold(0.0, f64::max);
    report.goals = vec![Goal {
        goal: "each change is in a pod within 1 s",
        found: format!("{latest:.0} ms at most"),
        reached: latest <= LIMIT.as_secs_f64() * 1000.0,
    }];
    report.print(change.output)
}

async fn measure(change: &Change, program: &Path) -> Result<Vec<Figures>, Error> {
    eprintln!("bench: starting a Kubernetes control plane and an operator");
    let cluster = Cluster::builder().start().await?;
    cluster.create_namespace("lucid-system", &[]).await?;
    cluster.create_namespace(NAMESPACE, &[("lucid.computing/enabled", "true")]).await?;
    let definition = Path::new(ROOT).join("deploy/auditor-crd.yaml");
    let definition = definition.to_str().ok_or("the repository's path is not text")?;
    let applied = cluster.kubectl(&["apply", "--server-side", "--filename", definition], "")?;
    if !applied.status.success() {
        return Err(String::from_utf8_lossy(&applied.stderr).into());
    }
    let _operator = Operator::builder(&cluster).command([program]).start().await?;
    let client = cluster.client();
    let mut rows = Vec::new();
    for subject in Subject::ALL {
        eprintln!("bench: {}, {} times", subject.name(), change.changes);
        // The first change creates the subject and makes the first webhook calls, so it is not measured.
        seen(&client, subject, 0).await?;
        let mut figures = Figures { subject, seen: Vec::new() };
        for number in 1..=change.changes {
            figures.seen.push(seen(&client, subject, number).await?);
        }
        figures.seen.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
        rows.push(figures);
    }
    Ok(rows)
}

/// Changes the subject and creates pods until one reflects the change.
async fn seen(client: &Client, subject: Subject, number: u32) -> Result<Seen, Error> {
    let annotations = subject.asked().map(|chain| json!({"lucid.computing/auditor-chain": chain}));
    let manifest: Pod = serde_json::from_value(pod(annotations))?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let mut pods_before = 0;
    let warm_up = Instant::now();
    while let Err(error) = subject.write(client, number).await {
        // The API server does not serve a new CustomResourceDefinition at once.
        if number > 0 || warm_up.elapsed() > PATIENCE {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let begin = Instant::now();
    loop {
        let spec = pods.create(&params, &manifest).await?.spec.unwrap_or_default();
        let images: Vec<_> = spec.containers.into_iter().filter_map(|container| container.image).collect();
        if subject.is_in(&images, number) {
            return Ok(Seen { seconds: begin.elapsed().as_secs_f64(), pods_before });
        }
        if begin.elapsed() > PATIENCE {
            return Err(format!("{}: change {number} is in no pod: {images:?}", subject.name()).into());
        }
        pods_before += 1;
    }
}

fn pod(annotations: Option<Value>) -> Value {
    json!({
        "metadata": {"name": "model", "labels": {"lucid.io/secured": "true"}, "annotations": annotations},
        "spec": {"containers": [{
            "name": "model", "image": "registry.example.com/model:1", "ports": [{"containerPort": 5000}],
        }]},
    })
}
