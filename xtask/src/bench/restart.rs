//! `cargo xtask bench restart`: cost of a rolling restart to callers.
//!
//! The generator stands for kube-apiserver behind a Service. Each new connection goes to one of the known endpoints, and
//! existing connections stay on theirs, as with kube-proxy. The generator learns of an endpoint change with the delay of
//! endpoint propagation.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use lucid_e2e::Error;

use super::load::{Generator, Summary, Target};
use super::programs::Certificate;
use super::server::{Kind, PATIENCE, Server};
use crate::report::{Report, time};

/// Requests per second.
const RATE: &str = "1000";
const REPLICAS: usize = 3;
/// Each replica is restarted twice.
const RESTARTS: usize = 2 * REPLICAS;
const BODY: u64 = 10 << 10;
const PROPAGATION: Duration = Duration::from_secs(1);

pub(super) fn run(report: &mut Report) -> Result<(), Error> {
    let generator = Generator::build()?;
    let certificate = Certificate::generate()?;
    for kind in [Kind::LucidView, Kind::ControllerRuntime] {
        let (longest_end, summary) = measure(kind, &generator, &certificate)?;
        let failures = summary.failures.iter().map(|(name, count)| format!("{name} {count}"));
        let cells = [
            ("server", kind.name().to_owned()),
            ("SIGTERM to end", time(longest_end.as_secs_f64() * 1e6)),
            ("calls", summary.calls.to_string()),
            ("failed", summary.failed.to_string()),
            ("how", failures.collect::<Vec<_>>().join(", ")),
        ];
        report.row(cells.into_iter().chain(summary.latency_us.cells()));
        if kind == Kind::LucidView {
            report.require("no call of lucid-webhook fails", summary.failed, summary.failed == 0);
        }
    }
    Ok(())
}

/// Returns the longest time from SIGTERM to the end of a process, and the calls.
fn measure(
    kind: Kind,
    generator: &Generator,
    certificate: &Certificate,
) -> Result<(Duration, Summary), Error> {
    let program = kind.build()?;
    let start = || {
        let server = Server::start(kind, &program, certificate, &[])?;
        server.wait_ready()?;
        Ok::<_, Error>(server)
    };
    let mut replicas = Vec::new();
    for _ in 0..REPLICAS {
        replicas.push(start()?);
    }
    let target = Target::new(kind.path(), &certificate.cert, &addresses(&replicas));
    let mut load = generator.start(&target, BODY, &["follow", "--rate", RATE])?;
    thread::sleep(2 * PROPAGATION);
    let mut longest_end = Duration::ZERO;
    for restarted in 1..=RESTARTS {
        eprintln!("bench: {}, restart {restarted} of {RESTARTS}", kind.name());
        // The oldest replica leaves first.
        let mut leaving = replicas.remove(0);
        let begin = Instant::now();
        leaving.terminate()?;
        let (mut propagated, mut end) = (false, None);
        while !propagated || end.is_none() {
            if !propagated && begin.elapsed() >= PROPAGATION {
                load.endpoints(&addresses(&replicas))?;
                propagated = true;
            }
            if end.is_none() && leaving.process.ended()? {
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
    load.0.order("end")?;
    Ok((longest_end, load.summary()?))
}

fn addresses(replicas: &[Server]) -> Vec<SocketAddr> {
    replicas.iter().map(|server| server.address).collect()
}
