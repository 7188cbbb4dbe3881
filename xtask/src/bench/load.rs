//! The load generator, a process pinned to the other core.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use lucid_e2e::Error;
use serde::{Deserialize, Serialize};

use super::build::{Certificate, Programs};
use super::server::{Kind, Server};

/// Core reserved for the generator.
pub(super) const CORE: &str = "1";

/// Result of a run; bench/load documents the fields.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Summary {
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) failures: std::collections::BTreeMap<String, u64>,
    pub(super) again: u64,
    pub(super) seconds: f64,
    pub(super) per_second: f64,
    pub(super) server_cpu: f64,
    pub(super) per_cpu_second: f64,
    pub(super) generator_busy: f64,
    pub(super) latency_us: Latency,
    pub(super) late_us: Latency,
    pub(super) connections: u64,
    pub(super) tls: String,
    pub(super) body: u64,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) max: f64,
}

/// A running generator, killed on drop and when this process ends.
pub(super) struct Load {
    child: Child,
    orders: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Load {
    /// Starts the generator against servers of one kind; `load` is the end of its command line.
    pub(super) fn start(
        programs: &Programs,
        certificate: &Certificate,
        kind: Kind,
        servers: &[&Server],
        body: u64,
        load: &[&str],
    ) -> Result<Self, Error> {
        let mut arguments = vec!["--path".to_owned(), kind.path().to_owned()];
        for server in servers {
            arguments.extend(["--endpoint".to_owned(), server.address.to_string()]);
        }
        // Replicas that restart have no CPU time to read at the end.
        if let [server] = servers {
            arguments.extend(["--server".to_owned(), server.pid().to_string()]);
        }
        if !kind.reads() {
            arguments.push("--any-uid".to_owned());
        }
        Self::spawn(&programs.rust("bench-load"), &certificate.cert, body, &arguments, load)
    }

    /// Starts the generator `program` against the servers in `arguments`, trusting the certificate authority `ca`.
    pub(super) fn spawn(
        program: &Path,
        ca: &Path,
        body: u64,
        arguments: &[String],
        load: &[&str],
    ) -> Result<Self, Error> {
        let mut command = lucid_testbed::command("taskset");
        command.args(["--cpu-list", CORE]).arg(program);
        command.arg("--ca").arg(ca).args(["--body", &body.to_string()]).args(arguments);
        command.args(load).stdin(Stdio::piped()).stdout(Stdio::piped());
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
