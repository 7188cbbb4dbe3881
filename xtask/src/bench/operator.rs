//! `cargo xtask bench operator`: the released lucid-operator and lucid-validator beside a real API server and a Verifier, and
//! webhooks on controller-runtime.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use lucid_certs::target::{ObjectTarget, TrustTarget};
use lucid_e2e::{ClusterExt as _, Error, Operator, OperatorBuilder, Verifier, create_pod};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use super::load::{Generator, Summary, Target, median};
use super::programs::{self, Certificate, SERVER_CORE};
use super::server::{Kind, Server};
use crate::report::{Report, bytes, time};
use crate::testbed::apply_config_map;

#[derive(Args)]
pub(crate) struct Webhooks {
    /// Number of rounds, alternating between the servers; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Sizes of the review in bytes; the goals apply to the default ones.
    #[arg(long, value_delimiter = ',', default_values_t = GOALS.map(|(body, ..)| body))]
    body: Vec<u64>,
}

/// Goals by review size: requests per CPU second of `/mutate` and of `/validate`, relative to controller-runtime.
const GOALS: [(u64, f64, f64); 3] = [(2 << 10, 3.0, 1.8), (10 << 10, 9.0, 4.0), (100 << 10, 30.0, 14.0)];
const AUDITOR: &str = "lucid-guardrails-auditor";
/// Defaults, a chain and the owners of fields make at most so many times of a large pod.
const GROWTH: u64 = 2;
const DENIED: u64 = 11 << 10;
/// Namespace of the pods of bench/load.
const NAMESPACE: &str = "shop";
/// Connections with a call in flight at all times.
const CONNECTIONS: &str = "16";
/// Duration of each measurement.
const SECONDS: &str = "5";
/// Notarized digest.
const DIGEST: &str = "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
const UNKNOWN_DIGEST: &str = "sha256:7b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";

pub(super) fn run(webhooks: &Webhooks, report: &mut Report) -> Result<(), Error> {
    let programs = [programs::build_own("lucid-operator")?, programs::build_own("lucid-validator")?];
    let generator = Generator::build()?;
    let program = Kind::ControllerRuntime.build()?;
    let certificate = Certificate::generate()?;
    let peer = Server::start(Kind::ControllerRuntime, &program, &certificate, &["--digests", DIGEST])?;
    let program = Kind::Constant.build()?;
    let floor = Server::start(Kind::Constant, &program, &certificate, &["--constant"])?;
    let runtime = tokio::runtime::Runtime::new()?;
    eprintln!("bench: starting a Kubernetes control plane, a Verifier, lucid-operator and lucid-validator");
    let mut scene = runtime.block_on(Scene::start(programs, &Setup::default()))?;
    let pods = runtime.block_on(scene.pods(&generator, &webhooks.body))?;
    for path in ["/mutate", "/validate"] {
        for (body, pod) in &pods {
            let own = scene.target(path, pod)?;
            let target = Target::new(path, &certificate.cert, &[peer.address]);
            let target = with_pod(target.with("--server", peer.process.pid().to_string()), path, pod);
            let constant = floor.target(&certificate);
            measure(webhooks, &generator, path, *body, [&own, &target, &constant], report)?;
        }
    }
    eprintln!("bench: denials with the circuit breaker open");
    let pods = runtime.block_on(scene.pods(&generator, &[DENIED]))?;
    let [(_, pod)] = &pods[..] else { return Err("no pod to deny".into()) };
    fs::write(pod, fs::read_to_string(pod)?.replace(DIGEST, UNKNOWN_DIGEST))?;
    let denials = scene.target("/validate", pod)?.with("--allowed", "false");
    scene.verifier.stop();
    let load = ["saturate", "--connections", "1", "--warm-up", "5", "--seconds", SECONDS];
    let Summary { latency_us, failed, .. } = generator.run(&denials, DENIED, &load)?;
    report.row([
        ("webhook", "/validate, strict denial, circuit breaker open".to_owned()),
        ("server", "lucid-validator".to_owned()),
        ("p99", time(latency_us.p99)),
        ("failed", failed.to_string()),
    ]);
    report.goal("a strict denial: p99 under 10 ms", time(latency_us.p99), latency_us.p99 < 10_000.0);
    report.require("no denial fails", failed, failed == 0);
    Ok(())
}

