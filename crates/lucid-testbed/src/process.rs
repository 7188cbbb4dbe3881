//! Child processes that end with this process in every case.

mod spawn;

use std::{
    collections::VecDeque,
    ffi::OsStr,
    fs::File,
    io::{self, BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};
use snafu::{ResultExt as _, ensure_whatever, whatever};

use crate::Error;
use spawn::spawn;

/// Timeout of a graceful end; no state needs a longer one.
const GRACE: Duration = Duration::from_secs(3);

/// Timeout for the first output of a shell.
const START: Duration = Duration::from_mins(2);

/// Proxy variables: programs talk only to this machine.
const PROXY_VARIABLES: [&str; 8] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];

/// Creates a command for a program that runs beside a [`Cluster`](crate::Cluster).
///
/// The program does not inherit proxy variables. The kernel kills it when this process ends without a drop (SIGKILL, Ctrl-C).
/// Requires setpriv of util-linux; without it, only the drop of [`Process`] ends the program.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = ending_with_us(program);
    for variable in PROXY_VARIABLES {
        command.env_remove(variable);
    }
    command
}

/// Like [`command`], for a program that needs the proxy for downloads.
pub(crate) fn ending_with_us(program: impl AsRef<OsStr>) -> Command {
    static SETPRIV: LazyLock<bool> = LazyLock::new(|| {
        let probe = Command::new("setpriv").args(["--pdeathsig", "KILL", "true"]).output();
        probe.is_ok_and(|output| output.status.success())
    });
    if !*SETPRIV {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    // A separate process group: Ctrl-C reaches only this process, which ends its children in order.
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).process_group(0);
    command
}

/// A running program with its output in a log file. Dropping it sends SIGTERM, then SIGKILL after three seconds, and reaps the
/// process.
///
/// A program started by a [`command`] leads a process group, which gets these signals: its children end too.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: &'static str,
    pub(crate) log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts `command`, preferably one from [`command`], under a name for messages. Appends standard output and standard error
    /// to `log`, so that output from before a restart is kept.
    ///
    /// # Errors
    ///
    /// Returns an error if the log cannot be written or the program does not exist. Under setpriv, see [`command`], a missing
    /// program ends at once with status 127 and a line in the log.
    pub(crate) fn start(name: &'static str, mut command: Command, log: PathBuf) -> io::Result<Self> {
        let output = File::options().append(true).create(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        Ok(Self { name, log, child: spawn(command)? })
    }

    /// Last lines of the log.
    pub(crate) fn log_tail(&self) -> String {
        tail(&self.log)
    }

    /// Waits for the first output, which an `unshare` with a small shell script writes once it is in its namespaces.
    pub(crate) fn first_output(&mut self) -> Result<String, Error> {
        let deadline = Instant::now() + START;
        while self.ended().is_none() && Instant::now() < deadline {
            let output = self.log_tail();
            if !output.is_empty() {
                return Ok(output);
            }
            thread::sleep(Duration::from_millis(5));
        }
        whatever!("failed to have namespaces: `unshare` says: {}", self.log_tail())
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Exit status of the program, or `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    fn end(&mut self) {
        self.send(Signal::TERM);
        let deadline = Instant::now() + GRACE;
        while self.ended().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        self.send(Signal::KILL);
        let _ = self.child.wait();
    }

    fn send(&mut self, signal: Signal) {
        // The pid of a reaped child may belong to another process.
        if self.ended().is_none()
            && let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            let leads = getpgid(Some(pid)).is_ok_and(|group| group == pid);
            let _ = if leads { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, Error> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let text = words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
    let output = command.output().with_whatever_context(|_| format!("failed to run `{text}`"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure_whatever!(output.status.success(), "`{text}` says: {}", errors.trim());
    Ok(output.stdout)
}

/// Processes of a cluster in start order. etcd, the first, ends last: without it the others would delay their end.
#[derive(Debug, Default)]
pub(crate) struct Processes(Vec<Process>);

impl Processes {
    pub(crate) fn push(&mut self, process: Process) {
        self.0.push(process);
    }

    pub(crate) fn remove(&mut self, log: &Path) {
        self.0.retain(|process| process.log != log);
    }

    pub(crate) fn ended(&mut self) -> Option<(&Process, ExitStatus)> {
        self.0.iter_mut().find_map(|process| {
            let status = process.ended()?;
            Some((&*process, status))
        })
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in self.0.iter_mut().skip(1) {
            process.send(Signal::TERM);
        }
        self.0.drain(1.min(self.0.len())..);
        self.0.clear();
    }
}

/// Returns the last lines of a log, as far as it is readable.
pub(crate) fn tail(log: &Path) -> String {
    const LINES: usize = 15;
    let Ok(file) = File::open(log) else { return String::new() };
    let mut last = VecDeque::with_capacity(LINES);
    for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
        if last.len() == LINES {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(&line).into_owned());
    }
    Vec::from(last).join("\n")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// Starts a shell, and waits until it has written "ready" to its log.
    fn shell(folder: &TempDir, script: &str) -> Process {
        let mut command = command("sh");
        command.args(["-c", script]);
        let process = Process::start("sh", command, folder.path().join("log")).unwrap();
        await_that(|| process.log_tail().ends_with("ready"));
        process
    }

    fn await_that(holds: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_mins(2);
        while !holds() {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn runs(pid: u32) -> bool {
        // A zombie has no command line.
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
    }

    #[test]
    fn a_process_that_refuses_to_end_is_killed_with_its_children() {
        let folder = TempDir::new().unwrap();
        let process = shell(&folder, "trap '' TERM; sleep 300 & echo $!; echo ready; while :; do wait; done");
        let log = process.log_tail();
        let (pid, child) = (process.pid(), log.lines().next().unwrap().parse().unwrap());
        // During the exec of `sleep` it has no command line.
        await_that(|| runs(child));
        drop(process);
        assert!(!runs(pid));
        await_that(|| !runs(child));
    }
}
