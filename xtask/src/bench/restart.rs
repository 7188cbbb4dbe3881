//! `cargo xtask bench restart`: cost of a rolling restart to callers.
//!
//! The generator stands for kube-apiserver behind a Service. Each new connection goes to one of the known endpoints, and
//! existing connections stay on theirs, as with kube-proxy. The generator learns of an endpoint change with the delay of
//! endpoint propagation.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use lucid_e2e::Error;
use serde::Serialize;

use super::build::{self, Certificate, Programs};
use super::load::{Load, Summary};
use super::server::{Kind, PATIENCE, Server};
use crate::report::{Goal, Output, Report, Row};

#[derive(Args)]
pub(crate) struct Restart {
    /// Number of restarts of each replica.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Requests per second.
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

const REPLICAS: usize = 3;
const BODY: u64 = 10 << 10;
/// Propagation delay of endpoint changes.
const PROPAGATION: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Figures {
    server: &'static str,
    restarts: usize,
    /// Longest time from SIGTERM to the end of a process, in seconds.
    longest_end: f64,
    summary: Summary,
}

impl Row for Figures {
    const HEADER: &'static [&'static str] =
        &["server", "restarts", "SIGTERM to end", "calls", "failed", "how", "p50", "p99", "p99.9", "max"];

    fn cells(&self) -> Vec<String> {
        let Summary { calls, failed, failures, latency_us, .. } = &self.summary;
        let failures = failures.iter().map(|(name, count)| format!("{name} {count}"));
        let millis = |microseconds: f64| format!("{:.2} ms", microseconds / 1000.0);
        vec![
            self.server.to_owned(),
            self.restarts.to_string(),
            format!("{:.1} s", self.longest_end),
            calls.to_string(),
            failed.to_string(),
            failures.collect::<Vec<_>>().join(", "),
            millis(latency_us.p50),
            millis(latency_us.p99),
            millis(latency_us.p999),
            millis(latency_us.max),
        ]
    }
}

pub(super) fn run(restart: &Restart) -> Result<(), Error> {
    let programs = Programs::build()?;
    let certificate = programs.certificate()?;
    let mut report = Report::new(build::versions()?)?;
    for kind in [Kind::LucidView, Kind::ControllerRuntime] {
        report.rows.push(measure(restart, kind, &programs, &certificate)?);
    }
    let failed = report.rows.first().map_or(0, |row| row.summary.failed);
    report.failed = failed;
    report.goals.push(Goal {
        goal: "no call of lucid-webhook fails",
        found: format!("{failed} failed"),
        reached: failed == 0,
    });
    report.print(restart.output)
}

fn measure(
    restart: &Restart,
    kind: Kind,
    programs: &Programs,
    certificate: &Certificate,
) -> Result<Figures, Error> {
    let start = || {
        let server = Server::start(kind, programs, certificate, Duration::ZERO)?;
        server.wait_ready()?;
        Ok::<_, Error>(server)
    };
    let mut replicas = Vec::new();
    for _ in 0..REPLICAS {
        replicas.push(start()?);
    }
    let load = ["follow", "--rate", &restart.rate.to_string()];
    let mut load =
        Load::start(programs, certificate, kind, &replicas.iter().collect::<Vec<_>>(), BODY, &load)?;
    thread::sleep(2 * PROPAGATION);
    let mut longest_end = Duration::ZERO;
    for restarted in 1..=restart.rounds * REPLICAS {
        eprintln!("bench: {}, restart {restarted} of {}", kind.name(), restart.rounds * REPLICAS);
        // The oldest replica leaves first.
        let mut leaving = replicas.remove(0);
        let begin = Instant::now();
        leaving.terminate()?;
        let (mut told, mut end) = (false, None);
        while !told || end.is_none() {
            if !told && begin.elapsed() >= PROPAGATION {
                load.endpoints(&addresses(&replicas))?;
                told = true;
            }
            if end.is_none() && leaving.ended()? {
                end = Some(begin.elapsed());
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!("{} did not end within {} s", kind.name(), PATIENCE.as_secs()).into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        longest_end = longest_end.max(end.unwrap_or_default());
        replicas.push(start()?);
        thread::sleep(PROPAGATION);
        load.endpoints(&addresses(&replicas))?;
        thread::sleep(PROPAGATION);
    }
    load.order("end")?;
    Ok(Figures {
        server: kind.name(),
        restarts: restart.rounds * REPLICAS,
        longest_end: longest_end.as_secs_f64(),
        summary: load.summary()?,
    })
}

fn addresses(replicas: &[Server]) -> Vec<SocketAddr> {
    replicas.iter().map(|server| server.address).collect()
}
