use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::Error;

/// Builds a program of the workspace from the checkout, and returns its path.
///
/// The build uses the features of `cargo test --workspace`, so that nothing is compiled twice. If the program is built it takes
/// a fraction of a second, once per process.
///
/// # Errors
///
/// Returns an error if the program does not build, or the workspace has no such program.
pub fn program(name: &str) -> Result<PathBuf, Error> {
    static PROGRAMS: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = programs.get(name) {
        return Ok(path.clone());
    }
    let path = build(name)?;
    programs.insert(name.to_owned(), path.clone());
    Ok(path)
}

/// Returns the path of a program of the test bed, such as `kubectl` or `helm`. Builds it if it is missing, and blocks meanwhile.
///
/// # Errors
///
/// See [`lucid_testbed::binary`].
pub fn binary(name: &str) -> Result<PathBuf, Error> {
    let build = || -> Result<PathBuf, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(runtime.block_on(lucid_testbed::binary(name))?)
    };
    // On another thread: the caller may be in a runtime already.
    thread::scope(|scope| scope.spawn(build).join().map_err(|_| format!("the build of {name} panicked"))?)
}

fn build(name: &str) -> Result<PathBuf, Error> {
    // Without a package: those of the whole workspace decide the features.
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--bin", name, "--message-format", "json-render-diagnostics"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("failed to build {name}; see above").into());
    }
    let messages = String::from_utf8(output.stdout)?;
    let mut executables = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    let found = executables.find(|path| path.file_name().is_some_and(|file| file == name));
    found.ok_or_else(|| format!("the workspace has no program {name}").into())
}
