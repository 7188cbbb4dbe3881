//! The process of the auditor.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, PipeReader};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use lucid_chain::keys::{self, ROUTES_ENV};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::error::{Result, ResultExt};

/// Time for listening on the port.
pub(super) const START_LIMIT: Duration = Duration::from_secs(60);
/// Time for ending after SIGTERM, as kubelets give by default.
const END_LIMIT: Duration = Duration::from_secs(30);
/// Time for reading what a program wrote before its end.
const OUTPUT_LIMIT: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);
const LINES: usize = 20;

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Last lines of standard output and standard error.
    output: watch::Receiver<VecDeque<String>>,
}

impl Process {
    /// Starts an auditor in front of `models`, and waits until it listens. Returns its address in front of each.
    pub(crate) async fn start(
        command: &[OsString],
        models: [SocketAddr; 2],
        mode: &str,
    ) -> Result<(Self, [SocketAddr; 2])> {
        let (program, arguments) = command.split_first().ok_or("the command is empty")?;
        let ports = free_ports().failed_to("find free ports")?;
        let ([port, second], [next, second_next]) = (ports, models.map(|model| model.port()));

        let (reader, writer) = io::pipe().failed_to("open a pipe")?;
        let mut starter = Command::new(program);
        starter.args(arguments).stdin(Stdio::null());
        starter.stdout(writer.try_clone().failed_to("copy a pipe")?).stderr(writer);
        for name in [keys::CHAIN_NEXT_ENV, keys::AUDITOR_URL_ENV] {
            starter.env(name, format!("http://localhost:{next}"));
        }
        starter.env(keys::AUDITOR_PORT_ENV, port.to_string()).env(keys::PORT_ENV, port.to_string());
        starter.env(ROUTES_ENV, format!("{port}={next},{second}={second_next}"));
        starter.env(keys::AUDITOR_ID_ENV, "conformance").env(keys::AUDIT_MODE_ENV, mode);
        starter.env(keys::PROBE_PATHS_ENV, "/ready");
        let child = starter.spawn().failed_to(format_args!("start {}", program.display()))?;
        // Holds the writing end of the pipe.
        drop(starter);
        let mut process = Self { child, output: collect(reader) };
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
            // Lines of a program that has ended may not be read yet. Other programs may keep the pipe open.
            let _ = timeout(OUTPUT_LIMIT, async { while process.output.changed().await.is_ok() {} }).await;
            let output: String = process.output.borrow().iter().map(|line| format!("\n  {line}")).collect();
            let expected = format!("{} has to listen on {address} (LUCID_AUDITOR_PORT)", program.display());
            return Err(format!("{expected}: {found}{output}").into());
        }
        Ok((process, addresses))
    }

    pub(crate) fn terminate(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::TERM)?)
    }

    fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for the process to end. Returns `None` on timeout.
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
        for limit in [POLL, END_LIMIT] {
            if self.ended()?.is_none() {
                self.terminate()?;
                self.end(limit).await?;
            }
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Harmless after its end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(output: PipeReader) -> watch::Receiver<VecDeque<String>> {
    let (sender, receiver) = watch::channel(VecDeque::new());
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(io::Result::ok) {
            sender.send_modify(|lines| {
                lines.push_back(String::from_utf8_lossy(&line).into_owned());
                lines.drain(..lines.len().saturating_sub(LINES));
            });
        }
    });
    receiver
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
