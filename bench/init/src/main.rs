//! Runs a program and prints how long it took and how much memory it and its children had, as JSON. `cargo xtask bench
//! chain` starts it in a network namespace of its own.

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Parser;
use serde_json::json;
use wait4::Wait4;

#[derive(Parser)]
struct Program {
    /// Program to measure.
    program: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Program { program } = Program::parse();
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
    if !up.success() {
        return Err(format!("ip link set lo up: {up}").into());
    }
    let begin = Instant::now();
    let mut child = Command::new(&program).stdout(Stdio::null()).spawn()?;
    let end = child.wait4()?;
    let milliseconds = begin.elapsed().as_secs_f64() * 1e3;
    if !end.status.success() {
        return Err(format!("{}: {}", program.display(), end.status).into());
    }
    println!("{}", json!({"milliseconds": milliseconds, "rss": end.rusage.maxrss}));
    Ok(())
}
