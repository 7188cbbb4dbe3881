//! `cargo xtask bench audit`: cost of recording decisions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use lucid_e2e::Error;
use serde::{Deserialize, Serialize};

use super::build;
use crate::report::{self, Goal, Output, Report, Row};

#[derive(Args)]
pub(crate) struct Audit {
    /// Duration of each measurement, in seconds.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Number of alternating rounds; the round with the median p99 counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Folder for the logs; it selects the disk to measure.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bench/audit"))]
    folder: PathBuf,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Output of bench/audit, which documents the fields.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Summary {
    records: u64,
    per_second: f64,
    bytes: u64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    reads: u64,
}

#[derive(Serialize)]
struct Figures {
    what: String,
    load: String,
    #[serde(skip)]
    arguments: Vec<String>,
    rounds: Vec<Summary>,
}

impl Figures {
    fn new(what: &str, load: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self { what: what.to_owned(), load: load.to_owned(), arguments, rounds: Vec::new() }
    }

    fn median(&self) -> Option<&Summary> {
        let mut rounds: Vec<_> = self.rounds.iter().collect();
        rounds.sort_by(|a, b| a.p99_us.total_cmp(&b.p99_us));
        rounds.get(rounds.len() / 2).copied()
    }
}

impl Row for Figures {
    const HEADER: &'static [&'static str] =
        &["decisions are", "load", "per second", "p50", "p99", "p99.9", "max"];

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.what.clone(), self.load.clone()];
        if let Some(it) = self.median() {
            cells.push(format!("{:.0}", it.per_second));
            cells.extend([it.p50_us, it.p99_us, it.p999_us, it.max_us].map(time));
        }
        cells
    }
}

fn time(microseconds: f64) -> String {
    match microseconds {
        0.0..10.0 => format!("{microseconds:.1} µs"),
        10.0..1000.0 => format!("{microseconds:.0} µs"),
        _ => format!("{:.2} ms", microseconds / 1000.0),
    }
}

const RATE: &str = "10000";
const AT_RATE: &str = "10,000/s";
const RING: &str = "in the ring alone";
const VERIFIED: &str = "verified";
const SEALED: &str = "durable, batch, sealed";

pub(super) fn run(audit: &Audit) -> Result<(), Error> {
    let program = build::build("bench-audit")?;
    fs::create_dir_all(&audit.folder)?;
    let folder = audit.folder.to_str().ok_or("the folder's name is not UTF-8")?;
    let mut report =
        Report::new(report::versions("bench/Cargo.lock", &["tokio", "aws-lc-rs", "serde_json"])?)?;
    for (what, arguments) in [
        (RING, &[][..]),
        ("durable, always, sealed", &["--folder", folder, "--sync", "always"]),
        (SEALED, &["--folder", folder, "--sync", "batch"]),
        ("durable, batch, no key", &["--folder", folder, "--sync", "batch", "--unsealed"]),
        ("written, interval, sealed", &["--folder", folder, "--sync", "interval"]),
    ] {
        for concurrency in ["1", "16", "64", "512"] {
            let load = format!("{concurrency} at once");
            let arguments = [&["record", "--concurrency", concurrency], arguments].concat();
            report.rows.push(Figures::new(what, &load, &arguments));
        }
        let arguments = [&["record", "--concurrency", "512", "--rate", RATE], arguments].concat();
        report.rows.push(Figures::new(what, AT_RATE, &arguments));
    }
    report.rows.push(Figures::new("put in the ring", "nobody reads", &["ring"]));
    report.rows.push(Figures::new("put in the ring", "read all the time", &["ring", "--read"]));
    let arguments = ["verify", "--folder", folder, "--records", "200000"];
    report.rows.push(Figures::new(VERIFIED, "200,000 of them", &arguments));
    for round in 1..=audit.rounds.max(1) {
        for row in &mut report.rows {
            eprintln!("bench: {}, {}, round {round}", row.what, row.load);
            row.rounds.push(measure(&program, audit.seconds, &row.arguments)?);
        }
    }
    report.goals = goals(&report.rows);
    report.print(audit.output)
}

fn measure(program: &Path, seconds: f64, arguments: &[String]) -> Result<Summary, Error> {
    let mut command = Command::new(program);
    command.args(["--seconds", &seconds.to_string()]).args(arguments);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn goals(rows: &[Figures]) -> Vec<Goal> {
    let find = |what, load| rows.iter().find(|row| row.what == what && row.load == load)?.median();
    let mut goals = Vec::new();
    let mut add = |goal, found, reached| goals.push(Goal { goal, found, reached });
    if let Some(most) = find(SEALED, "512 at once") {
        let goal = "at least 10,000 durable decisions/s with group commit";
        add(goal, format!("{:.0}", most.per_second), most.per_second >= 10_000.0);
    }
    if let (Some(log), Some(ring)) = (find(SEALED, AT_RATE), find(RING, AT_RATE)) {
        let added = log.p99_us - ring.p99_us;
        let goal = "at 10,000 durable decisions/s: p99 added under 5 ms";
        add(goal, time(added), added < 5000.0);
    }
    if let Some(verified) = find(VERIFIED, "200,000 of them") {
        let goal = "verify at least 500,000 records/s";
        add(goal, format!("{:.0}", verified.per_second), verified.per_second >= 500_000.0);
    }
    if let (Some(read), Some(alone)) =
        (find("put in the ring", "read all the time"), find("put in the ring", "nobody reads"))
    {
        let goal = "who reads the ring all the time does not stall who writes: its p99 stays under 20 µs";
        let found = format!("{}, alone {}", time(read.p99_us), time(alone.p99_us));
        add(goal, found, read.p99_us < 20.0);
    }
    goals
}
