//! `cargo xtask bench webhook`.

use std::thread;
use std::time::Duration;

use clap::Args;
use lucid_e2e::Error;
use serde::Serialize;

use super::build::{self, Certificate, Programs};
use super::load::{Latency, Load, Summary};
use super::server::{Kind, Server};
use crate::report::{Goal, Output, Report, Row};

#[derive(Args)]
pub(crate) struct Webhook {
    /// Duration of each measurement, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Number of throughput measurements; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Sizes of the review in bytes; the goals apply to 10240 and 1572864.
    #[arg(long, value_delimiter = ',', default_values_t = [SMALL, USUAL, LARGE, LARGEST])]
    body: Vec<u64>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

const SMALL: u64 = 2 << 10;
/// Review size that the goals apply to.
const USUAL: u64 = 10 << 10;
const LARGE: u64 = 100 << 10;
/// Approximate size limit of etcd; memory is measured with it.
const LARGEST: u64 = 3 << 19;

/// Number of held requests when memory is measured.
const HELD: u32 = 32;
/// Duration for which the requests are held.
const HOLD: Duration = Duration::from_secs(3);

/// One server with one review size.
#[derive(Serialize)]
struct Figures {
    body: u64,
    server: &'static str,
    #[serde(skip)]
    kind: Kind,
    /// All rounds of the measurement at maximum throughput, the median first.
    saturated: Vec<Summary>,
    /// Result at half of this server's maximum throughput.
    at_own_half: Option<Summary>,
    /// Result at half of controller-runtime's maximum throughput.
    at_common_rate: Option<Summary>,
    memory: Option<Memory>,
}

/// Memory for one held request, as a multiple of the body size.
#[derive(Clone, Copy, Serialize)]
struct Memory {
    held: f64,
    peak: f64,
}

impl Figures {
    /// Requests per second of CPU time. A generator slower than one core of the server does not affect this figure.
    fn per_core(&self) -> f64 {
        self.saturated.first().map_or(0.0, |summary| summary.per_cpu_second)
    }

    fn failed(&self) -> u64 {
        let schedules = self.at_own_half.iter().chain(&self.at_common_rate);
        self.saturated.iter().chain(schedules).map(|summary| summary.failed).sum()
    }
}

impl Row for Figures {
    const HEADER: &'static [&'static str] = &[
        "review",
        "server",
        "requests/s\nper core",
        "CPU s per\n10,000",
        "core in use,\ngenerator",
        "half of own load:\nrequests/s",
        "p50 / p99 / p99.9",
        "half of controller-runtime's:\nrequests/s",
        "p50 / p99 / p99.9",
        "memory per\nrequest held",
        "failed",
    ];

    fn cells(&self) -> Vec<String> {
        let busy = |summary: &Summary| {
            let (server, generator) = (summary.server_cpu / summary.seconds, summary.generator_busy);
            format!("{:.0} %, {:.0} %", server * 100.0, generator * 100.0)
        };
        let rate = |summary: &Option<Summary>| {
            summary.as_ref().map_or_else(String::new, |summary| format!("{:.0}", summary.per_second))
        };
        let latency = |summary: &Option<Summary>| {
            let latency = summary.as_ref().map(|summary| summary.latency_us);
            latency.map_or_else(String::new, |Latency { p50, p99, p999, .. }| {
                format!("{} / {} / {} ms", millis(p50), millis(p99), millis(p999))
            })
        };
        vec![
            size(self.body),
            self.server.to_owned(),
            format!("{:.0}", self.per_core()),
            format!("{:.2}", 10_000.0 / self.per_core()),
            self.saturated.first().map(busy).unwrap_or_default(),
            rate(&self.at_own_half),
            latency(&self.at_own_half),
            rate(&self.at_common_rate),
            latency(&self.at_common_rate),
            self.memory.map_or_else(String::new, |Memory { held, peak }| {
                format!("{held:.2} bodies,\nat most {peak:.2}")
            }),
            self.failed().to_string(),
        ]
    }
}

fn millis(microseconds: f64) -> String {
    let millis = microseconds / 1000.0;
    format!("{millis:.*}", if millis < 10.0 { 2 } else { 0 })
}

fn size(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KB", bytes >> 10),
        _ => format!("{:.1} MB", bytes as f64 / f64::from(1 << 20)),
    }
}

pub(super) fn run(webhook: &Webhook) -> Result<(), Error> {
    let programs = Programs::build()?;
    let bench = Bench { certificate: programs.certificate()?, programs, webhook };
    let mut report = Report::new(build::versions()?)?;
    for &body in &webhook.body {
        report.rows.extend(bench.size(body)?);
    }
    report.failed = report.rows.iter().map(Figures::failed).sum();
    report.goals = goals(&report.rows, report.failed);
    report.print(webhook.output)
}

struct Bench<'a> {
    programs: Programs,
    certificate: Certificate,
    webhook: &'a Webhook,
}

