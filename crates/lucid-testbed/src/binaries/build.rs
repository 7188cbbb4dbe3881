//! Builds of the programs into the cache folder.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
    ptr,
    time::Duration,
};

use serde_json::Value;
use snafu::{OptionExt as _, ResultExt as _, ensure_whatever};

use super::{
    Binaries, Component,
    given_up::GivenUp,
    go::Go,
    module::{MODULES, Module, Source},
    progress::Progress,
};
use crate::{Error, error::failed_to, process::tail, say};

const STAGING: &str = ".build-";
const LOCK_POLL: Duration = Duration::from_millis(100);

pub(super) fn ensure(binaries: &Binaries, components: &[Component], given_up: &GivenUp) -> Result<(), Error> {
    for module in MODULES {
        let components: Vec<_> =
            components.iter().copied().filter(|component| ptr::eq(component.module(), module)).collect();
        ensure_of(module, binaries, &components, given_up)?;
    }
    Ok(())
}

fn ensure_of(
    module: &'static Module,
    binaries: &Binaries,
    components: &[Component],
    given_up: &GivenUp,
) -> Result<(), Error> {
    if binaries.missing(components).is_empty() {
        return Ok(());
    }
    let folder = &*binaries.folder_of(module);
    fs::create_dir_all(folder).with_whatever_context(|_| failed_to("create", folder))?;
    let _lock = lock(&folder.join(".lock"), given_up)?;
    let missing = binaries.missing(components);
    if missing.is_empty() {
        return Ok(());
    }

    remove_leftovers(folder)?;
    let staging = tempfile::Builder::new()
        .prefix(STAGING)
        .tempdir_in(folder)
        .with_whatever_context(|_| failed_to("create a folder in", folder))?;
    let go = Go::find(module, staging.path(), given_up)?;
    for (index, component) in missing.iter().enumerate() {
        let title = format!("building {} ({} of {})", component.name(), index + 1, missing.len());
        let file = build(*component, &go, staging.path(), title)?;
        let path = binaries.path(*component);
        fs::rename(&file, &path).with_whatever_context(|_| failed_to("rename a program to", &path))?;
    }
    Ok(())
}

/// Takes the lock. It is held until the file is closed, and so ends with the process.
fn lock(path: &Path, given_up: &GivenUp) -> Result<File, Error> {
    let failed = |_: &mut std::io::Error| failed_to("lock", path);
    let file = File::create(path).with_whatever_context(failed)?;
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => return Err(source).with_whatever_context(failed),
        }
        if !told {
            say(format_args!("waiting for another build of the components ({} is locked)", path.display()));
            told = true;
        }
        given_up.pause(LOCK_POLL)?;
    }
}

/// Removes leftovers of killed builds. No other build runs while this process holds the lock.
fn remove_leftovers(folder: &Path) -> Result<(), Error> {
    let failed = |_: &mut std::io::Error| failed_to("clear", folder);
    for entry in fs::read_dir(folder).with_whatever_context(failed)? {
        let entry = entry.with_whatever_context(failed)?;
        if entry.file_name().to_string_lossy().starts_with(STAGING) {
            // A compiler of the killed build may still be writing; the next build removes the rest.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

fn build(component: Component, go: &Go<'_>, staging: &Path, title: String) -> Result<PathBuf, Error> {
    let package = match component.source() {
        Source::Package(package) => package,
        Source::Documents { module, folder } => return documents(component, go, staging, module, folder),
    };
    let program = staging.join(component.name());
    let log = staging.join(format!("{}.log", component.name()));
    let mut command = go.command();
    if component.needs_c() {
        command.env("CGO_ENABLED", "1");
    }
    command.args([
        "build",
        "-trimpath",
        // Debug information is stripped anyway (-s -w); not generating it saves a fifth of the time.
        "-gcflags=all=-dwarf=false",
        "-tags",
        component.tags(),
        "-ldflags",
        &Component::ldflags(&package)?,
        "-o",
    ]);
    command.arg(&program).arg(package);
    let status = go.run(command, log.clone(), Some(Progress::start(title)))?;
    ensure_whatever!(
        status.success(),
        "failed to build {}: `go build` says\n{}",
        component.name(),
        tail(&log)
    );
    Ok(program)
}

/// Joins the YAML documents in a folder of a module, sorted by file name.
fn documents(
    component: Component,
    go: &Go<'_>,
    staging: &Path,
    module: &'static str,
    folder: &str,
) -> Result<PathBuf, Error> {
    let (path, log) = (staging.join(component.name()), staging.join(format!("{}.log", component.name())));
    let mut command = go.command();
    command.args(["mod", "download", "-json", module]);
    let status = go.run(command, log.clone(), None)?;
    let said = fs::read_to_string(&log).with_whatever_context(|_| failed_to("read", &log))?;
    let said: Option<Value> = serde_json::from_str(&said).ok().filter(|_| status.success());
    let found = said.as_ref().and_then(|said| said["Dir"].as_str()).with_whatever_context(|| {
        format!("failed to download {module}: `go mod download` says\n{}", tail(&log))
    })?;
    let folder = Path::new(found).join(folder);

    let failed = |_: &mut std::io::Error| failed_to("read", &folder);
    let files: Result<Vec<_>, _> = fs::read_dir(&folder).with_whatever_context(failed)?.collect();
    let mut files: Vec<_> =
        files.with_whatever_context(failed)?.into_iter().map(|file| file.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let mut documents = String::new();
    for file in &files {
        let text = fs::read_to_string(file).with_whatever_context(|_| failed_to("read", file))?;
        documents.push_str("---\n");
        documents.push_str(text.trim_start_matches("---\n"));
        documents.push('\n');
    }
    fs::write(&path, documents).with_whatever_context(|_| failed_to("write", &path))?;
    Ok(path)
}
