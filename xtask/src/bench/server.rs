//! A measured server, a process pinned to one core.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use lucid_e2e::Error;
use rustix::process::Signal;

use super::load::Target;
use super::programs::{self, Certificate, Pinned, SERVER_CORE};
use crate::process::{Usage, signal};

/// Timeout for the start and for the end of a server.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Bare,
    LucidView,
    LucidTyped,
    AxumKube,
    ControllerRuntime,
    /// lucid-webhook's server with a constant response.
    Constant,
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
            Self::Constant => "constant response",
        }
    }

    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::LucidView => "/view",
            Self::LucidTyped => "/typed",
            Self::Bare | Self::AxumKube | Self::Constant => "/validate",
            Self::ControllerRuntime => "/labels",
        }
    }

    /// Returns `true` if the server parses the review, so that its response has the right uid.
    const fn reads(self) -> bool {
        !matches!(self, Self::Bare | Self::Constant)
    }

    pub(super) fn build(self) -> Result<PathBuf, Error> {
        match self {
            Self::Bare => programs::build("bench-bare"),
            Self::LucidView | Self::LucidTyped | Self::Constant => programs::build("bench-lucid"),
            Self::AxumKube => programs::build("bench-axum-kube"),
            Self::ControllerRuntime => programs::build_controller_runtime(),
        }
    }
}

pub(super) struct Server {
    kind: Kind,
    pub(super) process: Pinned,
    pub(super) address: SocketAddr,
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
        let mut process = Pinned::start(SERVER_CORE, program, |command| {
            if kind == Kind::ControllerRuntime {
                // One core, and fewer collections than by default: 800 was the best of 100, 200, 400 and 800.
                command.env("GOMAXPROCS", "1").env("GOGC", "800");
            }
            command.args(["--listen", "127.0.0.1:0"]).args(arguments).stderr(Stdio::null());
            command.arg("--cert").arg(&certificate.cert).arg("--key").arg(&certificate.key)
        })?;
        let mut admin = None;
        loop {
            let line = process.line()?;
            if let Some(address) = line.strip_prefix("ready at ") {
                admin = Some(address.parse()?);
            } else if let Some(address) = line.strip_prefix("listening on ") {
                return Ok(Self { kind, process, address: address.parse()?, admin });
            }
        }
    }

    /// Its webhook, with the CPU time of this server.
    pub(super) fn target(&self, certificate: &Certificate) -> Target {
        let target = Target::new(self.kind.path(), &certificate.cert, &[self.address]);
        let target = target.with("--server", self.process.pid().to_string());
        target.with("--check-uid", self.kind.reads().to_string())
    }

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

    pub(super) fn terminate(&self) -> Result<(), Error> {
        signal(self.process.pid(), Signal::TERM)
    }

    pub(super) fn usage(&self) -> Result<Usage, Error> {
        Usage::of(self.process.pid())
    }
}

fn is_ready(admin: SocketAddr) -> Result<bool, Error> {
    let mut stream = TcpStream::connect(admin)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response.starts_with("HTTP/1.1 200"))
}
