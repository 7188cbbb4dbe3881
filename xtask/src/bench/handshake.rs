//! `cargo xtask bench handshake`.

use std::process::{Command, Stdio};

use clap::Args;
use lucid_e2e::Error;
use serde::{Deserialize, Serialize};

use super::build;
use crate::report::{Goal, Output, Report, Row};

#[derive(Args)]
pub(crate) struct Handshake {
    /// Number of rounds per server; the median counts.
    #[arg(long, default_value_t = 60)]
    rounds: usize,
    /// Handshakes with each server per round, alternating between the servers.
    #[arg(long, default_value_t = 500)]
    handshakes: u32,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Output of bench/handshake, in handshakes per second of the server's CPU time.
#[derive(Deserialize)]
struct Round {
    resolver: f64,
    fixed: f64,
}

#[derive(Serialize)]
struct Figures {
    server: &'static str,
    #[serde(flatten)]
    spread: Spread,
    rounds: Vec<f64>,
}

/// Median and interquartile range.
#[derive(Clone, Copy, Serialize)]
struct Spread {
    low: f64,
    median: f64,
    high: f64,
}

impl Spread {
    fn of(figures: &[f64]) -> Option<Self> {
        let mut figures = figures.to_vec();
        figures.sort_by(f64::total_cmp);
        let at = |quarter: usize| figures.get((figures.len().checked_sub(1)? * quarter).div_ceil(4)).copied();
        Some(Self { low: at(1)?, median: at(2)?, high: at(3)? })
    }
}

impl Row for Figures {
    const HEADER: &'static [&'static str] = &["server", "handshakes/s\nper core", "middle half"];

    fn cells(&self) -> Vec<String> {
        let Spread { low, median, high } = self.spread;
        vec![self.server.to_owned(), format!("{median:.0}"), format!("{low:.0} to {high:.0}")]
    }
}

pub(super) fn run(handshake: &Handshake) -> Result<(), Error> {
    let mut command = Command::new(build::build("bench-handshake")?);
    command.args(["--rounds", &handshake.rounds.max(1).to_string()]);
    command.args(["--handshakes", &handshake.handshakes.max(1).to_string()]);
    eprintln!("bench: handshakes");
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", output.status).into());
    }
    let rounds: Vec<Round> = serde_json::from_slice(&output.stdout)?;
    let mut report = Report::new(build::versions()?)?;
    for (server, of) in [
        ("lucid-certs' resolver", (|round| round.resolver) as fn(&Round) -> f64),
        ("a certificate that stays", |round| round.fixed),
    ] {
        let rounds: Vec<_> = rounds.iter().map(of).collect();
        let spread = Spread::of(&rounds).ok_or("nothing was measured")?;
        report.rows.push(Figures { server, spread, rounds });
    }
    // Shares within one round: a machine that slows down affects both figures.
    let shares: Vec<_> = rounds.iter().map(|round| round.resolver / round.fixed).collect();
    let Spread { low, median, high } = Spread::of(&shares).ok_or("nothing was measured")?;
    report.goals = vec![Goal {
        goal: "handshakes/s of the resolver within 2 % of a certificate that stays",
        found: format!("{:.1} % (middle half {:.1} to {:.1} %)", median * 100.0, low * 100.0, high * 100.0),
        reached: (0.98..=1.02).contains(&median),
    }];
    report.print(handshake.output)
}
