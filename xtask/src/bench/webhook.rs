//! `cargo xtask bench webhook`.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::Args;
use lucid_e2e::Error;

use super::load::{Generator, Summary, median};
use super::programs::Certificate;
use super::server::{Kind, Server};
use crate::process::Usage;
use crate::report::{Report, bytes};

#[derive(Args)]
pub(crate) struct Webhook {
    /// Duration of each measurement, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Number of throughput measurements; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Sizes of the review in bytes; the goals apply to 10240 and 1572864.
    #[arg(long, value_delimiter = ',', default_values_t = [2 << 10, USUAL, 100 << 10, LARGEST])]
    body: Vec<u64>,
}

/// Review size that the goals apply to.
const USUAL: u64 = 10 << 10;
/// Approximate size limit of etcd; memory is measured with it.
const LARGEST: u64 = 3 << 19;

/// Number of held requests when memory is measured.
const HELD: u32 = 32;
/// Duration for which the requests are held.
const HOLD: Duration = Duration::from_secs(3);

pub(super) fn run(webhook: &Webhook, report: &mut Report) -> Result<(), Error> {
    let programs =
        Kind::ALL.into_iter().map(|kind| Ok((kind, kind.build()?))).collect::<Result<_, Error>>()?;
    let generator = Generator::build()?;
    let bench = Bench { programs, generator, certificate: Certificate::generate()?, webhook };
    webhook.body.iter().try_for_each(|&body| bench.measure(body, report))
}

struct Bench<'a> {
    programs: Vec<(Kind, PathBuf)>,
    generator: Generator,
    certificate: Certificate,
    webhook: &'a Webhook,
}

impl Bench<'_> {
    fn measure(&self, body: u64, report: &mut Report) -> Result<(), Error> {
        let mut rounds = Kind::ALL.map(|_| Vec::new());
        // Rounds alternate between the servers, so that a machine that slows down affects all.
        for round in 1..=self.webhook.rounds.max(1) {
            for (server, rounds) in self.programs.iter().zip(&mut rounds) {
                eprintln!("bench: {}, {}, round {round}", bytes(body), server.0.name());
                // More connections would only queue: throughput is measured, not memory.
                let connections = if body > 1 << 20 { "8" } else { "32" };
                rounds.push(self.load(server, body, &["saturate", "--connections", connections])?);
            }
        }
        let failed: u64 = rounds.iter().flatten().map(|round| round.failed).sum();
        let rounds = rounds.map(median);
        let [bare, view, .., peer] = rounds.each_ref().map(|round| round.per_cpu_second);
        for (server, round) in self.programs.iter().zip(&rounds) {
            let mut row = vec![
                ("review", bytes(body)),
                ("server", server.0.name().to_owned()),
                ("requests per CPU second", format!("{:.0}", round.per_cpu_second)),
                ("to controller-runtime", format!("{:.1} ×", round.per_cpu_second / peer)),
                ("core in use", format!("{:.0} %", 100.0 * round.server_cpu / round.seconds)),
            ];
            if body == USUAL {
                eprintln!("bench: {}, half of controller-runtime's load", server.0.name());
                let rate = (peer / 2.0).to_string();
                let latency = self.load(server, body, &["schedule", "--rate", &rate])?.latency_us;
                row.extend(latency.cells());
            }
            if body == LARGEST {
                let [held, peak] = self.memory(server, body)?;
                row.push(("bodies held", format!("{held:.2}")));
                row.push(("at most", format!("{peak:.2}")));
                if server.0 == Kind::LucidView {
                    let goal = "1.5 MB: at most 1.5 bodies of memory per request in flight";
                    report.goal(goal, format!("{held:.2} held, at most {peak:.2}"), peak <= 1.5);
                }
            }
            report.row(row);
        }
        if body == USUAL {
            let (share, times) = (view / bare, view / peer);
            let goal = "10 KB: at least 80 % of hyper + rustls' throughput, with a view";
            report.goal(goal, format!("{:.0} %", share * 100.0), share >= 0.8);
            let goal = "10 KB: at least 5 times controller-runtime's requests per core";
            report.goal(goal, format!("{times:.1} times"), times >= 5.0);
        }
        report.require(format!("{}: no call fails", bytes(body)), failed, failed == 0);
        Ok(())
    }

    fn load(&self, (kind, program): &(Kind, PathBuf), body: u64, load: &[&str]) -> Result<Summary, Error> {
        let server = Server::start(*kind, program, &self.certificate, &[])?;
        let seconds = self.webhook.seconds.to_string();
        let load = [load, &["--seconds", &seconds]].concat();
        self.generator.run(&server.target(&self.certificate), body, &load)
    }

    /// Measures the memory of requests held by a handler, relative to their bodies: then, and at most.
    fn memory(&self, (kind, program): &(Kind, PathBuf), body: u64) -> Result<[f64; 2], Error> {
        let hold = format!("{}s", HOLD.as_secs());
        let server = Server::start(*kind, program, &self.certificate, &["--hold", &hold])?;
        let load = ["hold", "--connections", &HELD.to_string()];
        let mut load = self.generator.start(&server.target(&self.certificate), body, &load)?;
        // It has connected.
        load.0.line()?;
        let before = server.usage()?.memory;
        Usage::reset_peak(server.process.pid())?;
        load.0.order("go")?;
        // By then the requests are sent.
        thread::sleep(HOLD / 3);
        let held = server.usage()?.memory;
        let summary = load.summary()?;
        if summary.failed > 0 {
            return Err(
                format!("{}: requests that were held failed: {:?}", kind.name(), summary.failures).into()
            );
        }
        let peak = server.usage()?.peak_memory;
        Ok([held, peak].map(|memory| memory.saturating_sub(before) as f64 / f64::from(HELD) / body as f64))
    }
}
