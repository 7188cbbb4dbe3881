//! Helpers to observe clusters from outside.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use lucid_e2e::eventually;

/// Pids and names of the programs with this folder in their command line.
pub(crate) fn processes_of(folder: &Path) -> Vec<(i32, String)> {
    let folder = folder.to_str().unwrap();
    let pids = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
    pids.filter_map(|pid| {
        let line = fs::read(Path::new("/proc").join(&pid).join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(folder).then(|| (pid.to_str().unwrap().parse().unwrap(), line))
    })
    .collect()
}

/// Waits until no program has this folder in its command line.
pub(crate) async fn all_end(folder: &Path) {
    eventually("the processes end", async || {
        let left = processes_of(folder);
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}

/// Returns a command that runs one ignored test of this binary in a separate process: environment variables and kills affect
/// whole processes.
pub(crate) fn test_in_a_process(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", test]);
    command
}

pub(crate) fn script(folder: &Path, name: &str, body: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
