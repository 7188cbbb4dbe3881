//! Prints how long planning and patching takes, as JSON. `cargo xtask bench chain` starts it.

use std::error::Error;
use std::time::{Duration, Instant};

use bench_chain::cases::{self, Grows};
use bench_chain::{Step, work};
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

#[derive(Parser)]
struct Program {
    /// How long each pod is measured, in milliseconds.
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

fn main() -> Result<(), Box<dyn Error>> {
    let Program { milliseconds, only } = Program::parse();
    let time = Duration::from_millis(milliseconds);
    let mut all = Vec::new();
    for case in cases::all()?.iter().filter(|case| case.group.contains(&only) || case.name.contains(&only)) {
        let mut runs: [Vec<f64>; STEPS.len()] = Default::default();
        let mut totals = Vec::new();
        let mut patch_bytes = 0;
        let begin = Instant::now();
        while begin.elapsed() < time + time / 4 || totals.len() < 10 {
            let start = cpu_time();
            let mut marks = [start; STEPS.len()];
            let mut step = 0;
            patch_bytes = work(case, |_| {
                marks[step] = cpu_time();
                step += 1;
            })?;
            if begin.elapsed() < time / 4 {
                continue;
            }
            let mut before = start;
            for (runs, mark) in runs.iter_mut().zip(marks) {
                runs.push(microseconds(mark - before));
                before = mark;
            }
            totals.push(microseconds(before - start));
        }
        all.push(Figures {
            group: case.group,
            grows: case.grows,
            name: case.name.clone(),
            size: case.size,
            pod_bytes: case.pod.len(),
            patch_bytes,
            runs: totals.len(),
            total_us: Quantiles { p50: quantile(&mut totals, 50), p99: quantile(&mut totals, 99) },
            steps_us: runs.map(|mut runs| quantile(&mut runs, 50)),
        });
    }
    println!("{}", serde_json::to_string(&all)?);
    Ok(())
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