/// Compares Lucid's program with controller-runtime and with a constant response. Rounds alternate between them, so that a
/// machine that slows down affects all.
fn measure(
    webhooks: &Webhooks,
    generator: &Generator,
    path: &str,
    body: u64,
    targets: [&Target; 3],
    report: &mut Report,
) -> Result<(), Error> {
    let saturate = ["saturate", "--connections", CONNECTIONS, "--seconds", SECONDS];
    let mut rounds = [const { Vec::new() }; 3];
    for round in 1..=webhooks.rounds.max(1) {
        eprintln!("bench: {path}, {}, round {round}", bytes(body));
        for (target, rounds) in targets.iter().zip(&mut rounds) {
            rounds.push(generator.run(target, body, &saturate)?);
        }
    }
    let failed: u64 = rounds.iter().flatten().map(|summary| summary.failed).sum();
    let [own, peer, floor] = rounds.map(|rounds| median(rounds).per_cpu_second);
    let ratio = own / peer;
    let name = if path == "/mutate" { "lucid-operator" } else { "lucid-validator" };
    for (server, per_second) in
        [(name, own), (Kind::ControllerRuntime.name(), peer), (Kind::Constant.name(), floor)]
    {
        report.row([
            ("webhook", path.to_owned()),
            ("review", bytes(body)),
            ("server", server.to_owned()),
            ("CPU per request", time(1e6 / per_second)),
            ("requests per CPU second", format!("{per_second:.0}")),
            ("to controller-runtime", format!("{:.1} ×", per_second / peer)),
        ]);
    }
    let size = bytes(body);
    report.require(format!("{path}, {size}: no call fails"), failed, failed == 0);
    if let Some((_, mutate, validate)) = GOALS.into_iter().find(|(goal, ..)| *goal == body) {
        let times = if path == "/mutate" { mutate } else { validate };
        let goal = format!("{path}, {size}: {times} times controller-runtime's requests per CPU second");
        report.goal(goal, format!("{ratio:.1} times"), ratio >= times);
    }
    Ok(())
}

