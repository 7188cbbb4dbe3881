//! `cargo xtask bench operator`: the released lucid-operator and lucid-validator beside a real API server and a Verifier, and
//! webhooks on controller-runtime.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::Api;
use lucid_e2e::{Error, Operator, Verifier, create_pod};
use lucid_testbed::Cluster;
use serde_json::json;

use super::load::{Generator, Summary, Target, median};
use super::programs::{self, Certificate, SERVER_CORE};
use super::server::{Kind, Server};
use crate::report::{Report, bytes, time};

#[derive(Args)]
pub(crate) struct Webhooks {
    /// Duration of each measurement, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Number of rounds, alternating between the servers; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Sizes of the review in bytes; the goals apply to the default ones.
    #[arg(long, value_delimiter = ',', default_values_t = GOALS.map(|(body, ..)| body))]
    body: Vec<u64>,
}

/// Goals by review size: requests per CPU second of `/mutate` and of `/validate`, relative to controller-runtime.
const GOALS: [(u64, f64, f64); 3] = [(2 << 10, 4.0, 2.0), (10 << 10, 8.0, 5.0), (100 << 10, 20.0, 10.0)];
/// Repository of the auditor.
const REPOSITORY: &str = "ghcr.io/lucid/lucid-guardrails-auditor";
/// Namespace of the pods of bench/load.
const NAMESPACE: &str = "shop";
/// Connections with a call in flight at all times.
const CONNECTIONS: &str = "32";
/// Notarized digest.
const DIGEST: &str = "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
const UNKNOWN_DIGEST: &str = "sha256:7b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";

