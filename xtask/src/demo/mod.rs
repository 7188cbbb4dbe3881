//! `cargo xtask demo`: Lucid on a real API server, summarized in a table.

use std::fs;
use std::path::PathBuf;

mod node;

use lucid_e2e::{ClusterExt as _, Error};

use clap::Args;
use comfy_table::{Cell, ContentArrangement, Table, presets};
use k8s_openapi::api::core::v1::{Container, Namespace, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams};
use lucid_e2e::{Answer, Operator, Verifier, create_pod};
use lucid_testbed::Cluster;
use lucid_webhook::shutdown_signal;
use serde_json::{Value, json};

use crate::picture::svg;
use crate::testbed::{apply_config_map, build_all, point_kubectl_at};

#[derive(Args)]
pub(crate) struct Demo {
    /// Exit after the table instead of running until Ctrl-C.
    #[arg(long)]
    once: bool,
    /// Run pods on a node and send requests to a model through its chain. Needs root.
    #[arg(long, conflicts_with = "picture")]
    node: bool,

    /// Also write the table as a picture (SVG) to this file.
    #[arg(long, value_name = "FILE", requires = "once")]
    picture: Option<PathBuf>,
}

/// Width of the table in columns if standard output is not a terminal.
const WIDTH: u16 = 140;

const EXPLAINED: &str =
    "An auditor listens on its port and forwards to the next one, the last one to the model's port, 5000.";

/// Digests notarized in the demo's Verifier.
const GUARDRAILS: &str = "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
const INJECTION: &str = "sha256:d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35";
const TOXICITY: &str = "sha256:4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce";
/// Digest that is not notarized.
const UNKNOWN: &str = "sha256:4b227777d4dd1fc61c6f884f48641d02b4d121d3fd328cb08b5531fcacdabf8a";

struct Sample {
    about: &'static str,
    namespace: &'static str,
    manifest: Value,
}

impl Sample {
    fn new(
        about: &'static str,
        namespace: &'static str,
        name: &str,
        secured: bool,
        annotations: Value,
    ) -> Self {
        let labels = if secured { json!({"lucid.io/secured": "true"}) } else { json!({}) };
        let manifest = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {"containers": [
                {"name": "model", "image": "example.com/model:1", "ports": [{"name": "model", "containerPort": 5000}]},
            ]},
        });
        Self { about, namespace, manifest }
    }
}

fn samples() -> Vec<Sample> {
    vec![
        Sample::new("asks for nothing", "demo", "plain", false, json!({})),
        Sample::new("label lucid.io/secured", "demo", "default-chain", true, json!({})),
        Sample::new(
            "annotation auditors: injection,toxicity",
            "demo",
            "injection-toxicity",
            false,
            json!({"lucid.computing/auditors": "injection,toxicity"}),
        ),
        Sample::new(
            "namespace with a chain in a ConfigMap",
            "demo-chain",
            "namespace-chain",
            true,
            json!({}),
        ),
        Sample::new(
            "annotation skip-audit, allowed here",
            "demo",
            "skipped",
            true,
            json!({"lucid.computing/skip-audit": "true"}),
        ),
        Sample::new(
            "annotations with mistakes",
            "demo",
            "invalid-annotation",
            true,
            json!({"lucid.computing/auditor-chain": "injektion", "lucid.computing/audit-mode": "loud"}),
        ),
        Sample::new("auditor image that nobody notarized", "demo-unknown", "un-notarized", true, json!({})),
    ]
}

pub(crate) fn run(demo: &Demo) -> Result<(), Error> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let shutdown_signal = shutdown_signal()?;
        let playing = async { if demo.node { node::play(demo).await } else { play(demo).await } };
        tokio::select! {
            outcome = playing => outcome,
            () = shutdown_signal => Ok(()),
        }
    })
}

