//! Benchmark of the released validator beside a real API server and a Verifier: calls of `/validate` over TLS.

use std::fs;
use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use lucid_e2e::{Error, Operator, Verifier, create_pod};
use lucid_testbed::Cluster;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::build::{self, Programs};
use super::super::load::{Load, Summary};
use super::super::server::{CORE, Kind, Server};
use super::time;
use crate::report::Goal;

/// Size of the review in bytes.
const BODY: u64 = 10 << 10;
/// DNS name that the validator's certificate always contains.
const NAME: &str = "lucid-validator-webhook.lucid-system.svc";
/// Namespace of the pods of bench/load.
const NAMESPACE: &str = "shop";
/// Connections with a call in flight at all times.
const CONNECTIONS: &str = "32";
/// Notarized digest.
const DIGEST: &str = "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
const REPOSITORY: &str = "ghcr.io/lucid/lucid-guardrails-auditor";

#[derive(Serialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub(super) enum Figures {
    /// All rounds of calls, the median first.
    Calls { server: &'static str, rounds: Vec<Summary> },
    /// Sequential denials with the circuit breaker open.
    Denials { p50: f64, p99: f64, max: f64 },
}

const VALIDATOR: &str = "lucid-validator, warm cache";
const BARE: &str = "hyper + rustls";

pub(super) fn measure(seconds: u32, rounds: usize, denials: usize) -> Result<Vec<Figures>, Error> {
    let programs = Programs::build_only(&["bench-load", "bench-bare"])?;
    let program = build::build_own("lucid-validator")?;
    let runtime = tokio::runtime::Runtime::new()?;
    eprintln!("bench: starting a Kubernetes control plane, a Verifier and the validator");
    let (cluster, mut verifier, validator) = runtime.block_on(async {
        let cluster = Cluster::builder().start().await?;
        cluster.create_namespace("lucid-system", &[]).await?;
        cluster.create_namespace(NAMESPACE, &[("lucid.computing/enabled", "true")]).await?;
        let verifier = Verifier::start(cluster.folder(), &[DIGEST]).await?;
        let words = ["taskset".into(), "--cpu-list".into(), CORE.into(), program.into_os_string()];
        let validator = Operator::validator(&cluster)
            .command(words)
            .env("LUCID_VERIFIER_URL", verifier.url())
            .env("LUCID_STRICT_NOTARIZATION", "true");
        let validator = validator.start().await?;
        check(&cluster).await?;
        Ok::<_, Error>((cluster, verifier, validator))
    })?;
    let ca = cluster.folder().join("validator-ca.crt");
    fs::write(&ca, runtime.block_on(trust(&cluster))?)?;
    let certificate = programs.certificate()?;
    let bare = Server::start(Kind::Bare, &programs, &certificate, Duration::ZERO)?;

    let image = format!("{REPOSITORY}@{DIGEST}");
    let arguments = |endpoint: String, pid: u32, more: &[&str]| {
        let pid = pid.to_string();
        let all = ["--path", "/validate", "--endpoint", &endpoint, "--server", &pid, "--auditor", &image];
        all.iter().chain(more).map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    let pid = validator.pid().ok_or("the validator has ended")?;
    let endpoint = format!("{}:{}", cluster.host_address(), validator.port());
    let of_validator = arguments(endpoint, pid, &["--name", NAME]);
    let of_bare = arguments(bare.address.to_string(), bare.pid(), &["--any-uid"]);
    let load = programs.rust("bench-load");
    let words = ["saturate", "--connections", CONNECTIONS, "--seconds", &seconds.to_string()];
    let (mut by_validator, mut by_bare) = (Vec::new(), Vec::new());
    // Rounds alternate between the servers, so that a machine that slows down affects both.
    for round in 1..=rounds.max(1) {
        eprintln!("bench: /validate, round {round}");
        by_validator.push(Load::spawn(&load, &ca, BODY, &of_validator, &words)?.summary()?);
        by_bare.push(Load::spawn(&load, &certificate.cert, BODY, &of_bare, &words)?.summary()?);
    }
    drop(bare);
    eprintln!("bench: denials with the breaker open");
    verifier.stop();
    let denials = runtime.block_on(deny(&validator, &fs::read(&ca)?, denials))?;
    Ok(vec![calls(VALIDATOR, by_validator), calls(BARE, by_bare), denials])
}

fn calls(server: &'static str, mut rounds: Vec<Summary>) -> Figures {
    rounds.sort_by(|a, b| a.per_cpu_second.total_cmp(&b.per_cpu_second));
    let median = rounds.len() / 2;
    rounds.swap(0, median);
    Figures::Calls { server, rounds }
}

/// Verifies that the validator works: of two pods created through the API server, only the notarized one is admitted.
async fn check(cluster: &Cluster) -> Result<(), Error> {
    let other = DIGEST.replace('6', "7");
    for (name, digest, admitted) in [("good", DIGEST, true), ("bad", other.as_str(), false)] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec(digest),
        });
        let stored = create_pod(&cluster.client(), NAMESPACE, &pod).await?.stored();
        if stored.is_ok() != admitted {
            return Err(format!("the {name} pod: {stored:?}").into());
        }
    }
    Ok(())
}

