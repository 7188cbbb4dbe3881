//! `cargo xtask bench trust`.

mod client;
mod validate;

use clap::{Args, ValueEnum};
use lucid_e2e::Error;
use serde::Serialize;

use crate::report::{self, Output, Report, Row};

#[derive(Args)]
pub(crate) struct Trust {
    /// Parts to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Client, Part::Validate])]
    part: Vec<Part>,
    /// Number of timed client requests per figure.
    #[arg(long, default_value_t = 200_000)]
    asks: usize,
    /// Number of rounds in which a thousand callers make the same request.
    #[arg(long, default_value_t = 100)]
    rounds: usize,
    /// Duration of the webhook calls per round, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Number of rounds, alternating between the servers; the median counts.
    #[arg(long, default_value_t = 3)]
    calls: usize,
    /// Number of timed denials.
    #[arg(long, default_value_t = 500)]
    denials: usize,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Client of the Verifier in lucid-notary.
    Client,
    /// Calls of `/validate` over TLS. Needs the test bed.
    Validate,
}

/// One table row.
#[derive(Serialize)]
#[serde(tag = "part", rename_all = "lowercase")]
enum Figures {
    Client(client::Figures),
    Validate(validate::Figures),
}

impl Row for Figures {
    const HEADER: &'static [&'static str] =
        &["what", "p50", "p99", "most", "calls/s per core", "calls of\nthe Verifier"];

    fn cells(&self) -> Vec<String> {
        match self {
            Self::Client(figures) => figures.cells(),
            Self::Validate(figures) => figures.cells(),
        }
    }
}

pub(super) fn run(trust: &Trust) -> Result<(), Error> {
    let versions = report::versions("bench/Cargo.lock", &["hyper", "moka", "rustls", "tokio", "tower"])?;
    let mut report = Report::new(versions)?;
    if trust.part.contains(&Part::Client) {
        let figures = client::measure(trust.asks, trust.rounds)?;
        report.goals.extend(client::goals(&figures));
        report.rows.extend(figures.into_iter().map(Figures::Client));
    }
    if trust.part.contains(&Part::Validate) {
        let figures = validate::measure(trust.seconds, trust.calls, trust.denials)?;
        report.goals.extend(validate::goals(&figures));
        report.failed += validate::failed(&figures);
        report.rows.extend(figures.into_iter().map(Figures::Validate));
    }
    report.print(trust.output)
}

/// Formats microseconds in a fitting unit.
fn time(microseconds: f64) -> String {
    match microseconds {
        0.0..10.0 => format!("{microseconds:.1} µs"),
        10.0..1000.0 => format!("{microseconds:.0} µs"),
        _ => format!("{:.2} ms", microseconds / 1000.0),
    }
}
