//! `cargo xtask bench audit`: cost of recording decisions.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use lucid_e2e::Error;
use serde::Deserialize;

use super::build;
use crate::report::{Output, Percentiles, Report, time};

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

/// Output of bench/audit.
#[derive(Clone, Copy, Deserialize)]
struct Figures {
    per_second: f64,
    us: Percentiles,
}

pub(super) fn run(audit: &Audit) -> Result<(), Error> {
    let program = build::build("bench-audit")?;
    fs::create_dir_all(&audit.folder)?;
    let log = ["--folder", audit.folder.to_str().ok_or("the folder's name is not UTF-8")?];
    let at_once = ["--concurrency", "64"];
    let at_rate = ["--concurrency", "512", "--rate", "10000"];
    let record = |load: &[&'static str]| [&["record"], &log[..], load].concat();
    let measurements = [
        ("ring only, 64 writers", [&["record"], &at_once[..]].concat()),
        ("log, 64 writers", record(&at_once)),
        ("log, 512 writers", record(&["--concurrency", "512"])),
        ("ring only, 10,000/s", [&["record"], &at_rate[..]].concat()),
        ("log, 10,000/s", record(&at_rate)),
        ("ring, no reader", vec!["ring"]),
        ("ring, continuous reader", vec!["ring", "--read"]),
        ("verify 200,000 records", [&["verify", "--records", "200000"], &log[..]].concat()),
    ];
    let mut rounds = measurements.each_ref().map(|_| Vec::new());
    for round in 1..=audit.rounds.max(1) {
        for ((name, arguments), rounds) in measurements.iter().zip(&mut rounds) {
            eprintln!("bench: {name}, round {round}");
            let mut command = Command::new(&program);
            command.args(["--seconds", &audit.seconds.to_string()]).args(arguments);
            rounds.push(build::figures::<Figures>(&mut command)?);
        }
    }
    let medians = rounds.map(|mut rounds| {
        rounds.sort_by(|a, b| a.us.p99.total_cmp(&b.us.p99));
        rounds.swap_remove(rounds.len() / 2)
    });
    let mut report = Report::new("bench/Cargo.lock")?;
    for ((name, _), Figures { per_second, us }) in measurements.iter().zip(&medians) {
        let cells = [("measured", (*name).to_owned()), ("per second", format!("{per_second:.0}"))];
        report.row(cells.into_iter().chain(us.cells()));
    }
    let [.., most, ring, log, alone, read, verify] = medians;
    let goal = "at least 10,000 durable decisions/s with group commit";
    report.goal(goal, format!("{:.0}", most.per_second), most.per_second >= 10_000.0);
    let added = log.us.p99 - ring.us.p99;
    report.goal("at 10,000 durable decisions/s: p99 added under 5 ms", time(added), added < 5000.0);
    let goal = "verify at least 500,000 records/s";
    report.goal(goal, format!("{:.0}", verify.per_second), verify.per_second >= 500_000.0);
    let goal = "p99 of writers of the ring with a continuous reader: under 20 µs";
    let found = format!("{}, without {}", time(read.us.p99), time(alone.us.p99));
    report.goal(goal, found, read.us.p99 < 20.0);
    report.print(audit.output)
}