impl Bench<'_> {
    fn size(&self, body: u64) -> Result<Vec<Figures>, Error> {
        let mut rows: Vec<_> = Kind::ALL.map(|kind| Figures::new(kind, body)).into();
        // Rounds alternate between the servers, so that a machine that slows down affects all.
        for round in 1..=self.webhook.rounds.max(1) {
            for row in &mut rows {
                eprintln!("bench: {}, {}, round {round}", size(body), row.server);
                row.saturated.push(self.saturate(row.kind, body)?);
            }
        }
        for row in &mut rows {
            row.saturated.sort_by(|a, b| a.per_cpu_second.total_cmp(&b.per_cpu_second));
            let median = row.saturated.len() / 2;
            row.saturated.swap(0, median);
        }
        let peer = rows.iter().find(|row| row.kind == Kind::ControllerRuntime);
        let common = peer.map_or(0.0, Figures::per_core) / 2.0;
        for row in &mut rows {
            eprintln!("bench: {}, {}, half load", size(body), row.server);
            row.at_own_half = Some(self.schedule(row.kind, body, row.per_core() / 2.0)?);
            row.at_common_rate = Some(self.schedule(row.kind, body, common)?);
            if body == LARGEST {
                row.memory = Some(self.memory(row.kind, body)?);
            }
        }
        Ok(rows)
    }

    /// Measures maximum throughput.
    fn saturate(&self, kind: Kind, body: u64) -> Result<Summary, Error> {
        // More connections would only queue: throughput is measured, not memory.
        let connections = if body > LARGE { "8" } else { "32" };
        let seconds = self.webhook.seconds.to_string();
        self.load(kind, body, &["saturate", "--connections", connections, "--seconds", &seconds])
    }

    /// Sends requests at a fixed rate.
    fn schedule(&self, kind: Kind, body: u64, rate: f64) -> Result<Summary, Error> {
        let seconds = self.webhook.seconds.to_string();
        self.load(kind, body, &["schedule", "--rate", &rate.to_string(), "--seconds", &seconds])
    }

    fn load(&self, kind: Kind, body: u64, load: &[&str]) -> Result<Summary, Error> {
        let server = Server::start(kind, &self.programs, &self.certificate, Duration::ZERO)?;
        Load::start(&self.programs, &self.certificate, kind, &[&server], body, load)?.summary()
    }

    /// Measures the memory of requests held by a handler.
    fn memory(&self, kind: Kind, body: u64) -> Result<Memory, Error> {
        let server = Server::start(kind, &self.programs, &self.certificate, HOLD)?;
        let load = ["hold", "--connections", &HELD.to_string()];
        let mut load = Load::start(&self.programs, &self.certificate, kind, &[&server], body, &load)?;
        load.expect("connected")?;
        let (before, _) = server.memory()?;
        server.forget_peak()?;
        load.order("go")?;
        load.expect("sent")?;
        thread::sleep(HOLD / 3);
        let (held, _) = server.memory()?;
        let summary = load.summary()?;
        if summary.failed > 0 {
            return Err(
                format!("{}: requests that were held failed: {:?}", kind.name(), summary.failures).into()
            );
        }
        let (_, peak) = server.memory()?;
        let bodies = |memory: u64| memory.saturating_sub(before) as f64 / f64::from(HELD) / body as f64;
        Ok(Memory { held: bodies(held), peak: bodies(peak) })
    }
}

impl Figures {
    const fn new(kind: Kind, body: u64) -> Self {
        Self {
            body,
            server: kind.name(),
            kind,
            saturated: Vec::new(),
            at_own_half: None,
            at_common_rate: None,
            memory: None,
        }
    }
}

fn goals(rows: &[Figures], failed: u64) -> Vec<Goal> {
    let find = |kind, body| rows.iter().find(|row| row.kind == kind && row.body == body);
    let mut goals = Vec::new();
    let mut add = |goal, found, reached| goals.push(Goal { goal, found, reached });
    if let (Some(view), Some(bare), Some(peer)) =
        (find(Kind::LucidView, USUAL), find(Kind::Bare, USUAL), find(Kind::ControllerRuntime, USUAL))
    {
        let share = view.per_core() / bare.per_core();
        let goal = "10 KB: at least 80 % of hyper + rustls' throughput, with a view";
        add(goal, format!("{:.0} %", share * 100.0), share >= 0.8);
        let times = view.per_core() / peer.per_core();
        let goal = "10 KB: at least 5 times controller-runtime's requests per core (3 is the floor)";
        add(goal, format!("{times:.1} times"), times >= 5.0);
        if let (Some(view), Some(peer)) = (&view.at_common_rate, &peer.at_common_rate) {
            let (tail, middle) = (view.latency_us.p999, peer.latency_us.p50);
            let goal = "10 KB, at half of controller-runtime's load: p99.9 below its p50";
            add(goal, format!("{} ms, its p50 {} ms", millis(tail), millis(middle)), tail < middle);
        }
    }
    if let Some(memory) = find(Kind::LucidView, LARGEST).and_then(|row| row.memory) {
        let goal = "1.5 MB: at most 1.5 bodies of memory per request in flight";
        add(goal, format!("{:.2} held, at most {:.2}", memory.held, memory.peak), memory.peak <= 1.5);
    }
    add("no call fails", format!("{failed} failed"), failed == 0);
    // In a saturated run the generator or the server is at its limit, unless other processes use its core.
    let limit = |summary: &Summary| summary.generator_busy.max(summary.server_cpu / summary.seconds);
    let least = rows.iter().flat_map(|row| &row.saturated).map(limit).fold(1.0, f64::min);
    let goal = "a quiet machine: under saturation the server or the generator uses all of its core";
    add(goal, format!("at least {:.0} %", least * 100.0), least >= 0.9);
    goals
}
