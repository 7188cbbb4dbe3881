//! Helpers to run commands.

use std::process::Command;

use lucid_e2e::Error;
use serde_json::Value;

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

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

/// Returns the standard output of a command without surrounding whitespace. The error quotes all output.
pub(crate) fn output(command: &mut Command) -> Result<String, Error> {
    let output = command.output().map_err(|error| format!("failed to run {command:?}: {error}"))?;
    let [text, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    if output.status.success() {
        return Ok(text.trim().to_owned());
    }
    Err(format!("{command:?} failed: {}: {}{}", output.status, text, errors.trim()).into())
}

pub(crate) fn metadata() -> Result<Value, Error> {
    let text = output(cargo().args(["metadata", "--no-deps", "--offline", "--format-version", "1"]))?;
    Ok(serde_json::from_str(&text)?)
}
