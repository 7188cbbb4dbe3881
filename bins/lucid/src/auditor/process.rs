//! The process of the auditor.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use lucid_chain::keys::ROUTES_ENV;
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::error::{Result, ResultExt};

/// Time for listening on the port.
pub(super) const START_LIMIT: Duration = Duration::from_secs(60);
/// Time for ending after SIGTERM, as kubelets give by default.
const END_LIMIT: Duration = Duration::from_secs(30);
/// Time for reading what a program wrote before its end.
const OUTPUT_LIMIT: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);
/// Number of lines kept of the output.
const LINES: usize = 20;

/// A running auditor.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    output: Output,
}

/// Last lines of standard output and standard error.
#[derive(Clone, Debug, Default)]
struct Output(Arc<Mutex<VecDeque<String>>>);

impl Process {
    /// Starts an auditor in front of `models`, and waits until it listens. Returns its address in front of each.
    pub(crate) async fn start(
        command: &[OsString],
        models: [SocketAddr; 2],
        mode: &str,
    ) -> Result<(Self, [SocketAddr; 2])> {
        let (program, arguments) = command.split_first().ok_or("the command is empty")?;
        let ports = free_ports().failed_to("find free ports")?;
        let [port, second] = ports;
        let [next, second_next] = models.map(|model| model.port());
        let routes = format!("{port}={next},{second}={second_next}");
        let next = format!("http://localhost:{next}");
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("LUCID_CHAIN_NEXT", &next).env("AUDITOR_URL", &next);
        command.env("LUCID_AUDITOR_PORT", port.to_string()).env("PORT", port.to_string());
        command.env(ROUTES_ENV, routes);
        command.env("LUCID_AUDITOR_ID", "conformance").env("LUCID_AUDIT_MODE", mode);
        command.env("LUCID_PROBE_PATHS", "/ready");
        let mut child = command.spawn().failed_to(format_args!("start {}", program.display()))?;
        let output = Output::default();
        if let Some(stdout) = child.stdout.take() {
            output.collect(stdout);
        }
        if let Some(stderr) = child.stderr.take() {
            output.collect(stderr);
        }
        let mut process = Self { child, output };
        let addresses = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let [address, _] = addresses;
        let begin = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            let found = match process.ended()? {
                Some(status) => format!("it ended ({status})"),
                None if begin.elapsed() > START_LIMIT => "it does not listen".to_owned(),
                None => {
                    sleep(POLL).await;
                    continue;
                }
            };
            let output = process.output.last().await;
            let program = program.display();
            return Err(format!(
                "{program} has to listen on {address} (LUCID_AUDITOR_PORT): {found}{output}"
            )
            .into());
        }
        Ok((process, addresses))
    }

    pub(crate) fn terminate(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::TERM)?)
    }

    /// Returns the status of a process that has ended.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for the end. Returns `None` if there is none in time.
    pub(crate) async fn end(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let begin = Instant::now();
        loop {
            let ended = self.ended()?;
            if ended.is_some() || begin.elapsed() > patience {
                return Ok(ended);
            }
            sleep(POLL).await;
        }
    }

    /// Ends the process as a kubelet does. A second signal skips what is left of the grace period.
    pub(crate) async fn stop(mut self) -> io::Result<()> {
        if self.ended()?.is_none() {
            self.terminate()?;
            self.end(POLL).await?;
        }
        if self.ended()?.is_none() {
            self.terminate()?;
            self.end(END_LIMIT).await?;
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Output {
    fn collect(&self, stream: impl Read + Send + 'static) {
        let output = self.clone();
        thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(io::Result::ok) {
                let mut lines = output.0.lock().unwrap_or_else(PoisonError::into_inner);
                lines.push_back(String::from_utf8_lossy(&line).into_owned());
                if lines.len() > LINES {
                    lines.pop_front();
                }
            }
        });
    }

    /// Returns the last lines. A program that has ended may have written some that are not read yet.
    async fn last(&self) -> String {
        let begin = Instant::now();
        // Each stream that is read holds a reference. Other programs may keep them open.
        while Arc::strong_count(&self.0) > 1 && begin.elapsed() < OUTPUT_LIMIT {
            sleep(POLL).await;
        }
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| format!("\n  {line}")).collect()
    }
}

/// Returns two ports that are free on all addresses.
fn free_ports() -> io::Result<[u16; 2]> {
    let bind = || {
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))
    };
    // Both are bound at once, so that they differ.
    let (first, second) = (bind()?, bind()?);
    Ok([first.local_addr()?.port(), second.local_addr()?.port()])
}