/// Settings of a scene. By default Lucid's own.
#[derive(Default)]
pub(super) struct Setup {
    /// Command line to which that of a program is appended.
    pub(super) under: Vec<OsString>,
    pub(super) chain: Chain,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Chain {
    One,
    /// The default chain: two auditors.
    #[default]
    Two,
    TwoSealed,
}

/// Lucid's programs on the core of the servers. They end before the cluster does.
pub(super) struct Scene {
    operator: Operator,
    validator: Operator,
    verifier: Verifier,
    cluster: Cluster,
}

impl Scene {
    pub(super) async fn start([operator, validator]: [PathBuf; 2], setup: &Setup) -> Result<Self, Error> {
        let configure = |builder: OperatorBuilder, program: PathBuf, log: PathBuf| {
            let words = ["taskset", "--cpu-list", SERVER_CORE].map(OsString::from);
            let words = words.into_iter().chain(setup.under.iter().cloned()).chain([program.into()]);
            let builder = builder.command(words).env("LUCID_INIT_IMAGE", image("lucid-init", DIGEST));
            match setup.chain {
                Chain::One => builder.env("LUCID_CHAIN", AUDITOR),
                Chain::Two => builder,
                Chain::TwoSealed => builder.env("LUCID_DECISION_LOG", log.to_string_lossy()),
            }
        };
        let cluster = Cluster::builder().start().await?;
        cluster.create_namespace("lucid-system", &[]).await?;
        cluster.create_namespace(NAMESPACE, &[("lucid.computing/enabled", "true")]).await?;
        let catalogue = json!({"chain": [{"name": AUDITOR, "image": image(AUDITOR, DIGEST), "port": 8090}]});
        let catalogue = catalogue.to_string();
        apply_config_map(&cluster.client(), "lucid-system", "lucid-auditors", "auditors.yaml", &catalogue)
            .await?;
        let verifier = Verifier::start(cluster.folder(), &[DIGEST]).await?;
        let log = |name| cluster.folder().join(name);
        let operator = configure(Operator::builder(&cluster), operator, log("operator-log"));
        let operator = operator.env("LUCID_VALIDATE", "false").start().await?;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "orders", "labels": {"lucid.io/secured": "true"}},
            "spec": {"containers": [{"name": "orders", "image": "registry.example.com/shop/orders:1.2.3"}]},
        });
        let stored = create_pod(&cluster.client(), NAMESPACE, &pod).await?.stored()?;
        let containers = stored.spec.map_or(0, |spec| spec.containers.len());
        let expected = if setup.chain == Chain::One { 2 } else { 3 };
        if containers != expected {
            return Err(format!("the pod got {containers} containers, not {expected}").into());
        }
        let validator = configure(Operator::validator(&cluster), validator, log("validator-log"))
            .env("LUCID_VERIFIER_URL", verifier.url())
            .env("LUCID_ADMISSION_MODE", "enforce")
            .env("LUCID_TIER_LABEL", "")
            .env("LUCID_STRICT_NOTARIZATION", "true");
        let validator = validator.start().await?;
        let scene = Self { operator, validator, verifier, cluster };
        scene.write_trust().await?;
        for (name, digest, admitted) in [("good", DIGEST, true), ("bad", UNKNOWN_DIGEST, false)] {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                "spec": {"containers": [{"name": AUDITOR, "image": image(AUDITOR, digest)}]},
            });
            let stored = create_pod(&scene.cluster.client(), NAMESPACE, &pod).await?.stored();
            if stored.is_ok() != admitted {
                return Err(format!("the {name} pod: {stored:?}").into());
            }
        }
        Ok(scene)
    }

    /// Writes the CA bundles by which the API server trusts the webhooks.
    async fn write_trust(&self) -> Result<(), Error> {
        let client = self.cluster.client();
        let mutating = ObjectTarget::mutating_webhooks(client.clone(), "bench", "lucid-operator");
        let validating = ObjectTarget::validating_webhooks(client, "bench", "lucid-validator");
        for (path, registered) in [("/mutate", mutating), ("/validate", validating)] {
            let bundle = registered.read().await?.bundle().ok_or("a webhook has no caBundle")?;
            fs::write(self.authority(path), bundle.to_pem())?;
        }
        Ok(())
    }

    fn authority(&self, path: &str) -> PathBuf {
        self.cluster.folder().join(format!("{}.crt", path.trim_start_matches('/')))
    }

    /// Creates pods, and returns the files with the stored ones. Their reviews have these sizes, or the least that an injected
    /// pod takes.
    pub(super) async fn pods(
        &self,
        generator: &Generator,
        sizes: &[u64],
    ) -> Result<Vec<(u64, PathBuf)>, Error> {
        let mut pods = Vec::new();
        for &size in sizes {
            let mut pod: Value = serde_json::from_str(&generator.pod(size / GROWTH)?)?;
            let name = format!("orders-{size}");
            let file = self.cluster.folder().join(format!("{name}.json"));
            pod["metadata"]["name"] = name.into();
            let stored = create_pod(&self.cluster.client(), NAMESPACE, &pod).await?.stored()?;
            fs::write(&file, serde_json::to_vec(&stored)?)?;
            pods.push((size, file));
        }
        Ok(pods)
    }

    /// The webhook at this path. The pod is an injected one, for `/validate`.
    pub(super) fn target(&self, path: &str, pod: &Path) -> Result<Target, Error> {
        let (server, name) = match path {
            "/mutate" => (&self.operator, "lucid-operator-webhook.lucid-system.svc"),
            _ => (&self.validator, "lucid-validator-webhook.lucid-system.svc"),
        };
        let address = server.url().trim_start_matches("https://").parse()?;
        let target = Target::new(path, &self.authority(path), &[address]).with("--name", name);
        Ok(with_pod(target.with("--server", self.pid(path)?.to_string()), path, pod))
    }

    pub(super) fn pid(&self, path: &str) -> Result<u32, Error> {
        let server = if path == "/mutate" { &self.operator } else { &self.validator };
        server.pid().ok_or("a server has ended".into())
    }
}

fn image(name: &str, digest: &str) -> String {
    format!("ghcr.io/lucid/{name}@{digest}")
}

/// Calls `/validate` with an injected pod.
fn with_pod(target: Target, path: &str, pod: &Path) -> Target {
    if path == "/mutate" { target } else { target.with("--pod", pod) }
}
