//! `cargo xtask bench worst`.

use std::process::{Command, Stdio};

use clap::Args;
use lucid_e2e::Error;
use serde::{Deserialize, Serialize};

use super::build;
use crate::report::{Goal, Output, Report, Row};

#[derive(Args)]
pub(crate) struct Worst {
    /// Size of each pod in bytes; the goals apply to 1572864.
    #[arg(long, default_value_t = 3 << 19)]
    size: usize,
    /// Number of runs of each pod; the median counts.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Output of bench-worst for one pod.
#[derive(Deserialize, Serialize)]
struct Figures {
    name: String,
    pod_bytes: u64,
    mutate_ms: f64,
    validate_ms: f64,
    peak: u64,
}

const MIB: f64 = (1 << 20) as f64;

impl Row for Figures {
    const HEADER: &'static [&'static str] =
        &["largest field", "pod", "plan and patch,\nCPU", "judge,\nCPU", "peak memory"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            format!("{:.1} MB", self.pod_bytes as f64 / MIB),
            format!("{:.1} ms", self.mutate_ms),
            format!("{:.1} ms", self.validate_ms),
            format!("{:.1} MiB", self.peak as f64 / MIB),
        ]
    }
}

pub(super) fn run(worst: &Worst) -> Result<(), Error> {
    build::build("bench-chain")?;
    let mut command = Command::new(build::program("bench-worst"));
    command.args(["--size", &worst.size.to_string(), "--runs", &worst.runs.to_string()]);
    eprintln!("bench: the most expensive pods");
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", output.status).into());
    }
    let mut rows: Vec<Figures> = serde_json::from_slice(&output.stdout)?;
    let cpu = |row: &Figures| row.mutate_ms.max(row.validate_ms);
    rows.sort_by(|one, other| cpu(other).total_cmp(&cpu(one)));
    let mut report = Report::new(build::versions()?)?;
    let slowest = rows.first().ok_or("nothing was measured")?;
    let largest = rows.iter().max_by_key(|row| row.peak).ok_or("nothing was measured")?;
    report.goals = vec![
        Goal {
            goal: "the worst pod: at most 50 ms of CPU time for a request",
            found: format!("{:.1} ms, {}", cpu(slowest), slowest.name),
            reached: cpu(slowest) <= 50.0,
        },
        Goal {
            goal: "the worst pod: at most 64 MiB of memory",
            found: format!("{:.1} MiB, {}", largest.peak as f64 / MIB, largest.name),
            reached: largest.peak <= 64 << 20,
        },
    ];
    report.rows = rows;
    report.print(worst.output)
}
