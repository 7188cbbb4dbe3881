//! Runs a program with a deadline.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{MemfdFlags, memfd_create};
use snafu::{ResultExt as _, Snafu, ensure};

/// Deadline of a tool. Tools take milliseconds unless they wait for a lock or the kernel loads a module.
const DEADLINE: Duration = Duration::from_secs(10);

/// Maximum wait of iptables for its lock, 5 seconds: less than [`DEADLINE`], so that iptables reports it.
pub(crate) const LOCK_WAIT: &str = "--wait=5";

/// Runs `program` with `input`. Returns its standard output.
///
/// Standard streams are in-memory files, so that a program that neither reads nor exits cannot block the caller.
pub(crate) fn run(program: &Path, arguments: &[&str], input: &str) -> Result<String, ToolError> {
    let files = || -> io::Result<_> {
        let mut stdin = memory_file()?;
        stdin.write_all(input.as_bytes())?;
        stdin.rewind()?;
        Ok((stdin, memory_file()?, memory_file()?))
    };
    let (stdin, stdout, stderr) = files().context(FilesSnafu)?;
    let start = |stdout: &File, stderr: &File| -> io::Result<Child> {
        Command::new(program)
            .args(arguments)
            // iptables-legacy creates its lock file in /run by default, which fails on a read-only root file system.
            .env("XTABLES_LOCKFILE", "/dev/shm/xtables.lock")
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::from(stdout.try_clone()?))
            .stderr(Stdio::from(stderr.try_clone()?))
            .spawn()
    };
    let child = start(&stdout, &stderr).context(StartSnafu)?;
    let status = wait(child).context(StartSnafu)?;
    let status = status.ok_or_else(|| ToolError::Deadline { seconds: DEADLINE.as_secs() })?;
    ensure!(status.success(), RefusedSnafu { message: message(&text(stderr).context(FilesSnafu)?, status) });
    text(stdout).context(FilesSnafu)
}

fn memory_file() -> io::Result<File> {
    Ok(File::from(memfd_create("lucid-init", MemfdFlags::CLOEXEC)?))
}

fn text(mut file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns `None` if the child exceeds the deadline and is killed.
fn wait(mut child: Child) -> io::Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let elapsed = started.elapsed();
        if elapsed > DEADLINE {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        // Polls often at first, then less.
        thread::sleep((elapsed / 16).clamp(Duration::from_micros(100), Duration::from_millis(20)));
    }
}

/// Extracts the line with the error. nft prints the script after it, iptables prints warnings before it.
fn message(stderr: &str, status: ExitStatus) -> String {
    let mut lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.find(|line| !line.starts_with('#') && !line.starts_with("Warning"));
    line.map_or_else(|| status.to_string(), |line| line.chars().take(300).collect())
}

#[derive(Debug, Snafu)]
pub(crate) enum ToolError {
    #[snafu(display("{message}"))]
    Refused { message: String },
    #[snafu(display("did not end within {seconds} s and was killed"))]
    Deadline { seconds: u64 },
    #[snafu(display("could not be run: {source}"))]
    Start { source: io::Error },
    #[snafu(display("could not read its input: {source}"))]
    Files { source: io::Error },
    #[snafu(display("the pod has IPv6, and the image no ip6tables of this kind"))]
    NoIpv6,
}

impl ToolError {
    /// Returns `true` if the kernel may have refused the rules, rather than a lock or the tool.
    pub(crate) fn may_be_from_kernel(&self) -> bool {
        matches!(self, Self::Refused { message } if !message.contains("xtables lock"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_a_program_and_returns_its_output_or_error() {
        let shell = Path::new("/bin/sh");
        let large = "x".repeat(1 << 20);
        assert_eq!(run(shell, &["-c", "cat"], &large).unwrap(), large);

        let complaint = "printf '# Warning: legacy\\n\\nError: no\\nand so on\\n' >&2; exit 3";
        assert_eq!(run(shell, &["-c", complaint], "").unwrap_err().to_string(), "Error: no");
        assert_eq!(run(shell, &["-c", "exit 3"], "").unwrap_err().to_string(), "exit status: 3");

        let error = run(Path::new("/nowhere"), &[], "").unwrap_err();
        assert_eq!(error.to_string(), "could not be run: No such file or directory (os error 2)");
    }
}
