//! Builds of the programs with Go, into the cache folder.

use std::{
    env,
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    ptr,
    time::{Duration, Instant},
};

use serde_json::Value;
use snafu::{OptionExt as _, ResultExt as _, ensure_whatever, whatever};
use tokio::time::sleep;

use super::{
    Binaries, COMMANDS, Component, MODULES, Module, releases,
    settings::{self, CACHE},
};
use crate::{
    Error,
    error::failed_to,
    process::{self, Process, tail},
    say,
};

const STAGING: &str = ".build-";
const MODULE: &str = "module";
const POLL: Duration = Duration::from_millis(50);
const PROGRESS: Duration = Duration::from_secs(15);

const ALTERNATIVE: &str = "install it from https://go.dev/dl, or set KUBEBUILDER_ASSETS to a folder that \
     holds etcd and kube-apiserver (and kube-controller-manager, kube-scheduler, kubectl and the programs of a node where asked \
     for)";

pub(super) async fn missing(binaries: &Binaries, components: &[Component]) -> Result<(), Error> {
    for module in MODULES.into_iter().chain([binaries.kubernetes]) {
        let missing = || {
            let is_ours = |component: &Component| ptr::eq(binaries.module_of(*component), module);
            let ours = components.iter().copied().filter(is_ours);
            ours.filter(|component| !binaries.path(*component).exists()).collect::<Vec<_>>()
        };
        if missing().is_empty() {
            continue;
        }
        let folder = &*binaries.folder_of(module);
        fs::create_dir_all(folder).with_whatever_context(|_| failed_to("create", folder))?;
        let _lock = lock(&folder.join(".lock")).await?;
        let missing = missing();
        if missing.is_empty() {
            continue;
        }
        remove_leftovers(folder)?;
        let staging = tempfile::Builder::new().prefix(STAGING).tempdir_in(folder);
        let staging = staging.with_whatever_context(|_| failed_to("create a folder in", folder))?;
        let go = Go::find(module, staging.path()).await?;
        let names: Vec<_> = missing.iter().map(|component| component.name()).collect();
        say(format_args!(
            "building {} from source, once, which takes some five minutes on two cores, into {} ({CACHE})",
            names.join(", "),
            folder.display()
        ));
        for (index, component) in missing.iter().enumerate() {
            let path = binaries.path(*component);
            let file = staging.path().join(component.name());
            if *component == Component::CertManagerKinds {
                go.join_documents("github.com/cert-manager/cert-manager", component.source().2, &file)
                    .await?;
            } else {
                let title = format!("building {} ({} of {})", component.name(), index + 1, missing.len());
                go.build(*component, &file, &title).await?;
            }
            fs::rename(&file, &path).with_whatever_context(|_| failed_to("rename a program to", &path))?;
        }
    }
    Ok(())
}

/// Takes the lock. It is held until the file is closed, and so ends with the process.
async fn lock(path: &Path) -> Result<File, Error> {
    let failed = |_: &mut std::io::Error| failed_to("lock", path);
    // One of another user can be opened for reading only.
    let file = File::open(path).or_else(|_| File::create(path)).with_whatever_context(failed)?;
    let is_locked = || match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => Err(source).with_whatever_context(failed),
    };
    if !is_locked()? {
        say(format_args!("waiting for another build of the components ({} is locked)", path.display()));
        while !is_locked()? {
            sleep(POLL).await;
        }
    }
    Ok(file)
}

/// Removes leftovers of killed builds. No other build runs while this process holds the lock.
fn remove_leftovers(folder: &Path) -> Result<(), Error> {
    let entries = fs::read_dir(folder).with_whatever_context(|_| failed_to("clear", folder))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(STAGING) {
            // A compiler of the killed build may still be writing; the next build removes the rest.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

/// Writes the module to a folder where Go can build: the folder of this package may be absent or read-only.
fn write_module<'a>(
    scratch: &Path,
    mut files: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), Error> {
    let folder = scratch.join(MODULE);
    let written = files.try_for_each(|(path, text)| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&folder))?;
        fs::write(path, text)
    });
    written.with_whatever_context(|_| failed_to("write the Go module", &folder))
}

/// Finds `go` on `PATH`.
pub(super) fn go(module: &Module) -> Result<PathBuf, Error> {
    let needed = module.version("go")?;
    let path = env::var_os("PATH").unwrap_or_default();
    let mut candidates = env::split_paths(&path).map(|folder| folder.join("go"));
    candidates.find(|file| file.is_file()).with_whatever_context(|| {
        format!(
            "failed to find `go` on PATH: the test bed builds Kubernetes with Go {needed} or newer; {ALTERNATIVE}"
        )
    })
}

/// The Go toolchain, restricted to building one of our modules for this machine.
struct Go<'a> {
    program: PathBuf,
    module: &'static Module,
    /// `GOOS` and `GOARCH` of this machine, even if the environment selects another platform.
    platform: Option<[String; 2]>,
    scratch: &'a Path,
}

impl<'a> Go<'a> {
    /// Finds a recent enough Go.
    ///
    /// The version is queried inside the module, so that Go has selected the toolchain it would build with (`GOTOOLCHAIN`). An
    /// older Go that downloads the right one is accepted.
    async fn find(module: &'static Module, scratch: &'a Path) -> Result<Self, Error> {
        write_module(scratch, module.files())?;
        let (needed, program) = (module.version("go")?, go(module)?);
        let mut go = Self { program, module, platform: None, scratch };

        let mut command = go.command();
        command.args(["env", "GOVERSION", "GOHOSTOS", "GOHOSTARCH"]);
        let log = scratch.join("env.log");
        let status = go.run(command, &log, None).await?;
        let output = tail(&log);
        let old = |found: &str| {
            format!("failed to use `go`: {found}, but Go {needed} or newer is needed; {ALTERNATIVE}")
        };
        ensure_whatever!(status.success(), "{}", old(&output));
        // Download messages may precede the output.
        let [.., version, os, arch] = *output.lines().collect::<Vec<_>>() else {
            whatever!("{}", old(&output));
        };
        let found = old(&format!("its version is {version}"));
        ensure_whatever!(release(version) >= release(needed), "{found}");
        go.platform = Some([os, arch].map(str::to_owned));
        if module.is_generated() {
            go.require_release().await?;
        }
        Ok(go)
    }

