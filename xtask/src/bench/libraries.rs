//! `cargo xtask bench chain`, `trust` and `audit`: libraries and lucid-init, without a server.

use std::fs;
use std::path::Path;
use std::process::Command;

use clap::{Args, ValueEnum};
use lucid_e2e::Error;
use serde::Deserialize;

use super::programs::{self, SERVER_CORE};
use crate::command;
use crate::report::{Percentiles, Report, bytes, output, time};

pub(super) const PROGRAM: &str = "bench-libraries";

/// One measurement; bench/libraries documents the fields.
#[derive(Clone, Deserialize)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) us: Percentiles,
    per_second: Option<f64>,
    pub(super) bytes: Option<u64>,
    count: Option<u64>,
}

impl Figure {
    /// Adds the figure to the report, under `name`. `count` is the column of the count.
    fn report(&self, name: &str, count: &'static str, report: &mut Report) {
        let mut cells = vec![("measured", name.to_owned())];
        cells.extend(self.bytes.map(|size| ("size", bytes(size))));
        cells.extend(self.per_second.map(|rate| ("per second", format!("{rate:.0}"))));
        cells.extend(self.us.cells());
        cells.extend(self.count.map(|number| (count, number.to_string())));
        report.row(cells);
    }
}

pub(super) fn figures(command: &mut Command) -> Result<Vec<Figure>, Error> {
    Ok(serde_json::from_str(&command::output(command)?)?)
}

#[derive(Args)]
pub(super) struct Chain {
    /// Parts to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Pods, Part::Init])]
    part: Vec<Part>,
    /// Duration of planning and patching per pod, in milliseconds.
    #[arg(long, default_value_t = 500)]
    milliseconds: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Planning and patching, from the bytes of a pod to the bytes of its patch.
    Pods,
    /// lucid-init in a network namespace. Needs root, nft and iptables.
    Init,
}

pub(super) fn chain(chain: &Chain, report: &mut Report) -> Result<(), Error> {
    let program = programs::build(PROGRAM)?;
    if chain.part.contains(&Part::Pods) {
        eprintln!("bench: pods");
        let mut command = lucid_e2e::command("taskset");
        command.args(["--cpu-list", SERVER_CORE]).arg(&program);
        for figure in figures(command.args(["chain", "--milliseconds", &chain.milliseconds.to_string()]))? {
            figure.report(&figure.name, "allocations", report);
            let goal = match figure.name.as_str() {
                "10 KB, two auditors" => ("under 50 µs", 50.0),
                "2,000 variables" => ("under 1 ms", 1000.0),
                _ => continue,
            };
            let p50 = figure.us.p50;
            report.goal(format!("{}: {}", figure.name, goal.0), time(p50), p50 < goal.1);
        }
    }
    if chain.part.contains(&Part::Init) {
        init(&program, report)?;
    }
    Ok(())
}

/// Configuration that the operator writes for two auditors.
const REDIRECT: &str = r#"{"version":1,"chain":[{"uid":20001,"port":8090},{"uid":20002,"port":8093}],"model":5000,"inbound":true,"outbound":[]}"#;

/// Resolves users from files only, as in an image: nft looks up the names of the users in the rules, and the lookup services of
/// this machine may use the network.
const INSIDE: &str =
    "f=$(mktemp) && echo 'passwd: files' > $f && mount --bind $f /etc/nsswitch.conf && rm $f && exec \"$@\"";

/// Number of network namespaces that get their rules, per tool.
const NAMESPACES: usize = 50;

fn init(bench: &Path, report: &mut Report) -> Result<(), Error> {
    if output("id", &["--user"]) != "0" {
        eprintln!("bench: lucid-init is left out: network namespaces need root");
        return Ok(());
    }
    let program = programs::build_own("lucid-init")?;
    for (tool, command) in [("nft", "nft"), ("iptables", "iptables-restore")] {
        if output(command, &["--version"]).is_empty() {
            eprintln!("bench: lucid-init with {tool} is left out: there is no {command}");
            continue;
        }
        eprintln!("bench: lucid-init, {tool}");
        let mut runs = Vec::new();
        for _ in 0..NAMESPACES {
            let mut command = lucid_e2e::command("unshare");
            command
                .args(["--net", "--mount", "--", "sh", "-c", INSIDE, "sh"])
                .arg(bench)
                .arg("init")
                .arg(&program);
            command.env("LUCID_REDIRECT", REDIRECT).env("LUCID_INIT_BACKEND", tool);
            runs.extend(figures(&mut command)?);
        }
        let rss = runs.iter().filter_map(|run| run.bytes).max().unwrap_or_default();
        let durations = runs.iter().map(|run| std::time::Duration::from_secs_f64(run.us.max / 1e6));
        let us = Percentiles::of(durations.collect());
        let cells = [("measured", format!("lucid-init with {tool} in a new pod"))];
        report.row(cells.into_iter().chain(us.cells()).chain([("largest process", bytes(rss))]));
        if tool == "nft" {
            report.goal("lucid-init with nft: p99 under 20 ms", time(us.p99), us.p99 < 20_000.0);
            report.goal("lucid-init with nft: under 5 MB of memory", bytes(rss), rss < 5_000_000);
        }
    }
    Ok(())
}

