//! Prints the CPU time and memory that the most expensive pods of one size take, as JSON. `cargo xtask bench worst` starts it.

use std::error::Error;
use std::process::Command;
use std::time::Duration;

use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

#[path = "../../../../crates/lucid-policy/tests/growth/pods.rs"]
mod pods;

#[derive(Parser)]
struct Program {
    /// Bytes of each pod.
    #[arg(long, default_value_t = 3 << 19)]
    size: usize,
    /// Runs of each pod; the median counts.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Measures only the pod at this place of the list: memory is that of the process.
    #[arg(long)]
    place: Option<usize>,
}

#[derive(Deserialize, Serialize)]
struct Figures {
    name: String,
    pod_bytes: usize,
    /// Median CPU time in milliseconds of planning and patching.
    mutate_ms: f64,
    /// Median CPU time in milliseconds of judging.
    validate_ms: f64,
    /// Most bytes resident beside the pod.
    peak: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let program = Program::parse();
    let mut pods = pods::all(program.size);
    let figures = match program.place {
        Some(place) if place < pods.len() => {
            let (name, pod) = pods.swap_remove(place);
            drop(pods);
            vec![measure(name, &pod, program.runs)?]
        }
        _ => (0..pods.len()).map(|place| child(&program, place)).collect::<Result<_, _>>()?,
    };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

fn child(program: &Program, place: usize) -> Result<Figures, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--size", &program.size.to_string(), "--runs", &program.runs.to_string()]);
    let output = command.args(["--place", &place.to_string()]).output()?;
    if !output.status.success() {
        return Err(
            format!("pod {place}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into()
        );
    }
    let figures: Vec<Figures> = serde_json::from_slice(&output.stdout)?;
    figures.into_iter().next().ok_or_else(|| "nothing was measured".into())
}

fn measure(name: &str, pod: &str, runs: usize) -> Result<Figures, Box<dyn Error>> {
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before = status("VmRSS:")?;
    let (mut mutate, mut validate) = (Vec::new(), Vec::new());
    for _ in 0..runs.max(1) {
        mutate.push(milliseconds(|| pods::mutate(pod)));
        validate.push(milliseconds(|| pods::validate(pod, None)));
    }
    let peak = status("VmHWM:")?.saturating_sub(before);
    let (mutate_ms, validate_ms) = (median(mutate), median(validate));
    Ok(Figures { name: name.to_owned(), pod_bytes: pod.len(), mutate_ms, validate_ms, peak })
}

/// CPU time of this thread.
fn milliseconds(work: impl FnOnce() -> usize) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
    };
    let before = now();
    std::hint::black_box(work());
    (now() - before).as_secs_f64() * 1e3
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

/// Bytes of a line in `/proc/self/status`.
fn status(key: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)).ok_or("no such line in status")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
