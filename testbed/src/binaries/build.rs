//! Building the programs into the cache folder.

use std::{
    fs::{self, File, TryLockError},
    path::Path,
    process::{Command, Stdio},
};

use snafu::{IntoError as _, ResultExt as _, ensure};

use super::{
    Binaries, BuildSnafu, CacheSnafu, Component, Error, NoGoSnafu, NoModuleSnafu, OldGoSnafu,
    progress::Progress, version_in_go_mod,
};
use crate::{process::tail, say};

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/components");
const STAGING: &str = ".build-";

impl Component {
    fn package(self) -> String {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3".to_owned(),
            _ => format!("k8s.io/kubernetes/cmd/{}", self.name()),
        }
    }

    fn ldflags(self) -> Result<String, Error> {
        Ok(match self {
            Self::Etcd => "-s -w".to_owned(),
            // A build outside its own repository does not know its version, and would report v0.0.0.
            _ => format!(
                "-s -w -X k8s.io/component-base/version.gitVersion={}",
                version_in_go_mod("k8s.io/kubernetes")?
            ),
        })
    }
}

pub(super) fn ensure(binaries: &Binaries, components: &[Component]) -> Result<(), Error> {
    if binaries.missing(components).is_empty() {
        return Ok(());
    }
    let folder = binaries.folder();
    fs::create_dir_all(folder).context(CacheSnafu { action: "create", path: folder })?;
    let _lock = lock(&folder.join(".lock"))?;
    let missing = binaries.missing(components);
    if missing.is_empty() {
        return Ok(());
    }

    check_go()?;
    remove_leftovers(folder)?;
    let staging = tempfile::Builder::new()
        .prefix(STAGING)
        .tempdir_in(folder)
        .context(CacheSnafu { action: "create a folder in", path: folder })?;
    for (index, component) in missing.iter().enumerate() {
        let title = format!("building {} ({} of {})", component.name(), index + 1, missing.len());
        let file = build(*component, staging.path(), &title)?;
        let path = binaries.path(*component);
        fs::rename(&file, &path).context(CacheSnafu { action: "rename a program to", path })?;
    }
    Ok(())
}

/// The lock is held until the file is closed, and so also ends with the process.
fn lock(path: &Path) -> Result<File, Error> {
    let failed = CacheSnafu { action: "lock", path };
    let file = File::create(path).context(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            say(format_args!("waiting for another build of the components ({} is locked)", path.display()));
            file.lock().context(failed)?;
        }
        Err(TryLockError::Error(source)) => return Err(failed.into_error(source)),
    }
    Ok(file)
}

/// What a killed build left behind; no other build runs while we hold the lock.
fn remove_leftovers(folder: &Path) -> Result<(), Error> {
    let failed = CacheSnafu { action: "clear", path: folder };
    for entry in fs::read_dir(folder).context(failed)? {
        let entry = entry.context(failed)?;
        if entry.file_name().to_string_lossy().starts_with(STAGING) {
            fs::remove_dir_all(entry.path()).context(failed)?;
        }
    }
    Ok(())
}

/// Asked inside the module, so that Go has chosen the toolchain that it would build with
/// (`GOTOOLCHAIN`): an older Go that fetches the right one by itself is as good.
fn check_go() -> Result<(), Error> {
    ensure!(Path::new(MODULE).join("go.mod").is_file(), NoModuleSnafu { module: MODULE });
    let needed = version_in_go_mod("go")?;
    let output = go().args(["env", "GOVERSION"]).output().context(NoGoSnafu { needed })?;
    if !output.status.success() {
        let found = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return OldGoSnafu { needed, found }.fail();
    }
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(
        release(&version) >= release(needed),
        OldGoSnafu { needed, found: format!("its version is {version}") }
    );
    Ok(())
}

fn go() -> Command {
    let mut go = Command::new("go");
    go.current_dir(MODULE).stdin(Stdio::null());
    go
}

/// The numbers of `go1.26.8`, `1.26.0` or `go1.26rc1` (whose third number is 0).
fn release(version: &str) -> [u32; 3] {
    let mut numbers = version
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .split('.')
        .map(|part| part.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()));
    [(); 3].map(|()| numbers.next().flatten().unwrap_or(0))
}

fn build(component: Component, staging: &Path, title: &str) -> Result<std::path::PathBuf, Error> {
    let program = staging.join(component.name());
    let log = staging.join("go.log");
    let failed = CacheSnafu { action: "write", path: &log };
    let output = File::create(&log).context(failed)?;
    let mut go = go()
        .env("CGO_ENABLED", "0")
        .args(["build", "-trimpath", "-ldflags", &component.ldflags()?, "-o"])
        .arg(&program)
        .arg(component.package())
        .stdout(output.try_clone().context(failed)?)
        .stderr(output)
        .spawn()
        .context(NoGoSnafu { needed: version_in_go_mod("go")? })?;
    let status = Progress::start(title).watch(&mut go).context(failed)?;
    ensure!(status.success(), BuildSnafu { component: component.name(), output: tail(&log) });
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::release;

    #[test]
    fn releases_of_go_are_compared_as_numbers() {
        for (older, newer) in
            [("go1.9.9", "1.26.0"), ("go1.26.0", "go1.26.10"), ("go1.25.7 X:nogreenteagc", "1.26.0")]
        {
            assert!(release(older) < release(newer), "{older} {newer}");
        }
        assert_eq!(release("go1.26rc1"), release("1.26.0"));
    }
}
