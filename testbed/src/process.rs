//! Children that end when we end, whichever way that is.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{LazyLock, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// Nothing of a test bed is worth a longer wait for a graceful end.
const GRACE: Duration = Duration::from_secs(3);

/// A command whose child is killed by the kernel when this process ends without doing so itself
/// (SIGKILL, Ctrl-C). That needs util-linux's setpriv; without it only [`Process`]'s drop is left.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    static SETPRIV: LazyLock<bool> = LazyLock::new(|| {
        let probe = Command::new("setpriv").args(["--pdeathsig", "KILL", "true"]).output();
        probe.is_ok_and(|output| output.status.success())
    });
    if !*SETPRIV {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    // Out of the terminal's process group: Ctrl-C is for us, who then end the children in order.
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).process_group(0);
    command
}

/// The kernel sends the parent-death signal when the *thread* that started the child ends, and a
/// test's thread may end before its process does. So one thread that never ends starts them all.
fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::Sender<io::Result<Child>>);
    static STARTER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    let (answer, child) = mpsc::channel();
    STARTER.send((command, answer)).map_err(io::Error::other)?;
    child.recv().map_err(io::Error::other)?
}

/// A running program whose output goes to a log file. Ended and reaped on drop: SIGTERM, and SIGKILL
/// three seconds later.
#[derive(Debug)]
pub struct Process {
    pub(crate) name: &'static str,
    pub(crate) log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts `command`, best one made by [`command`], under a name for messages. Standard output and
    /// standard error are appended to `log`.
    ///
    /// # Errors
    /// When the log cannot be written or there is no such program.
    pub fn start(name: &'static str, mut command: Command, log: PathBuf) -> io::Result<Self> {
        let output = File::options().append(true).create(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        Ok(Self { name, log, child: spawn(command)? })
    }

    /// The name it was started under.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        tail(&self.log)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How the program ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends SIGTERM and waits for the end; `None`, and SIGKILL, when it does not come within `patience`.
    pub fn terminate(mut self, patience: Duration) -> Option<ExitStatus> {
        self.ask_to_end();
        self.wait(patience)
    }

    /// Ends it at once by SIGKILL, as a crash does.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(10));
        }
        None
    }

    /// Sends SIGTERM; does not wait.
    fn ask_to_end(&mut self) {
        // A child that was reaped has no pid any more; another process may have it by now.
        if self.ended().is_none()
            && let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.ask_to_end();
        self.wait(GRACE);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processes of a cluster in the order of their start. The first, etcd, ends last: without it
/// the others would wait for it on their way out.
#[derive(Debug, Default)]
pub(crate) struct Processes(Vec<Process>);

impl Processes {
    pub(crate) fn push(&mut self, process: Process) {
        self.0.push(process);
    }

    /// The first one that has ended by itself.
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
            process.ask_to_end();
        }
        self.0.drain(1.min(self.0.len())..);
        self.0.clear();
    }
}

/// The last lines of a log, as far as it can be read.
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
