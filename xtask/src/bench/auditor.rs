//! `cargo xtask bench auditor`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lucid_e2e::Error;
use serde::Deserialize;

use super::libraries::{Figure, PROGRAM, figures};
use super::load::Generator;
use super::programs::{self, LOAD_CORE, SERVER_CORE};
use super::proxy::Proxy;
use super::sdk;
use crate::command;
use crate::process::{Usage, raise_descriptor_limit};
use crate::report::{Percentiles, Report, bytes, time};

#[derive(Args)]
pub(super) struct Auditor {
    /// Parts to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Judges, Part::Quality, Part::Hop, Part::Streams])]
    part: Vec<Part>,
    /// Duration of each measurement, in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Number of alternating rounds; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Folder with test cases for `quality`: injection.tsv, pii.tsv and secrets.tsv. bench/libraries/src/quality.rs names
    /// formats and sources.
    #[arg(long)]
    cases: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// CPU time of the judges per text.
    Judges,
    /// Precision and recall of the judges.
    Quality,
    /// Costs of an auditor without judges, beside HAProxy and nginx.
    Hop,
    /// Delay of streamed events by judges, and memory of open streams.
    Streams,
    /// Delay of the events of each protocol as SDKs see them. Needs python3-venv and npm.
    Sdk,
}

const BODY: u64 = 10 << 10;
/// Requests per second at which the delay is measured.
const RATE: &str = "1000";
/// Concurrent streams, and pause between the events of each.
const STREAMS: u64 = 200;
const PAUSE: Duration = Duration::from_millis(20);
/// Streams whose memory is measured, and a pause in which they are idle.
const IDLE_STREAMS: u64 = 2000;
const IDLE: Duration = Duration::from_hours(1);

pub(super) fn run(auditor: &Auditor, report: &mut Report) -> Result<(), Error> {
    let has = |part| auditor.part.contains(&part);
    if has(Part::Hop) {
        let proxies = [("haproxy", "-v"), ("nginx", "-v")];
        let missing = |(name, version)| command::output(Command::new(name).arg(version)).is_err();
        if proxies.into_iter().any(missing) {
            return Err("HAProxy or nginx not found: install the packages haproxy and nginx".into());
        }
    }
    if has(Part::Judges) {
        judges(auditor, &programs::build(PROGRAM)?, report)?;
    }
    if has(Part::Quality) {
        match &auditor.cases {
            Some(cases) => quality(cases, &programs::build(PROGRAM)?, report)?,
            None => eprintln!(
                "bench: quality is left out: set --cases; docs/benchmarks.md names formats and sources"
            ),
        }
    }
    if has(Part::Hop) {
        hop(auditor, report)?;
    }
    if has(Part::Streams) {
        streams(auditor, report)?;
    }
    if has(Part::Sdk) {
        sdk::run(report)?;
    }
    Ok(())
}

fn judges(auditor: &Auditor, program: &Path, report: &mut Report) -> Result<(), Error> {
    let mut rounds = Vec::<Vec<Figure>>::new();
    for round in 1..=auditor.rounds.max(1) {
        eprintln!("bench: judges, round {round}");
        let mut command = Command::new(program);
        let measured = figures(command.args(["judges", "--seconds", &auditor.seconds.to_string()]))?;
        rounds.resize(measured.len(), Vec::new());
        rounds.iter_mut().zip(measured).for_each(|(rounds, figure)| rounds.push(figure));
    }
    let mut medians = Vec::new();
    for mut rounds in rounds {
        rounds.sort_by(|a, b| a.us.p50.total_cmp(&b.us.p50));
        medians.push(rounds.swap_remove(rounds.len() / 2));
    }
    // All judges with the small text, then all with the large one.
    let (small, large) = medians.split_at(medians.len() / 2);
    for (small, large) in small.iter().zip(large) {
        let sizes = small.bytes.zip(large.bytes).ok_or("a figure without the size of the text")?;
        let growth = large.us.p50 / small.us.p50 * sizes.0 as f64 / sizes.1 as f64;
        report.row([
            ("judge", small.name.clone()),
            ("10 KB: p50", time(small.us.p50)),
            ("p99", time(small.us.p99)),
            ("1 MB: p50", time(large.us.p50)),
            ("per byte, 1 MB to 10 KB", format!("{growth:.2}")),
        ]);
        let limit = match small.name.as_str() {
            "phrases, 1,000" => Some(50.0),
            "pii" => Some(300.0),
            _ => None,
        };
        if let Some(limit) = limit {
            let goal = format!("{}, 10 KB: under {limit} µs", small.name);
            report.goal(goal, time(small.us.p50), small.us.p50 < limit);
        }
        let goal = format!("{}: time per byte at most 1.5 times with 1 MB", small.name);
        report.goal(goal, format!("{growth:.2}"), growth <= 1.5);
    }
    Ok(())
}

