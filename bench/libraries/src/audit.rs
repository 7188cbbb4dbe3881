//! Recording of decisions, and verification of their log.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lucid_audit::log::Options;
use lucid_audit::note::SigningKey;
use lucid_audit::verify::Expectations;
use lucid_audit::{Decision, ImageVerdict, Recorder};
use tokio::task::JoinSet;

use crate::{Figure, Outcome};

/// Duration of each measurement.
const TIME: Duration = Duration::from_secs(3);

pub(crate) fn recorder(folder: Option<&Path>) -> Outcome<Arc<Recorder>> {
    let recorder = Recorder::new(1000).with_patience(Duration::from_secs(60));
    let Some(folder) = folder else { return Ok(Arc::new(recorder)) };
    let options = Options::new().with_key(SigningKey::generate("lucid.computing/bench")?);
    recorder.open_log(folder, options)?;
    Ok(Arc::new(recorder))
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

pub(crate) async fn record(recorder: Arc<Recorder>, tasks: u32, rate: Option<f64>) -> Outcome<Figure> {
    let begin = Instant::now();
    let end = begin + TIME;
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let recorder = Arc::clone(&recorder);
        running.spawn(async move {
            let mut latencies = Vec::new();
            for number in 0_u32.. {
                // Tasks take turns. The latency of a late decision counts from its due time.
                let position = f64::from(number) * f64::from(tasks) + f64::from(task);
                let due = rate.map(|rate| begin + Duration::from_secs_f64(position / rate));
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
    Ok(figure(latencies, per_second))
}

pub(crate) fn ring(read: bool) -> Figure {
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
        while begin.elapsed() < TIME {
            let decision = decision(latencies.len() as u64);
            let from = Instant::now();
            recorder.remember(decision);
            latencies.push(from.elapsed());
        }
        let per_second = latencies.len() as f64 / begin.elapsed().as_secs_f64();
        ended.store(true, Ordering::Relaxed);
        figure(latencies, per_second)
    })
}

pub(crate) async fn verify(folder: &Path, records: u64) -> Outcome<Figure> {
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
    while latencies.is_empty() || begin.elapsed() < TIME {
        let from = Instant::now();
        let report = lucid_audit::verify::verify(folder.path(), &expected)?;
        latencies.push(from.elapsed());
        if !report.is_intact() || report.sealed != Some(records) {
            return Err(format!("the log is not intact: {report:?}").into());
        }
    }
    let per_second = latencies.len() as f64 * records as f64 / begin.elapsed().as_secs_f64();
    Ok(figure(latencies, per_second))
}

fn figure(latencies: Vec<Duration>, per_second: f64) -> Figure {
    Figure { per_second: Some(per_second), ..Figure::new("decisions", latencies) }
}
