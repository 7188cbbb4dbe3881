//! Helpers to run commands.

use std::process::{Command, Stdio};

use lucid_e2e::Error;
use serde_json::Value;

/// Root folder of the workspace.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The Cargo that runs this task, in the root folder of the workspace.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(ROOT);
    cargo
}

/// Runs a command that reports its errors itself.
pub(crate) fn succeed(command: &mut Command) -> Result<(), Error> {
    let status = command.status().map_err(|error| format!("failed to run {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed: {status}").into()) }
}

/// Output of `cargo metadata` for the workspace, without dependencies.
pub(crate) fn metadata() -> Result<Value, Error> {
    let mut cargo = cargo();
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let output = cargo.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{cargo:?} failed: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