/// Counts for one set of cases; bench/libraries documents the fields.
#[derive(Deserialize)]
struct Quality {
    judge: String,
    set: String,
    texts: usize,
    found: usize,
    expected: usize,
    right: usize,
}

fn quality(cases: &Path, program: &Path, report: &mut Report) -> Result<(), Error> {
    eprintln!("bench: quality");
    let output = command::output(Command::new(program).arg("quality").arg("--cases").arg(cases))?;
    let share = |part: usize, whole: usize| match whole {
        0 => String::new(),
        _ => format!("{:.3}", part as f64 / whole as f64),
    };
    for Quality { judge, set, texts, found, expected, right } in
        serde_json::from_str::<Vec<Quality>>(&output)?
    {
        report.row([
            ("judge", judge),
            ("cases", set),
            ("texts", texts.to_string()),
            ("expected", expected.to_string()),
            ("found", found.to_string()),
            ("right", right.to_string()),
            ("precision", share(right, found)),
            ("recall", share(right, expected)),
        ]);
    }
    Ok(())
}

fn hop(auditor: &Auditor, report: &mut Report) -> Result<(), Error> {
    let [model, program] = [programs::build("bench-model")?, programs::build("bench-auditor")?];
    let generator = Generator::build()?;
    let seconds = auditor.seconds.to_string();
    let model = Proxy::model(SERVER_CORE, &model, Duration::ZERO)?;
    let last = Proxy::auditor(&program, &model, &[])?;
    let middle = Proxy::auditor(&program, &last, &[])?;
    let first = Proxy::auditor(&program, &middle, &[])?;
    let (haproxy, nginx) = (Proxy::haproxy(&model)?, Proxy::nginx(&model)?);
    let ways = [
        ("lucid-auditor", &last),
        ("HAProxy", &haproxy),
        ("nginx", &nginx),
        ("none", &model),
        ("three times lucid-auditor", &first),
    ];
    let mut throughput = ways.map(|_| Vec::new());
    let mut latency = ways.map(|_| Vec::new());
    let mut failed = 0;
    for round in 1..=auditor.rounds.max(1) {
        for (index, (name, proxy)) in ways.iter().enumerate() {
            eprintln!("bench: proxies, {name}, round {round}");
            let mut run = |load: &[&str]| {
                let load = [load, &["--seconds", &seconds]].concat();
                let summary = generator.run(&proxy.target("/"), BODY, &load)?;
                failed += summary.failed;
                Ok::<_, Error>(summary)
            };
            latency[index].push(run(&["schedule", "--rate", RATE])?.latency_us);
            if index < 3 {
                throughput[index].push(run(&["saturate", "--connections", "32"])?.per_cpu_second);
            }
        }
    }
    let [own, haproxy, nginx, ..] = throughput.map(median);
    let latency = latency.map(median_latency);
    for (index, (name, _)) in ways.iter().enumerate() {
        let mut row = vec![("proxy", (*name).to_owned())];
        if let Some(per_second) = [own, haproxy, nginx].get(index) {
            row.push(("requests per CPU second", format!("{per_second:.0}")));
        }
        row.extend(latency_cells(latency[index], latency[3]));
        report.row(row);
    }
    let goal = "at least 0.85 times the requests per CPU second of HAProxy";
    report.goal(goal, format!("{:.2} times", own / haproxy), own / haproxy >= 0.85);
    let goal = "at least 0.7 times the requests per CPU second of nginx";
    report.goal(goal, format!("{:.2} times", own / nginx), own / nginx >= 0.7);
    report.require("proxies: no request fails", failed, failed == 0);
    Ok(())
}

