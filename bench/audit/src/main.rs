//! Records decisions and prints how many a second and how long each took, as JSON. `cargo xtask bench` starts it.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use lucid_audit::log::Options;
use lucid_audit::note::SigningKey;
use lucid_audit::verify::Expectations;
use lucid_audit::{Decision, ImageVerdict, Log, Recorder};
use serde_json::{Value, json};
use tokio::task::JoinSet;

#[derive(Parser)]
struct Program {
    /// Duration of each measurement.
    #[arg(long)]
    seconds: f64,
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Decisions through a recorder.
    Record {
        /// Directory of the log. Without it, only the ring is measured.
        #[arg(long)]
        folder: Option<PathBuf>,
        /// Number of concurrent writers.
        #[arg(long)]
        concurrency: u32,
        /// Decisions a second, at fixed times; as many as possible otherwise.
        #[arg(long)]
        rate: Option<f64>,
    },
    /// The ring, without a reader or with a continuous one.
    Ring {
        #[arg(long)]
        read: bool,
    },
    /// Repeated verification of a sealed log.
    Verify {
        #[arg(long)]
        folder: PathBuf,
        #[arg(long)]
        records: u64,
    },
}

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let Program { seconds, task } = Program::parse();
    let time = Duration::from_secs_f64(seconds);
    let summary = match task {
        Task::Record { folder, concurrency, rate } => {
            let folder = folder.map(tempfile::tempdir_in).transpose()?;
            let recorder = recorder(folder.as_ref().map(|folder| folder.path()))?;
            record(recorder, concurrency, rate, time).await?
        }
        Task::Ring { read } => ring(read, time),
        Task::Verify { folder, records } => verify(&folder, records, time).await?,
    };
    println!("{summary}");
    Ok(())
}

fn recorder(folder: Option<&Path>) -> Outcome<Arc<Recorder>> {
    let recorder = Recorder::new(1000).with_patience(Duration::from_secs(60));
    let Some(folder) = folder else { return Ok(Arc::new(recorder)) };
    let options = Options::new().with_key(SigningKey::generate("lucid.computing/bench")?);
    Ok(Arc::new(recorder.with_log(Log::open(folder, options)?)))
}

/// The validator's record of a pod with two auditors.
fn decision(number: u64) -> Decision {
    let mut decision = Decision::new("validate", format!("705ab4f5-6393-11e8-b7cc-{number:012}"));
    decision.authenticated = true;
    decision.operation = "CREATE".into();
    decision.kind = "Pod".into();
    decision.namespace = "shop".into();
    decision.name = "model-7d9c5b6f4-x2x7q".into();
    decision.user = "system:serviceaccount:kube-system:replicaset-controller".into();
    decision.images = ["lucid-injection-auditor", "lucid-toxicity-auditor"]
        .map(|name| {
            let image = format!("ghcr.io/lucid/{name}:1.4.2@sha256:{}", "9f86d081".repeat(8));
            ImageVerdict::new(name, image, "notarized")
        })
        .into();
    decision
}

async fn record(recorder: Arc<Recorder>, tasks: u32, rate: Option<f64>, time: Duration) -> Outcome<Value> {
    let begin = Instant::now();
    let end = begin + time;
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let recorder = Arc::clone(&recorder);
        running.spawn(async move {
            let mut latencies = Vec::new();
            for number in 0_u32.. {
                // Tasks take turns. What comes late counts from when it should have come.
                let due = rate.map(|rate| {
                    begin
                        + Duration::from_secs_f64(
                            (f64::from(number) * f64::from(tasks) + f64::from(task)) / rate,
                        )
                });
                if let Some(due) = due {
                    tokio::time::sleep_until(due.into()).await;
                }
                let from = due.unwrap_or_else(Instant::now);
                if from >= end {
                    break;
                }
                recorder.record(decision(number.into())).await.map_err(|error| error.to_string())?;
                latencies.push(from.elapsed());
            }
            Ok::<_, String>(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(done) = running.join_next().await {
        latencies.extend(done??);
    }
    let time = begin.elapsed();
    let status = recorder.log_status()?;
    recorder.close();
    if let Some(status) = status
        && status.size != latencies.len() as u64
    {
        return Err(format!("{} were recorded, {} are in the log", latencies.len(), status.size).into());
    }
    let per_second = latencies.len() as f64 / time.as_secs_f64();
    Ok(summary(latencies, per_second))
}

/// One thread records into the ring, another reads all of it repeatedly.
fn ring(read: bool, time: Duration) -> Value {
    let recorder = Recorder::new(1000);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while read && !ended.load(Ordering::Relaxed) {
                std::hint::black_box(recorder.latest());
            }
        });
        let begin = Instant::now();
        let mut latencies = Vec::new();
        while begin.elapsed() < time {
            let decision = decision(latencies.len() as u64);
            let from = Instant::now();
            recorder.remember(decision);
            latencies.push(from.elapsed());
        }
        let per_second = latencies.len() as f64 / begin.elapsed().as_secs_f64();
        ended.store(true, Ordering::Relaxed);
        summary(latencies, per_second)
    })
}

/// Measures records per second, and the time of verifying all.
async fn verify(folder: &Path, records: u64, time: Duration) -> Outcome<Value> {
    let folder = tempfile::tempdir_in(folder)?;
    let recorder = recorder(Some(folder.path()))?;
    let tasks: JoinSet<_> = (0..64_u64)
        .map(|task| {
            let recorder = Arc::clone(&recorder);
            async move {
                for number in (task..records).step_by(64) {
                    recorder.record(decision(number)).await.map_err(|error| error.to_string())?;
                }
                Ok::<_, String>(())
            }
        })
        .collect();
    for done in tasks.join_all().await {
        done?;
    }
    recorder.close();
    let expected = Expectations::default();
    let begin = Instant::now();
    let mut latencies = Vec::new();
    while latencies.is_empty() || begin.elapsed() < time {
        let from = Instant::now();
        let report = lucid_audit::verify::verify(folder.path(), &expected)?;
        latencies.push(from.elapsed());
        if !report.is_intact() || report.sealed != Some(records) {
            return Err(format!("the log is not intact: {report:?}").into());
        }
    }
    let per_second = latencies.len() as f64 * records as f64 / begin.elapsed().as_secs_f64();
    Ok(summary(latencies, per_second))
}

fn summary(mut latencies: Vec<Duration>, per_second: f64) -> Value {
    latencies.sort_unstable();
    let at = |percent: usize| {
        let place = latencies.len().saturating_sub(1) * percent / 100;
        latencies.get(place).map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
    };
    json!({"per_second": per_second, "us": {"p50": at(50), "p99": at(99), "max": at(100)}})
}
