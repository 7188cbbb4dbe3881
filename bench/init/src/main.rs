//! Runs a program and prints how long it took and how much memory it and its children had, as JSON. `cargo xtask bench
//! chain` starts it in a network namespace of its own.

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Parser;
use serde::Serialize;
use wait4::Wait4;

#[derive(Parser)]
struct Program {
    /// Program to measure.
    program: PathBuf,
    /// Number of runs in this namespace.
    #[arg(long)]
    times: usize,
}

#[derive(Serialize)]
struct Run {
    milliseconds: f64,
    /// Bytes of the largest of its processes (`ru_maxrss`).
    rss: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Program { program, times } = Program::parse();
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
    if !up.success() {
        return Err(format!("ip link set lo up: {up}").into());
    }
    let mut runs = Vec::new();
    for _ in 0..times {
        let begin = Instant::now();
        let mut child = Command::new(&program).stdout(Stdio::null()).spawn()?;
        let end = child.wait4()?;
        let milliseconds = begin.elapsed().as_secs_f64() * 1e3;
        if !end.status.success() {
            return Err(format!("{}: {}", program.display(), end.status).into());
        }
        runs.push(Run { milliseconds, rss: end.rusage.maxrss });
    }
    println!("{}", serde_json::to_string(&runs)?);
    Ok(())
}
