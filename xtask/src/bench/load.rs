//! The load generator, a process pinned to the other core.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use lucid_e2e::Error;
use serde::Deserialize;

use super::build;
use crate::report::Percentiles;

/// Core reserved for the generator.
pub(super) const CORE: &str = "1";
const PROGRAM: &str = "bench-load";

/// Result of a run; bench/load documents the fields.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Summary {
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) failures: BTreeMap<String, u64>,
    pub(super) seconds: f64,
    pub(super) server_cpu: f64,
    pub(super) per_cpu_second: f64,
    pub(super) generator_busy: f64,
    pub(super) latency_us: Percentiles,
}

/// Returns the round with the median throughput.
pub(super) fn median(mut rounds: Vec<Summary>) -> Summary {
    rounds.sort_by(|a, b| a.per_cpu_second.total_cmp(&b.per_cpu_second));
    rounds.swap_remove(rounds.len() / 2)
}

/// Webhook that the generator calls.
pub(super) struct Target {
    arguments: Vec<OsString>,
}

impl Target {
    /// A webhook of these servers, whose certificates are issued by `ca`.
    pub(super) fn new(path: &str, ca: &Path, servers: &[SocketAddr]) -> Self {
        let target = Self { arguments: Vec::new() }.with("--path", path).with("--ca", ca);
        servers.iter().fold(target, |target, server| target.with("--endpoint", server.to_string()))
    }

    /// Adds an option of the generator.
    pub(super) fn with(mut self, option: &str, value: impl Into<OsString>) -> Self {
        self.arguments.extend([option.into(), value.into()]);
        self
    }
}

/// A running generator, killed on drop and when this process ends.
pub(super) struct Load {
    child: Child,
    orders: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Load {
    /// Builds the generator.
    pub(super) fn build() -> Result<(), Error> {
        build::build(PROGRAM).map(drop)
    }

    /// Starts the generator with reviews of `body` bytes; `load` is the end of its command line.
    pub(super) fn start(target: &Target, body: u64, load: &[&str]) -> Result<Self, Error> {
        let mut command = lucid_testbed::command("taskset");
        command.args(["--cpu-list", CORE]).arg(build::program(PROGRAM)).args(["--body", &body.to_string()]);
        command.args(&target.arguments).args(load).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let orders = child.stdin.take().ok_or("a generator without standard input")?;
        let output = child.stdout.take().ok_or("a generator without standard output")?;
        Ok(Self { child, orders, output: BufReader::new(output) })
    }

    pub(super) fn order(&mut self, order: &str) -> Result<(), Error> {
        writeln!(self.orders, "{order}")?;
        Ok(self.orders.flush()?)
    }

    /// Directs new connections to these endpoints.
    pub(super) fn endpoints(&mut self, endpoints: &[SocketAddr]) -> Result<(), Error> {
        let endpoints: Vec<_> = endpoints.iter().map(SocketAddr::to_string).collect();
        self.order(&format!("endpoints {}", endpoints.join(" ")))
    }

    /// Waits until the generator prints `word`.
    pub(super) fn expect(&mut self, word: &str) -> Result<(), Error> {
        let line = self.line()?;
        if line == word { Ok(()) } else { Err(format!("the generator said {line:?}, not {word:?}").into()) }
    }

    /// Waits until the generator ends, and returns its result.
    pub(super) fn summary(mut self) -> Result<Summary, Error> {
        let line = self.line()?;
        if line.is_empty() {
            return Err(format!("the generator failed: {}", self.child.wait()?).into());
        }
        Ok(serde_json::from_str(&line)?)
    }

    fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
