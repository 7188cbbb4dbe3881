//! Starts a task of `cargo xtask`. Reports missing packages, and starts the Go build, before Cargo compiles the tasks.

#[path = "../../../crates/lucid-testbed/src/binaries/settings.rs"]
mod settings;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};

use xtask_start::{Package, install_command, needs_all};

/// Module of etcd and kube-apiserver.
const COMPONENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/lucid-testbed/components");

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let is_ready = match arguments.first() {
        Some(task) if task == "test" => reports_missing(!has("--list")),
        Some(task) if task == "demo" && !has("--node") && is_first() => compiles_side_by_side(),
        _ => true,
    };
    if is_ready {
        // With features of the whole workspace, so that it shares compiled dependencies with `cargo build --workspace`.
        let error = cargo("run").args(["--bin", "xtask", "--"]).args(arguments).exec();
        eprintln!("xtask: failed to run Cargo: {error}");
    }
    ExitCode::FAILURE
}

fn cargo(command: &str) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    cargo.args([command, "--quiet"]);
    cargo
}

/// Prints what is missing. Returns `false` if that is an error.
fn reports_missing(runs: bool) -> bool {
    let missing = Package::missing();
    if missing.is_empty() {
        return true;
    }
    eprintln!("xtask: programs are missing; to install them:\n{}", install_command(&missing));
    let is_ready = !(runs && needs_all());
    eprintln!(
        "xtask: {}",
        match is_ready {
            true => "without them, checks that need them are skipped, and listed at the end",
            false => "failed to run every check, as LUCID_NEED_ALL demands",
        }
    );
    is_ready
}

/// Returns `true` if no program of the test bed was built here.
fn is_first() -> bool {
    std::env::var_os(settings::ASSETS).is_none() && settings::cache().is_some_and(|cache| !cache.exists())
}

/// Compiles the packages of the control plane into Go's cache, beside the tasks and what the demo starts. Returns `false` if
/// Cargo fails. The test bed reports failures of Go.
fn compiles_side_by_side() -> bool {
    eprintln!("xtask: compiling Lucid, etcd and kube-apiserver for the first time, which takes minutes");
    let go = go();
    let programs = ["xtask", "lucid-operator", "lucid-verifier"];
    let built = cargo("build").args(programs.iter().flat_map(|name| ["--bin", name])).status();
    let is_built = built.is_ok_and(|status| status.success());
    if let Ok(mut go) = go {
        if !is_built {
            let _ = go.kill();
        }
        let _ = go.wait();
    }
    is_built
}

fn go() -> std::io::Result<Child> {
    let mut go = Command::new("go");
    settings::prepare(&mut go, COMPONENTS);
    // Unlike `go build`, it links nothing.
    go.args(["list", "-export"]).args(settings::FLAGS).args([settings::ETCD, settings::API_SERVER]);
    go.stdin(Stdio::null()).stdout(Stdio::null()).spawn()
}
