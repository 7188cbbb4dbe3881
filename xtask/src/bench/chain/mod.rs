//! `cargo xtask bench chain`.

mod init;
mod mutate;
mod pods;

use clap::{Args, ValueEnum};
use lucid_e2e::Error;
use serde::Serialize;

use super::build;
use crate::report::{Output, Report, Row};

#[derive(Args)]
pub(crate) struct Chain {
    /// Parts to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Pods, Part::Mutate, Part::Init])]
    part: Vec<Part>,
    /// Duration of planning and patching per pod, in milliseconds.
    #[arg(long, default_value_t = 500)]
    milliseconds: u64,
    /// Duration of the webhook calls for each figure, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Number of network namespaces that get their rules, per tool.
    #[arg(long, default_value_t = 50)]
    namespaces: usize,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Planning and patching, from the bytes of a pod to the bytes of its patch.
    Pods,
    /// Calls of `/mutate` over TLS. Needs the test bed.
    Mutate,
    /// lucid-init in a network namespace. Needs root, nft and iptables.
    Init,
}

/// One table row.
#[derive(Serialize)]
#[serde(tag = "part", rename_all = "lowercase")]
enum Figures {
    Pods(pods::Figures),
    Mutate(mutate::Figures),
    Init(init::Figures),
}

impl Row for Figures {
    const HEADER: &'static [&'static str] = &[
        "what",
        "size",
        "p50",
        "p99",
        "each more KB\nor auditor",
        "read, plan, patch,\nwrite, give back",
        "allocations",
        "allocated,\npeak",
        "patch",
    ];

    fn cells(&self) -> Vec<String> {
        match self {
            Self::Pods(figures) => figures.cells(),
            Self::Mutate(figures) => figures.cells(),
            Self::Init(figures) => figures.cells(),
        }
    }
}

pub(super) fn run(chain: &Chain) -> Result<(), Error> {
    let mut report = Report::new(build::versions()?)?;
    let wants = |part| chain.part.contains(&part);
    if wants(Part::Pods) {
        let figures = pods::measure(chain.milliseconds)?;
        report.goals.extend(pods::goals(&figures));
        report.rows.extend(figures.into_iter().map(Figures::Pods));
    }
    if wants(Part::Mutate) {
        let figures = mutate::measure(chain.seconds)?;
        report.goals.extend(mutate::goals(&figures));
        report.failed += mutate::failed(&figures);
        report.rows.extend(figures.into_iter().map(Figures::Mutate));
    }
    if wants(Part::Init) {
        let figures = init::measure(chain.namespaces)?;
        report.goals.extend(init::goals(&figures));
        report.rows.extend(figures.into_iter().map(Figures::Init));
    }
    report.print(chain.output)
}

/// Formats microseconds in a fitting unit.
fn time(microseconds: f64) -> String {
    match microseconds {
        0.0..10.0 => format!("{microseconds:.1} µs"),
        10.0..1000.0 => format!("{microseconds:.0} µs"),
        _ => format!("{:.2} ms", microseconds / 1000.0),
    }
}

/// Formats bytes in a fitting unit.
fn bytes(bytes: u64) -> String {
    const KB: f64 = 1024.0;
    match bytes as f64 {
        bytes if bytes < KB => format!("{bytes:.0} B"),
        bytes if bytes < 10.0 * KB => format!("{:.1} KB", bytes / KB),
        bytes if bytes < KB * KB => format!("{:.0} KB", bytes / KB),
        bytes => format!("{:.1} MB", bytes / KB / KB),
    }
}
