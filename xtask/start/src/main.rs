//! Starts a task of `cargo xtask`. Before the checks, it reports what they miss, which takes no time to compile.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use xtask_start::{Package, install_command, needs_all};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|task| task == "test") {
        let missing = Package::missing();
        if !missing.is_empty() {
            eprintln!("xtask: programs are missing; to install them:\n{}", install_command(&missing));
            if needs_all() && arguments.len() == 1 {
                eprintln!("xtask: failed to run every check, as LUCID_NEED_ALL demands");
                return ExitCode::FAILURE;
            }
            eprintln!("xtask: without them, checks that need them are skipped, and listed at the end");
        }
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Of all packages, so that it shares compiled dependencies with `cargo build --workspace`: one package alone needs fewer of
    // their features.
    let error = cargo.args(["run", "--quiet", "--bin", "xtask", "--"]).args(arguments).exec();
    eprintln!("xtask: failed to run Cargo: {error}");
    ExitCode::FAILURE
}