fn pod_spec(digest: &str) -> Value {
    let image = format!("{REPOSITORY}@{digest}");
    json!({"containers": [{"name": "lucid-guardrails-auditor", "image": image, "resources": {}}]})
}

/// CA bundle by which the API server trusts the validator.
async fn trust(cluster: &Cluster) -> Result<Vec<u8>, Error> {
    let configuration =
        Api::<ValidatingWebhookConfiguration>::all(cluster.client()).get("lucid-validator").await?;
    let webhooks = configuration.webhooks.unwrap_or_default();
    let bundle = webhooks.into_iter().next().and_then(|webhook| webhook.client_config.ca_bundle);
    Ok(bundle.ok_or("the webhook has no caBundle")?.0)
}

/// Measures the latency of denials while the Verifier is unavailable and the circuit breaker is open.
async fn deny(validator: &Operator, ca: &[u8], denials: usize) -> Result<Figures, Error> {
    let address = validator.url().trim_start_matches("https://").parse()?;
    let client = reqwest::Client::builder()
        .tls_certs_only(reqwest::Certificate::from_pem_bundle(ca)?)
        .resolve_to_addrs(NAME, &[address])
        .build()?;
    let mut times = Vec::with_capacity(denials);
    let mut opened = false;
    for number in 0.. {
        let digest = format!("sha256:{number:064x}");
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
                "uid": format!("{number}"), "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": NAMESPACE,
                "name": "orders", "operation": "CREATE", "userInfo": {}, "options": null, "dryRun": false,
                "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "orders"}, "spec": pod_spec(&digest)},
            },
        });
        let begin = Instant::now();
        let answer = client.post(format!("https://{NAME}:{}/validate?timeout=10s", validator.port()));
        let answer: Value = answer.json(&review).send().await?.error_for_status()?.json().await?;
        let took = begin.elapsed();
        if answer["response"]["allowed"] != false {
            return Err(format!("it was not denied: {answer}").into());
        }
        // The first denials open the circuit breaker.
        opened |= answer["response"]["status"]["message"].to_string().contains("circuit breaker open");
        if opened {
            times.push(took.as_secs_f64() * 1e6);
        }
        if times.len() >= denials.max(1) {
            break;
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len() - 1)).copied();
    let at = |percent| at(percent).unwrap_or_default();
    Ok(Figures::Denials { p50: at(50), p99: at(99), max: at(100) })
}

fn per_core(rounds: &[Summary]) -> f64 {
    rounds.first().map_or(0.0, |summary| summary.per_cpu_second)
}

impl Figures {
    pub(super) fn cells(&self) -> Vec<String> {
        match self {
            Self::Calls { server, rounds } => {
                let what = format!("/validate over TLS, 10 KB: {server}");
                let per_core = format!("{:.0}", per_core(rounds));
                vec![what, String::new(), String::new(), String::new(), per_core, String::new()]
            }
            Self::Denials { p50, p99, max } => {
                let what = "/validate: strict denial with the breaker open".to_owned();
                vec![what, time(*p50), time(*p99), time(*max), String::new(), String::new()]
            }
        }
    }
}

pub(super) fn failed(figures: &[Figures]) -> u64 {
    let of = |figures: &Figures| match figures {
        Figures::Calls { rounds, .. } => rounds.iter().map(|round| round.failed).sum(),
        Figures::Denials { .. } => 0,
    };
    figures.iter().map(of).sum()
}

pub(super) fn goals(figures: &[Figures]) -> Vec<Goal> {
    let of = |name| {
        figures.iter().find_map(|figures| match figures {
            Figures::Calls { server, rounds } if *server == name => Some(rounds),
            _ => None,
        })
    };
    let mut goals = Vec::new();
    if let (Some(validator), Some(bare)) = (of(VALIDATOR), of(BARE)) {
        let share = per_core(validator) / per_core(bare);
        let goal = "10 KB: at least 70 % of hyper + rustls' throughput, with a warm cache";
        goals.push(Goal { goal, found: format!("{:.0} %", share * 100.0), reached: share >= 0.7 });
        let failed = failed(figures);
        goals.push(Goal { goal: "no call fails", found: format!("{failed} failed"), reached: failed == 0 });
    }
    if let Some(Figures::Denials { p99, .. }) =
        figures.iter().find(|it| matches!(it, Figures::Denials { .. }))
    {
        let goal = "a strict denial with the breaker open: p99 under 10 ms";
        goals.push(Goal { goal, found: time(*p99), reached: *p99 < 10_000.0 });
    }
    goals
}
