//! Prints how long planning and patching takes, as JSON. `cargo xtask bench chain` starts it.

use std::error::Error;
use std::time::{Duration, Instant};

use bench_chain::cases::{self, Case, Grows};
use bench_chain::{Step, work};
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

#[derive(Parser)]
struct Program {
    /// Duration of each pod's measurement, in milliseconds.
    #[arg(long, default_value_t = 300)]
    milliseconds: u64,
    /// Only the pods whose group or name has this in it.
    #[arg(long, default_value = "")]
    only: String,
}

#[derive(Serialize)]
struct Figures {
    group: &'static str,
    grows: Grows,
    name: String,
    size: usize,
    pod_bytes: usize,
    patch_bytes: usize,
    runs: usize,
    /// Microseconds of CPU time of a whole run: what others do on the machine meanwhile does not count.
    total_us: Quantiles,
    /// The medians of its steps, in order.
    steps_us: [f64; STEPS.len()],
}

const STEPS: [Step; 5] = [Step::Read, Step::Plan, Step::Patch, Step::Write, Step::Drop];

#[derive(Serialize)]
struct Quantiles {
    p50: f64,
    p99: f64,
}

/// Measurements of one case.
#[derive(Default)]
struct Runs {
    patch_bytes: usize,
    totals: Vec<f64>,
    steps: [Vec<f64>; STEPS.len()],
}

/// Each case comes once in each round, so that a machine that gets slower does so for all.
const ROUNDS: u32 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let Program { milliseconds, only } = Program::parse();
    let time = Duration::from_millis(milliseconds) / ROUNDS;
    let mut cases = cases::all()?;
    cases.retain(|case| case.group.contains(&only) || case.name.contains(&only));
    let mut all: Vec<_> = cases.iter().map(|_| Runs::default()).collect();
    for _ in 0..ROUNDS {
        for (case, runs) in cases.iter().zip(&mut all) {
            let begin = Instant::now();
            // The first run of a round makes the caches warm.
            work(case, |_| ())?;
            while begin.elapsed() < time || runs.totals.len() < 3 {
                runs.measure(case)?;
            }
        }
    }
    let figures = cases.iter().zip(all).map(|(case, mut runs)| Figures {
        group: case.group,
        grows: case.grows,
        name: case.name.clone(),
        size: case.size,
        pod_bytes: case.pod.len(),
        patch_bytes: runs.patch_bytes,
        runs: runs.totals.len(),
        total_us: Quantiles { p50: quantile(&mut runs.totals, 50), p99: quantile(&mut runs.totals, 99) },
        steps_us: runs.steps.map(|mut runs| quantile(&mut runs, 50)),
    });
    println!("{}", serde_json::to_string(&figures.collect::<Vec<_>>())?);
    Ok(())
}

impl Runs {
    /// One run as a whole and one step by step: to ask for the time takes time.
    fn measure(&mut self, case: &Case) -> Result<(), Box<dyn Error>> {
        let begin = cpu_time();
        self.patch_bytes = work(case, |_| ())?;
        self.totals.push(microseconds(cpu_time() - begin));

        let mut before = cpu_time();
        let mut steps = self.steps.iter_mut();
        work(case, |_| {
            let now = cpu_time();
            if let Some(step) = steps.next() {
                step.push(microseconds(now - before));
            }
            before = now;
        })?;
        Ok(())
    }
}

/// The CPU time of this thread, which is the only one.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn quantile(figures: &mut [f64], percent: usize) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() * percent / 100).copied().unwrap_or_default()
}
