//! Programs beside a cluster. They end with this process in every case.

#[path = "../../crates/lucid-testbed/src/process/spawn.rs"]
mod spawn;

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use spawn::spawn;

/// Timeout of a graceful end on drop.
const GRACE: Duration = Duration::from_secs(3);

/// Lines of a log in messages.
const TAIL: usize = 15;

/// Creates a command for a program that runs beside a [`Cluster`](lucid_testbed::Cluster), without the proxy variables.
///
/// The kernel kills it when this process ends without a drop (SIGKILL, Ctrl-C), by setpriv of util-linux.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    for variable in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(variable).env_remove(variable.to_lowercase());
    }
    command
}

/// A running program with its output in a log file, and its children. Dropping it sends SIGTERM, then SIGKILL after three
/// seconds.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts `command`, preferably one from [`command`], under a name for messages. Appends standard output and standard error to `log`, so that output from
    /// before a restart is kept.
    ///
    /// # Errors
    ///
    /// Returns an error if the log cannot be written. A missing program ends at once with status 127 and a line in the log.
    pub fn start(name: &'static str, mut command: Command, log: PathBuf) -> io::Result<Self> {
        let output = File::options().append(true).create(true).open(&log)?;
        // Ctrl-C reaches only this process, which ends its children in order.
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        Ok(Self { name, log, child: spawn(command)? })
    }

    /// Name for messages.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Last lines of the log.
    pub fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Exit status of the program, or `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends SIGTERM and waits for the end. After `patience`, sends SIGKILL and returns `None`.
    pub fn terminate(mut self, patience: Duration) -> Option<ExitStatus> {
        self.end(patience)
    }

    /// Ends the process at once by SIGKILL, like a crash.
    pub fn kill(mut self) {
        self.send(Signal::KILL);
        let _ = self.child.wait();
    }

    fn end(&mut self, patience: Duration) -> Option<ExitStatus> {
        self.send(Signal::TERM);
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.send(Signal::KILL);
        let _ = self.child.wait();
        None
    }

    fn send(&mut self, signal: Signal) {
        // The pid of a reaped child may belong to another process.
        if self.ended().is_none()
            && let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end(GRACE);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tempfile::TempDir;

    use super::{Process, command};

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
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn runs(pid: u32) -> bool {
        // A zombie has no command line.
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
    }

    const OBEYS: &str = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    const REFUSES: &str = "trap '' TERM; echo ready; while :; do sleep 0.01; done";

    #[test]
    fn terminate_returns_the_exit_status() {
        let folder = TempDir::new().unwrap();
        let status = shell(&folder, OBEYS).terminate(Duration::from_secs(20)).unwrap();
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn terminate_kills_after_the_timeout() {
        let folder = TempDir::new().unwrap();
        let process = shell(&folder, REFUSES);
        let (pid, begin) = (process.pid(), Instant::now());
        assert_eq!(process.terminate(Duration::from_millis(200)), None);
        assert!(begin.elapsed() < super::GRACE, "not asked a second time");
        assert!(!runs(pid));
    }

    #[test]
    fn kill_does_not_ask() {
        let folder = TempDir::new().unwrap();
        let process = shell(&folder, "trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done");
        let pid = process.pid();
        process.kill();
        assert!(!runs(pid));
        assert_eq!(std::fs::read_to_string(folder.path().join("log")).unwrap(), "ready\n");
    }

    #[test]
    fn the_children_of_a_process_end_with_it() {
        let ends: [fn(Process); 3] =
            [Process::kill, drop, |process| _ = process.terminate(Duration::from_secs(20))];
        for end in ends {
            let folder = TempDir::new().unwrap();
            let process = shell(&folder, "sleep 300 & echo $!; echo ready; wait");
            let log = process.log_tail();
            let child = log.lines().next().unwrap().parse().unwrap();
            // During the exec of `sleep` it has no command line.
            await_that(|| runs(child));
            end(process);
            await_that(|| !runs(child));
        }
    }

    #[test]
    fn a_restart_keeps_the_earlier_lines_of_the_log() {
        let folder = TempDir::new().unwrap();
        shell(&folder, "echo first; echo ready").terminate(Duration::from_secs(20));
        let second = shell(&folder, "echo second; echo ready; sleep 300");
        await_that(|| second.log_tail() == "first\nready\nsecond\nready");
    }
}