pub(super) fn run(webhooks: &Webhooks, report: &mut Report) -> Result<(), Error> {
    let programs = ["lucid-operator", "lucid-validator"].map(programs::build_own);
    let generator = Generator::build()?;
    let program = Kind::ControllerRuntime.build()?;
    let certificate = Certificate::generate()?;
    let peer = Server::start(Kind::ControllerRuntime, &program, &certificate, &["--digests", DIGEST])?;
    let runtime = tokio::runtime::Runtime::new()?;
    eprintln!("bench: starting a Kubernetes control plane, a Verifier, lucid-operator and lucid-validator");
    let mut scene = runtime.block_on(Scene::start(programs))?;
    for path in ["/mutate", "/validate"] {
        let own = scene.target(path, DIGEST)?;
        let target = Target::new(path, &certificate.cert, &[peer.address]);
        let target = with_auditor(target.with("--server", peer.process.pid().to_string()), path, DIGEST);
        for &body in &webhooks.body {
            measure(webhooks, &generator, path, body, [&own, &target], report)?;
        }
    }
    eprintln!("bench: denials with the circuit breaker open");
    scene.verifier.stop();
    let seconds = webhooks.seconds.to_string();
    let denials = scene.target("/validate", UNKNOWN_DIGEST)?.with("--allowed", "false");
    let load = ["saturate", "--connections", "1", "--warm-up", "5", "--seconds", &seconds];
    let Summary { latency_us, failed, .. } = generator.run(&denials, 10 << 10, &load)?;
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

/// Compares Lucid's program with controller-runtime. Rounds alternate between the two, so that a machine that slows down
/// affects both.
fn measure(
    webhooks: &Webhooks,
    generator: &Generator,
    path: &str,
    body: u64,
    targets: [&Target; 2],
    report: &mut Report,
) -> Result<(), Error> {
    let seconds = webhooks.seconds.to_string();
    let saturate = ["saturate", "--connections", CONNECTIONS, "--seconds", &seconds];
    let mut rounds = [Vec::new(), Vec::new()];
    for round in 1..=webhooks.rounds.max(1) {
        eprintln!("bench: {path}, {}, round {round}", bytes(body));
        for (target, rounds) in targets.iter().zip(&mut rounds) {
            rounds.push(generator.run(target, body, &saturate)?);
        }
    }
    let failed: u64 = rounds.iter().flatten().map(|summary| summary.failed).sum();
    let [own, peer] = rounds.map(|rounds| median(rounds).per_cpu_second);
    let ratio = own / peer;
    let name = if path == "/mutate" { "lucid-operator" } else { "lucid-validator" };
    for (server, per_second, ratio) in [(name, own, ratio), (Kind::ControllerRuntime.name(), peer, 1.0)] {
        report.row([
            ("webhook", path.to_owned()),
            ("review", bytes(body)),
            ("server", server.to_owned()),
            ("CPU per request", time(1e6 / per_second)),
            ("requests per CPU second", format!("{per_second:.0}")),
            ("to controller-runtime", format!("{ratio:.1} ×")),
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

/// Lucid's programs with the default settings, on the core of the servers. They end before the cluster does.
struct Scene {
    operator: Operator,
    validator: Operator,
    verifier: Verifier,
    cluster: Cluster,
}

impl Scene {
    async fn start([operator, validator]: [Result<PathBuf, Error>; 2]) -> Result<Self, Error> {
        let words = |program: PathBuf| {
            ["taskset".into(), "--cpu-list".into(), SERVER_CORE.into(), program.into_os_string()]
        };
        let cluster = Cluster::builder().start().await?;
        cluster.create_namespace("lucid-system", &[]).await?;
        cluster.create_namespace(NAMESPACE, &[("lucid.computing/enabled", "true")]).await?;
        let verifier = Verifier::start(cluster.folder(), &[DIGEST]).await?;
        let operator = Operator::builder(&cluster).command(words(operator?)).env("LUCID_VALIDATE", "false");
        let operator = operator.start().await?;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "orders", "labels": {"lucid.io/secured": "true"}},
            "spec": {"containers": [{"name": "orders", "image": "registry.example.com/shop/orders:1.2.3"}]},
        });
        let stored = create_pod(&cluster.client(), NAMESPACE, &pod).await?.stored()?;
        let containers = stored.spec.map_or(0, |spec| spec.containers.len());
        if containers != 3 {
            return Err(format!("the pod got {containers} containers, not 3").into());
        }
        let validator = Operator::validator(&cluster)
            .command(words(validator?))
            .env("LUCID_VERIFIER_URL", verifier.url())
            .env("LUCID_ADMISSION_MODE", "enforce")
            .env("LUCID_TIER_LABEL", "")
            .env("LUCID_STRICT_NOTARIZATION", "true");
        let validator = validator.start().await?;
        let scene = Self { operator, validator, verifier, cluster };
        scene.write_trust().await?;
        for (name, digest, admitted) in [("good", DIGEST, true), ("bad", UNKNOWN_DIGEST, false)] {
            let image = format!("{REPOSITORY}@{digest}");
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                "spec": {"containers": [{"name": "lucid-guardrails-auditor", "image": image}]},
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
        let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone()).get("lucid-operator").await?;
        let validating = Api::<ValidatingWebhookConfiguration>::all(client).get("lucid-validator").await?;
        let mutating = mutating.webhooks.into_iter().flatten().next().map(|webhook| webhook.client_config);
        let validating =
            validating.webhooks.into_iter().flatten().next().map(|webhook| webhook.client_config);
        for (path, config) in [("/mutate", mutating), ("/validate", validating)] {
            let bundle = config.and_then(|config| config.ca_bundle).ok_or("a webhook has no caBundle")?;
            fs::write(self.authority(path), bundle.0)?;
        }
        Ok(())
    }

    fn authority(&self, path: &str) -> PathBuf {
        self.cluster.folder().join(format!("{}.crt", path.trim_start_matches('/')))
    }

    /// The webhook at this path; the digest is that of an auditor.
    fn target(&self, path: &str, digest: &str) -> Result<Target, Error> {
        let (server, name) = match path {
            "/mutate" => (&self.operator, "lucid-operator-webhook.lucid-system.svc"),
            _ => (&self.validator, "lucid-validator-webhook.lucid-system.svc"),
        };
        let address = server.url().trim_start_matches("https://").parse()?;
        let pid = server.pid().ok_or("a server has ended")?;
        let target = Target::new(path, &self.authority(path), &[address]).with("--name", name);
        Ok(with_auditor(target.with("--server", pid.to_string()), path, digest))
    }
}

/// Calls `/validate` with pods that have an auditor. `/mutate` injects it.
fn with_auditor(target: Target, path: &str, digest: &str) -> Target {
    if path == "/mutate" { target } else { target.with("--auditor", format!("{REPOSITORY}@{digest}")) }
}
