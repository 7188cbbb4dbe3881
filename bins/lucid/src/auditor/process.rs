//! The process of the auditor.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::error::{Result, ResultExt};

/// Time for listening on the port.
const START_LIMIT: Duration = Duration::from_secs(60);
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
    /// Starts an auditor in front of `model`, and waits until it listens. Returns its address.
    pub(crate) async fn start(
        command: &[OsString],
        model: SocketAddr,
        mode: &str,
    ) -> Result<(Self, SocketAddr)> {
        let (program, arguments) = command.split_first().ok_or("the command is empty")?;
        let port = free_port().failed_to("find a free port")?;
        let next = format!("http://localhost:{}", model.port());
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("LUCID_CHAIN_NEXT", &next).env("AUDITOR_URL", &next);
        command.env("LUCID_AUDITOR_PORT", port.to_string()).env("PORT", port.to_string());
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
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
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
        Ok((process, address))
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

/// Returns a port that is free on all addresses.
fn free_port() -> io::Result<u16> {
    let all = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)));
    Ok(all?.local_addr()?.port())
}
