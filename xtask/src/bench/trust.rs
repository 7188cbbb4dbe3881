//! `cargo xtask bench trust`: lucid-notary's client of the Verifier.

use std::process::Command;

use clap::Args;
use lucid_e2e::Error;
use serde::Deserialize;

use super::build;
use crate::report::{Output, Percentiles, Report, time};

#[derive(Args)]
pub(crate) struct Trust {
    /// Number of timed requests per figure.
    #[arg(long, default_value_t = 200_000)]
    requests: usize,
    /// Number of rounds in which a thousand callers make the same request.
    #[arg(long, default_value_t = 100)]
    rounds: usize,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Number of concurrent callers with the same request.
const CALLERS: &str = "1000";

/// Output of bench/trust.
#[derive(Deserialize)]
struct Figures {
    cached_us: Percentiles,
    pod_us: Percentiles,
    open_us: Percentiles,
    calls: usize,
    callers_us: Percentiles,
}

pub(super) fn run(trust: &Trust) -> Result<(), Error> {
    let mut command = Command::new(build::build("bench-trust")?);
    command.args(["--requests", &trust.requests.to_string(), "--callers", CALLERS]);
    command.args(["--rounds", &trust.rounds.to_string()]);
    eprintln!("bench: client of the Verifier");
    let figures: Figures = build::figures(&mut command)?;
    let mut report = Report::new("bench/Cargo.lock")?;
    for (request, percentiles) in [
        ("cached verdict", figures.cached_us),
        ("four cached verdicts of a pod", figures.pod_us),
        ("circuit breaker open", figures.open_us),
        ("1,000 identical requests, without the Verifier's response time", figures.callers_us),
    ] {
        report.row([("request", request.to_owned())].into_iter().chain(percentiles.cells()));
    }
    let p99 = figures.cached_us.p99;
    report.goal("a cached verdict: p99 under 50 µs", time(p99), p99 < 50.0);
    let calls = figures.calls;
    report.require("1,000 identical requests: 1 call of the Verifier", calls, calls == 1);
    report.print(trust.output)
}