/// lucid-notary's client of the Verifier.
pub(super) fn trust(report: &mut Report) -> Result<(), Error> {
    let mut command = Command::new(programs::build(PROGRAM)?);
    command.arg("trust");
    eprintln!("bench: client of the Verifier");
    for figure in figures(&mut command)? {
        let name = match figure.count {
            Some(_) => "1,000 identical requests, without the Verifier's response time",
            None => &figure.name,
        };
        figure.report(name, "calls of the Verifier", report);
        if figure.name == "cached verdict" {
            let p99 = figure.us.p99;
            report.goal("a cached verdict: p99 under 50 µs", time(p99), p99 < 50.0);
        }
        if let Some(calls) = figure.count {
            report.require("1,000 identical requests: 1 call of the Verifier", calls, calls == 1);
        }
    }
    Ok(())
}

/// Number of alternating rounds of the decision log; the round with the median p99 counts.
const ROUNDS: usize = 3;

/// Measurements of the decision log, with the arguments of each.
const DECISIONS: [(&str, &str); 8] = [
    ("ring only, 64 writers", "record --concurrency 64"),
    ("log, 64 writers", "record --folder DIR --concurrency 64"),
    ("log, 512 writers", "record --folder DIR --concurrency 512"),
    ("ring only, 10,000/s", "record --concurrency 512 --rate 10000"),
    ("log, 10,000/s", "record --folder DIR --concurrency 512 --rate 10000"),
    ("ring, no reader", "ring"),
    ("ring, continuous reader", "ring --read"),
    ("verify 200,000 records", "verify --folder DIR --records 200000"),
];

pub(super) fn audit(report: &mut Report) -> Result<(), Error> {
    let program = programs::build(PROGRAM)?;
    let folder = programs::folder().join("audit");
    fs::create_dir_all(&folder)?;
    let folder = folder.to_str().ok_or("the folder's name is not UTF-8")?;
    let mut rounds = DECISIONS.map(|_| Vec::new());
    for round in 1..=ROUNDS {
        for ((name, arguments), rounds) in DECISIONS.iter().zip(&mut rounds) {
            eprintln!("bench: {name}, round {round}");
            let arguments = arguments.split(' ').map(|word| if word == "DIR" { folder } else { word });
            let mut command = Command::new(&program);
            command.args(arguments);
            rounds.extend(figures(&mut command)?);
        }
    }
    let medians = rounds.map(|mut rounds| {
        rounds.sort_by(|a, b| a.us.p99.total_cmp(&b.us.p99));
        rounds.swap_remove(rounds.len() / 2)
    });
    for ((name, _), figure) in DECISIONS.iter().zip(&medians) {
        figure.report(name, "count", report);
    }
    let [.., most, ring, log, alone, read, verify] = medians;
    let rate = most.per_second.unwrap_or_default();
    let goal = "at least 10,000 durable decisions/s with group commit";
    report.goal(goal, format!("{rate:.0}"), rate >= 10_000.0);
    let added = log.us.p99 - ring.us.p99;
    report.goal("at 10,000 durable decisions/s: p99 added under 5 ms", time(added), added < 5000.0);
    let rate = verify.per_second.unwrap_or_default();
    report.goal("verify at least 500,000 records/s", format!("{rate:.0}"), rate >= 500_000.0);
    let goal = "p99 of writers of the ring with a continuous reader: under 20 µs";
    let found = format!("{}, without {}", time(read.us.p99), time(alone.us.p99));
    report.goal(goal, found, read.us.p99 < 20.0);
    Ok(())
}
