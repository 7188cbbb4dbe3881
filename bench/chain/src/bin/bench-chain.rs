//! Prints the CPU time of planning and patching each pod, as JSON. `cargo xtask bench chain` starts it.

use std::error::Error;
use std::time::{Duration, Instant};

use bench_chain::Case;
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

#[derive(Parser)]
struct Program {
    /// Duration of each pod's measurement, in milliseconds.
    #[arg(long, default_value_t = 300)]
    milliseconds: u64,
}

/// Each case comes once in each round, so that a machine that slows down affects all.
const ROUNDS: u32 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let time = Duration::from_millis(Program::parse().milliseconds) / ROUNDS;
    let cases = Case::all()?;
    let mut all = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for (case, times) in cases.iter().zip(&mut all) {
            let begin = Instant::now();
            // The first run of a round fills caches.
            case.work()?;
            while begin.elapsed() < time || times.len() < 3 {
                let begin = cpu_time();
                case.work()?;
                times.push((cpu_time() - begin).as_secs_f64() * 1e6);
            }
        }
    }
    let figures = cases.iter().zip(all).map(|(case, mut times)| {
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| times.get((times.len() - 1) * percent / 100);
        json!({"name": case.name, "bytes": case.pod.len(), "us": {"p50": at(50), "p99": at(99), "max": at(100)}})
    });
    println!("{}", json!(figures.collect::<Vec<_>>()));
    Ok(())
}

/// CPU time of this thread, the only one.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