    fn command(&self) -> Command {
        let mut command = process::ending_with_us(&self.program);
        settings::prepare(&mut command, self.scratch.join(MODULE));
        if self.module.is_generated() {
            // Adds the checksums of Kubernetes' own modules.
            command.env("GOFLAGS", "-mod=mod");
        }
        command.env("GOTMPDIR", self.scratch);
        if let Some([os, arch]) = &self.platform {
            command.env("GOOS", os).env("GOARCH", arch);
        }
        command
    }

    /// Runs Go to its end, with progress lines under `title`. Kills it when the future is dropped.
    async fn run(&self, command: Command, log: &Path, title: Option<&str>) -> Result<ExitStatus, Error> {
        let mut go = Process::start("go", command, log.to_owned()).whatever_context("failed to run `go`")?;
        let (begin, mut next) = (Instant::now(), Duration::ZERO);
        loop {
            let (time, status) = (begin.elapsed(), go.ended());
            if let Some(title) = title.filter(|_| time >= next || status.is_some()) {
                say(format_args!("{title}, {} s", time.as_secs()));
                next += PROGRESS;
            }
            if let Some(status) = status {
                return Ok(status);
            }
            sleep(POLL).await;
        }
    }

    async fn build(&self, component: Component, program: &Path, title: &str) -> Result<(), Error> {
        let (name, _, package) = component.source();
        let mut ldflags = "-s -w".to_owned();
        if package.starts_with(COMMANDS) {
            // Built outside its own repository, a program does not know its version and would report v0.0.0.
            let version = self.module.version("k8s.io/kubernetes")?;
            let minor = self.module.minor().unwrap_or_default().trim_start_matches("1.");
            for (variable, value) in [("gitVersion", version), ("gitMajor", "1"), ("gitMinor", minor)] {
                ldflags.push_str(&format!(" -X k8s.io/component-base/version.{variable}={value}"));
            }
        }
        let tags = match component {
            // Unused snapshotters; the first needs kernel headers.
            Component::Containerd => "no_btrfs,no_devmapper,no_zfs",
            Component::Runc => "seccomp",
            _ => "",
        };
        let mut command = self.command();
        if component == Component::Runc {
            // It enters namespaces in C code before Go's runtime starts threads, and links libseccomp. All others are static.
            command.env("CGO_ENABLED", "1");
        }
        command.arg("build").args(settings::FLAGS).args(["-tags", tags]);
        command.args(["-ldflags", &ldflags, "-o"]).arg(program).arg(package);
        let log = self.scratch.join(format!("{name}.log"));
        let status = self.run(command, &log, Some(title)).await?;
        ensure_whatever!(status.success(), "failed to build {name}: `go build` says\n{}", tail(&log));
        Ok(())
    }

    /// Downloads a required module, and returns its folder.
    async fn download(&self, module: &str) -> Result<PathBuf, Error> {
        let log = self.scratch.join("download.log");
        let mut command = self.command();
        command.args(["mod", "download", "-json", module]);
        let status = self.run(command, &log, None).await?;
        let text = fs::read_to_string(&log).with_whatever_context(|_| failed_to("read", &log))?;
        let module_info: Option<Value> = serde_json::from_str(&text).ok().filter(|_| status.success());
        let found = module_info.as_ref().and_then(|info| info["Dir"].as_str());
        found.map(PathBuf::from).with_whatever_context(|| {
            format!("failed to download {module}: `go mod download` says\n{}", tail(&log))
        })
    }

    /// Replaces the generated module by one with the requirements and checksums of the release.
    async fn require_release(&self) -> Result<(), Error> {
        let release = self.download("k8s.io/kubernetes").await?;
        let read = |name| {
            let path = release.join(name);
            fs::read_to_string(&path).with_whatever_context(|_| failed_to("read", &path))
        };
        let go_mod = releases::go_mod(&read("go.mod")?, self.module.version("k8s.io/kubernetes")?);
        let go_sum = self.module.go_sum.to_owned() + &read("go.sum")?;
        write_module(self.scratch, [("go.mod", &*go_mod), ("go.sum", &go_sum)].into_iter())
    }

    /// Joins the YAML documents in a folder of a required module into one file, sorted by file name.
    async fn join_documents(&self, module: &'static str, folder: &str, file: &Path) -> Result<(), Error> {
        let folder = self.download(module).await?.join(folder);
        let join = || -> std::io::Result<()> {
            let entries = fs::read_dir(&folder)?.collect::<Result<Vec<_>, _>>()?;
            let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
            paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
            paths.sort();
            let mut documents = String::new();
            for path in paths {
                let text = fs::read_to_string(path)?;
                documents.extend(["---\n", text.trim_start_matches("---\n"), "\n"]);
            }
            fs::write(file, documents)
        };
        join().with_whatever_context(|_| failed_to("join the documents in", &folder))
    }
}

/// Parses `go1.26.8`, `1.26.0` or `go1.26rc1` (third number 0).
fn release(version: &str) -> [u32; 3] {
    let mut numbers = version
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .split('.')
        .map(|part| part.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()));
    [(); 3].map(|()| numbers.next().flatten().unwrap_or(0))
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
