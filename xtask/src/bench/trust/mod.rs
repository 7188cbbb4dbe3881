//! `cargo xtask bench trust`.

mod client;
mod validate;

use clap::{Args, ValueEnum};
use lucid_e2e::Error;
use serde::Serialize;

use crate::report::{self, Output, Report, Row};

#[derive(Args)]
pub(crate) struct Trust {
    /// What is measured.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Client, Part::Validate])]
    part: Vec<Part>,
    /// How many asks of the client are timed for each figure.
    #[arg(long, default_value_t = 200_000)]
    asks: usize,
    /// How often a thousand ask the same.
    #[arg(long, default_value_t = 100)]
    rounds: usize,
    /// How long webhooks are called, in seconds, in each round.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// How often, one server after the other; the median counts.
    #[arg(long, default_value_t = 3)]
    calls: usize,
    /// How many denials are timed.
    #[arg(long, default_value_t = 500)]
    denials: usize,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// lucid-notary's client of the Verifier.
    Client,
    /// Calls of `/validate` over TLS. It needs the test bed.
    Validate,
}

/// A line of the table.
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

/// Microseconds, in the unit that fits.
fn time(microseconds: f64) -> String {
    match microseconds {
        0.0..10.0 => format!("{microseconds:.1} µs"),
        10.0..1000.0 => format!("{microseconds:.0} µs"),
        _ => format!("{:.2} ms", microseconds / 1000.0),
    }
}
