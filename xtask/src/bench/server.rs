//! A measured server, a process pinned to one core.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lucid_e2e::Error;
use rustix::process::{Pid, Signal, kill_process};

use super::build::{self, Certificate};
use super::load::Target;
use crate::process::Usage;

/// Core reserved for servers.
pub(super) const CORE: &str = "0";
/// Timeout for the start and for the end of a server.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Implementation of a measured server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Bare,
    LucidView,
    LucidTyped,
    AxumKube,
    ControllerRuntime,
}

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::Bare, Self::LucidView, Self::LucidTyped, Self::AxumKube, Self::ControllerRuntime];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bare => "hyper + rustls",
            Self::LucidView => "lucid-webhook, view",
            Self::LucidTyped => "lucid-webhook, Pod",
            Self::AxumKube => "axum + kube",
            Self::ControllerRuntime => "controller-runtime",
        }
    }

    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::LucidView => "/view",
            Self::LucidTyped => "/typed",
            Self::Bare | Self::AxumKube => "/validate",
            Self::ControllerRuntime => "/labels",
        }
    }

    /// Returns `true` if the server parses the review, so that its answer has the right uid.
    const fn reads(self) -> bool {
        !matches!(self, Self::Bare)
    }

    pub(super) fn build(self) -> Result<PathBuf, Error> {
        match self {
            Self::Bare => build::build("bench-bare"),
            Self::LucidView | Self::LucidTyped => build::build("bench-lucid"),
            Self::AxumKube => build::build("bench-axum-kube"),
            Self::ControllerRuntime => build::build_controller_runtime(),
        }
    }
}

/// A running server, killed on drop and when this process ends.
pub(super) struct Server {
    kind: Kind,
    child: Child,
    pub(super) address: SocketAddr,
    /// Address of `/readyz`, if the server has that endpoint.
    admin: Option<SocketAddr>,
}

impl Server {
    /// Starts a server with these arguments, and waits until it listens.
    pub(super) fn start(
        kind: Kind,
        program: &Path,
        certificate: &Certificate,
        arguments: &[&str],
    ) -> Result<Self, Error> {
        let mut command = lucid_testbed::command("taskset");
        command.args(["--cpu-list", CORE]).arg(program).args(["--listen", "127.0.0.1:0"]).args(arguments);
        command.arg("--cert").arg(&certificate.cert).arg("--key").arg(&certificate.key);
        if kind == Kind::ControllerRuntime {
            // One core, and fewer collections than by default: 800 was the best of 100, 200, 400 and 800.
            command.env("GOMAXPROCS", "1").env("GOGC", "800");
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = child.stdout.take().ok_or("a server without standard output")?;
        let mut admin = None;
        for line in BufReader::new(output).lines() {
            let line = line?;
            if let Some(address) = line.strip_prefix("ready at ") {
                admin = Some(address.parse()?);
            } else if let Some(address) = line.strip_prefix("listening on ") {
                return Ok(Self { kind, child, address: address.parse()?, admin });
            }
        }
        Err(format!("{} ended before it listened: {}", kind.name(), child.wait()?).into())
    }

    /// Its webhook, with the CPU time of this server.
    pub(super) fn target(&self, certificate: &Certificate) -> Target {
        let target = Target::new(self.kind.path(), &certificate.cert, &[self.address]);
        let target = target.with("--server", self.pid().to_string());
        target.with("--check-uid", self.kind.reads().to_string())
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the server reports ready.
    pub(super) fn wait_ready(&self) -> Result<(), Error> {
        let Some(admin) = self.admin else { return Ok(()) };
        let begin = Instant::now();
        while !is_ready(admin).unwrap_or(false) {
            if begin.elapsed() > PATIENCE {
                return Err(format!("a server was not ready within {} s", PATIENCE.as_secs()).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Sends SIGTERM.
    pub(super) fn terminate(&self) -> Result<(), Error> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).ok_or("a process without an id")?;
        Ok(kill_process(pid, Signal::TERM)?)
    }

    /// Returns `true` if the process has ended.
    pub(super) fn ended(&mut self) -> Result<bool, Error> {
        Ok(self.child.try_wait()?.is_some())
    }

    pub(super) fn usage(&self) -> Result<Usage, Error> {
        Usage::of(self.pid())
    }

    pub(super) fn forget_peak(&self) -> Result<(), Error> {
        Ok(fs::write(format!("/proc/{}/clear_refs", self.pid()), "5")?)
    }
}

fn is_ready(admin: SocketAddr) -> Result<bool, Error> {
    let mut stream = TcpStream::connect(admin)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.1 200"))
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
