use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::Error;

/// Builds the workspace from the checkout, and returns the path of one of its programs.
///
/// The build uses the features of `cargo test --workspace`, so that nothing is compiled twice. If everything is built it takes
/// a fraction of a second, once per process.
///
/// # Errors
///
/// Returns an error if the workspace does not build, or has no such program.
pub fn program(name: &str) -> Result<PathBuf, Error> {
    static PROGRAMS: OnceLock<Result<Vec<PathBuf>, String>> = OnceLock::new();
    let programs =
        PROGRAMS.get_or_init(|| build().map_err(|error| error.to_string())).as_ref().map_err(Clone::clone)?;
    let found = programs.iter().find(|path| path.file_name().is_some_and(|file| file == name));
    found.cloned().ok_or_else(|| format!("the workspace has no program {name}").into())
}

fn build() -> Result<Vec<PathBuf>, Error> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--workspace", "--bins", "--message-format", "json-render-diagnostics"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err("failed to build the workspace; see above".into());
    }
    let messages = String::from_utf8(output.stdout)?;
    let executables = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    Ok(executables.collect())
}