fn streams(auditor: &Auditor, report: &mut Report) -> Result<(), Error> {
    raise_descriptor_limit()?;
    let [model, program] = [programs::build("bench-model")?, programs::build("bench-auditor")?];
    let generator = Generator::build()?;
    let seconds = auditor.seconds.to_string();
    let open = |proxy: &Proxy, count: u64| {
        let load = ["stream", "--connections", &count.to_string(), "--seconds", &seconds];
        let mut load = generator.start(&proxy.target("/v1/chat/completions"), 0, &load)?;
        // All streams are open.
        load.0.line()?;
        Ok::<_, Error>(load)
    };
    let judges = ["--config", "judges: [{phrases: {builtin: injection}}, {pii: {}}]"];
    let paced = Proxy::model(LOAD_CORE, &model, PAUSE)?;
    let judged = Proxy::auditor(&program, &paced, &judges)?;
    let ways = [("none", &paced), ("phrases and pii", &judged)];
    let (mut latency, mut per_event) = (ways.map(|_| Vec::new()), Vec::new());
    for round in 1..=auditor.rounds.max(1) {
        for ((name, proxy), latency) in ways.iter().zip(&mut latency) {
            eprintln!("bench: streams, judges: {name}, round {round}");
            let cpu = || Ok::<_, Error>(Usage::of(judged.process.pid())?.cpu_seconds);
            let before = cpu()?;
            let summary = open(proxy, STREAMS)?.summary()?;
            if *name != "none" {
                per_event.push((cpu()? - before) / summary.calls as f64);
            }
            latency.push(summary.latency_us);
            report.require("streams: no event is lost", summary.failed, summary.failed == 0);
        }
    }
    let [direct, judged] = latency.map(median_latency);
    for ((name, _), latency) in ways.iter().zip([direct, judged]) {
        let cells = [("streams", STREAMS.to_string()), ("judges", (*name).to_owned())];
        report.row(cells.into_iter().chain(latency_cells(latency, direct)));
    }
    let added = judged[1] - direct[1];
    report.goal("streams: added p99 of an event below 1 ms", time(added), added < 1e3);
    let per_event = median(per_event) * 1e6;
    report.goal("streams: at most 35 µs of CPU time per event", time(per_event), per_event <= 35.0);

    let idle = Proxy::model(LOAD_CORE, &model, IDLE)?;
    let judged = Proxy::auditor(&program, &idle, &judges)?;
    let memory = || Ok::<_, Error>(Usage::of(judged.process.pid())?.memory);
    let before = memory()?;
    let _open = open(&judged, IDLE_STREAMS)?;
    let each = memory()?.saturating_sub(before) / IDLE_STREAMS;
    report.goal(format!("{IDLE_STREAMS} idle streams: at most 32 KB each"), bytes(each), each <= 32 << 10);
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn median_latency(rounds: Vec<Percentiles>) -> [f64; 2] {
    [|round: &Percentiles| round.p50, |round: &Percentiles| round.p99]
        .map(|percentile| median(rounds.iter().map(percentile).collect()))
}

fn latency_cells(latency: [f64; 2], direct: [f64; 2]) -> [(&'static str, String); 4] {
    let added = |index: usize| time(latency[index] - direct[index]);
    [
        ("p50", time(latency[0])),
        ("p99", time(latency[1])),
        ("added to p50", added(0)),
        ("added to p99", added(1)),
    ]
}