async fn play(demo: &Demo) -> Result<(), Error> {
    eprintln!("demo: building Lucid, and the programs of a control plane");
    let kubectl = if demo.once { &[][..] } else { &["kubectl"] };
    let programs = [&["etcd", "kube-apiserver"], kubectl].concat();
    let lucid = tokio::task::spawn_blocking(|| {
        ["lucid-operator", "lucid-verifier"]
            .into_iter()
            .try_for_each(|name| lucid_e2e::program(name).map(drop))
    });
    // Side by side: neither uses both processors all the time.
    let (lucid, control_plane) = tokio::join!(lucid, build_all(&programs));
    lucid??;
    control_plane?;
    eprintln!("demo: starting a Kubernetes control plane");
    let cluster = Cluster::builder().start().await?;
    prepare(&cluster).await?;
    eprintln!("demo: starting the verifier and the operator");
    let verifier = Verifier::start(cluster.folder(), &[GUARDRAILS, INJECTION, TOXICITY]).await?;
    let operator = Operator::builder(&cluster)
        .env("LUCID_ADMISSION_MODE", "enforce")
        .env("LUCID_TIER_LABEL", "")
        .env("LUCID_STRICT_NOTARIZATION", "true")
        .env("LUCID_VERIFIER_URL", verifier.url())
        .env("LUCID_ALLOW_SKIP", "true")
        .start()
        .await?;

    let mut table = table();
    table.set_header(["pod", "what happened", "containers", "warning or reason"]);
    let mut refused = Vec::new();
    for sample in samples() {
        let answer = create_pod(&cluster.client(), sample.namespace, &sample.manifest).await?;
        if answer.result.is_err() {
            refused.push(sample.namespace);
        }
        table.add_row(row(&sample, &answer));
    }
    println!("\n{table}\n");
    if refused != ["demo-unknown"] {
        let log = operator.log().display().to_string();
        return Err(format!("pods were refused in {refused:?}, expected only demo-unknown; see {log}").into());
    }
    println!("{EXPLAINED}");
    if let Some(picture) = &demo.picture {
        fs::write(picture, svg(&format!("$ cargo xtask demo --once\n\n{table}\n\n{EXPLAINED}\n")))?;
    }
    if !demo.once {
        println!("\nThe cluster, the verifier and the operator stay up. In another terminal:\n");
        point_kubectl_at(&cluster).await?;
        println!("    kubectl --namespace demo get pod default-chain --output yaml");
        println!("\nThe operator's log is {}. Ctrl-C ends everything.", operator.log().display());
        std::future::pending::<()>().await;
    }
    Ok(())
}

fn width() -> u16 {
    let terminal = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    terminal.map(|size| size.ws_col).filter(|columns| *columns > 0).unwrap_or(WIDTH)
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width());
    table
}

async fn prepare(cluster: &Cluster) -> Result<(), Error> {
    cluster.create_namespace("lucid-system", &[]).await?;
    for name in ["demo", "demo-chain", "demo-unknown"] {
        cluster.create_namespace(name, &[("lucid.computing/enabled", "true")]).await?;
    }
    let pinned = |name: &str, digest: &str| {
        format!(
            "  - {{name: lucid-{name}-auditor, image: \"ghcr.io/lucid/lucid-{name}-auditor@{digest}\"}}\n"
        )
    };
    let catalogue = format!(
        "chain:\n{}{}{}",
        pinned("guardrails", GUARDRAILS),
        pinned("injection", INJECTION),
        pinned("toxicity", TOXICITY),
    );
    let client = cluster.client();
    apply_config_map(&client, "lucid-system", "lucid-auditors", "auditors.yaml", &catalogue).await?;
    apply_config_map(&client, "demo-chain", "lucid-auditor-chain", "chain", "toxicity, guardrails").await?;
    let images = json!({"metadata": {"annotations": {"lucid.computing/auditor-images": "ghcr.io/lucid"}}});
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.patch("demo-unknown", &PatchParams::default(), &Patch::Merge(&images)).await?;
    let unknown = format!("chain:\n{}", pinned("injection", UNKNOWN));
    apply_config_map(&client, "demo-unknown", "lucid-auditor-chain", "auditors.yaml", &unknown).await?;
    Ok(())
}

fn row(sample: &Sample, answer: &Answer) -> [Cell; 4] {
    let name = sample.manifest["metadata"]["name"].as_str().unwrap_or_default();
    let (what, containers) = match &answer.result {
        Ok(pod) => {
            let count = containers(pod).filter(|container| next_hop(container).is_some()).count();
            let what = match count {
                0 => "unchanged".to_owned(),
                1 => "1 auditor injected".to_owned(),
                _ => format!("{count} auditors injected"),
            };
            (what, containers(pod).map(describe).collect::<Vec<_>>().join("\n"))
        }
        Err(_) => ("refused".to_owned(), String::new()),
    };
    let notes = match &answer.result {
        Ok(_) => answer.warnings.join("\n"),
        Err(reason) => reason.clone(),
    };
    [
        Cell::new(format!("{name}\n({})", sample.about)),
        Cell::new(what),
        Cell::new(containers),
        Cell::new(notes),
    ]
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| &spec.containers)
}

fn next_hop(container: &Container) -> Option<&str> {
    let env = container.env.iter().flatten().find(|variable| variable.name == "LUCID_CHAIN_NEXT")?;
    env.value.as_deref()?.rsplit(':').next()
}

/// Formats a container as `name :port`, with the forwarding address of an auditor.
fn describe(container: &Container) -> String {
    let ports = container.ports.iter().flatten().map(|port| format!(" :{}", port.container_port));
    let next = next_hop(container).map(|port| format!(" → {port}")).unwrap_or_default();
    format!("{}{}{next}", container.name, ports.collect::<String>())
}
