//! The load generator, a process pinned to the other core.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use lucid_e2e::Error;
use serde::Deserialize;

use super::programs::{self, LOAD_CORE, Pinned};
use crate::command::output;
use crate::report::Percentiles;

/// Result of a run; bench/load documents the fields.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Summary {
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) failures: BTreeMap<String, u64>,
    pub(super) seconds: f64,
    pub(super) server_cpu: f64,
    pub(super) per_cpu_second: f64,
    pub(super) latency_us: Percentiles,
}

/// Returns the round with the median throughput.
pub(super) fn median(mut rounds: Vec<Summary>) -> Summary {
    rounds.sort_by(|a, b| a.per_cpu_second.total_cmp(&b.per_cpu_second));
    rounds.swap_remove(rounds.len() / 2)
}

/// Webhook or model that the generator calls.
pub(super) struct Target {
    arguments: Vec<OsString>,
}

impl Target {
    pub(super) fn new(path: &str, ca: &Path, servers: &[SocketAddr]) -> Self {
        Self::plain(path, servers).with("--ca", ca)
    }

    pub(super) fn plain(path: &str, servers: &[SocketAddr]) -> Self {
        let target = Self { arguments: Vec::new() }.with("--path", path);
        servers.iter().fold(target, |target, server| target.with("--endpoint", server.to_string()))
    }

    pub(super) fn with(mut self, option: &str, value: impl Into<OsString>) -> Self {
        self.arguments.extend([option.into(), value.into()]);
        self
    }
}

pub(super) struct Generator(PathBuf);

impl Generator {
    pub(super) fn build() -> Result<Self, Error> {
        programs::build("bench-load").map(Self)
    }

    /// Builds it without optimization, for counts, which do not depend on its speed.
    pub(super) fn build_for_counts() -> Result<Self, Error> {
        programs::build_as("dev", programs::BENCH, "bench-load").map(Self)
    }

    pub(super) fn pod(&self, body: u64) -> Result<String, Error> {
        let mut command = Command::new(&self.0);
        command.args(["--endpoint", "127.0.0.1:0", "--path", "/", "--body", &body.to_string(), "pod"]);
        output(&mut command)
    }

    /// Starts the generator with reviews of `body` bytes; `load` is the end of its command line.
    pub(super) fn start(&self, target: &Target, body: u64, load: &[&str]) -> Result<Load, Error> {
        let body = body.to_string();
        let process = Pinned::start(LOAD_CORE, &self.0, |command| {
            command.args(["--body", &body]).args(&target.arguments).args(load)
        });
        Ok(Load(process?))
    }

    pub(super) fn run(&self, target: &Target, body: u64, load: &[&str]) -> Result<Summary, Error> {
        self.start(target, body, load)?.summary()
    }
}

pub(super) struct Load(pub(super) Pinned);

impl Load {
    /// Directs new connections to these endpoints.
    pub(super) fn endpoints(&mut self, endpoints: &[SocketAddr]) -> Result<(), Error> {
        let endpoints: Vec<_> = endpoints.iter().map(SocketAddr::to_string).collect();
        self.0.order(&format!("endpoints {}", endpoints.join(" ")))
    }

    pub(super) fn summary(mut self) -> Result<Summary, Error> {
        Ok(serde_json::from_str(&self.0.line()?)?)
    }
}
