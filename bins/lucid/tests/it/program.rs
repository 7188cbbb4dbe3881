//! Runs lucid as a process.

use std::io::Write;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// Result of a run of the program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) output: String,
    pub(crate) messages: String,
}

/// Runs the program with `input` at its standard input.
pub(crate) fn run(arguments: &[&str], input: &str) -> Ran {
    run_within(arguments, input, None)
}

/// Runs a command. Returns exit code, standard output and standard error.
pub(crate) fn run_command(command: &str, arguments: &[&str], input: &str) -> (i32, String, String) {
    let Ran { code, output, messages } = run(&[&[command], arguments].concat(), input);
    (code, output, messages)
}

/// Runs the program with a limit of its memory, in bytes.
pub(crate) fn run_within(arguments: &[&str], input: &str, limit: Option<u64>) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lucid"));
    // The environment of the developer must not affect the test.
    std::env::vars().filter(|(name, _)| name.starts_with("LUCID_")).for_each(|(name, _)| {
        command.env_remove(name);
    });
    let mut child = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    if limit.is_some() {
        let limit = Rlimit { current: limit, maximum: limit };
        prlimit(Some(Pid::from_child(&child)), Resource::Data, limit).unwrap();
    }
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_owned());
    // It may not read what it does not need.
    let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap(), output: text(output.stdout), messages: text(output.stderr) }
}
