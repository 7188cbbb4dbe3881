//! Measures libraries and lucid-init, and prints the figures as JSON. `cargo xtask bench` starts it.

mod audit;
mod chain;
mod judges;
mod pods;
mod quality;
mod trust;

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bench_common::Quantiles;
use clap::{Parser, Subcommand};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use wait4::Wait4;

#[derive(Parser)]
struct Program {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Planning and patching of pods.
    Chain {
        /// Duration of each pod's measurement.
        #[arg(long)]
        milliseconds: u64,
    },
    /// The program `lucid-init`, in a new network namespace.
    Init {
        /// Program to measure.
        program: PathBuf,
    },
    /// The client of the Verifier.
    Trust,
    /// Judges of lucid-guardrails.
    Judges {
        /// Duration of each measurement.
        #[arg(long)]
        seconds: f64,
    },
    /// Precision and recall of lucid-guardrails.
    Quality {
        /// Directory of the cases.
        #[arg(long)]
        cases: PathBuf,
    },
    /// Decisions through a recorder.
    Record {
        /// Directory of the log. Without it, only the ring is measured.
        #[arg(long)]
        folder: Option<PathBuf>,
        /// Number of concurrent writers.
        #[arg(long)]
        concurrency: u32,
        /// Decisions per second, at fixed times; as many as possible by default.
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

/// One measurement. Only the fields that it measures are printed.
#[derive(Serialize)]
struct Figure {
    name: String,
    us: Quantiles,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<f64>,
    /// Size of the pod or text, or resident memory of the largest process.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Number of allocations, or of calls of the Verifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

impl Figure {
    fn new(name: impl Into<String>, times: Vec<Duration>) -> Self {
        Self { name: name.into(), us: Quantiles::of(times), per_second: None, bytes: None, count: None }
    }
}

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let figures = match Program::parse().task {
        Task::Chain { milliseconds } => chain::measure(Duration::from_millis(milliseconds))?,
        Task::Init { program } => vec![init(program)?],
        Task::Trust => trust::measure().await?,
        Task::Judges { seconds } => judges::measure(Duration::from_secs_f64(seconds)).await?,
        Task::Quality { cases } => {
            println!("{}", serde_json::to_string(&quality::measure(&cases).await?)?);
            return Ok(());
        }
        Task::Record { folder, concurrency, rate } => {
            let folder = folder.map(tempfile::tempdir_in).transpose()?;
            let recorder = audit::recorder(folder.as_ref().map(|folder| folder.path()))?;
            vec![audit::record(recorder, concurrency, rate).await?]
        }
        Task::Ring { read } => vec![audit::ring(read)],
        Task::Verify { folder, records } => vec![audit::verify(&folder, records).await?],
    };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

/// CPU time of this thread, which alone works.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Runs a program once, and reports the memory of it and its children.
fn init(program: PathBuf) -> Outcome<Figure> {
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
    if !up.success() {
        return Err(format!("ip link set lo up: {up}").into());
    }
    let begin = Instant::now();
    let mut child = Command::new(&program).stdout(Stdio::null()).spawn()?;
    let end = child.wait4()?;
    let time = begin.elapsed();
    if !end.status.success() {
        return Err(format!("{}: {}", program.display(), end.status).into());
    }
    Ok(Figure { bytes: Some(end.rusage.maxrss), ..Figure::new("lucid-init", vec![time]) })
}
