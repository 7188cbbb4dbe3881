//! The Go toolchain, restricted to building one of our modules for this machine.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Duration,
};

use snafu::{OptionExt as _, ResultExt as _, ensure_whatever, whatever};

use super::{ALTERNATIVE, given_up::GivenUp, module::Module, progress::Progress};
use crate::Error;
use crate::process::{self, Process, tail};

const POLL: Duration = Duration::from_millis(50);

/// Variables that users may have set for their own work. Settings of the module proxy and the caches are kept.
const UNSET: [&str; 8] =
    ["GOEXPERIMENT", "GOFIPS140", "GO386", "GOAMD64", "GOARM", "GOARM64", "GOPPC64", "GORISCV64"];

pub(super) struct Go<'a> {
    program: PathBuf,
    module: &'static Module,
    /// Platform of this machine, even if the environment selects another.
    platform: Option<Platform>,
    scratch: &'a Path,
    given_up: &'a GivenUp,
}

/// Platform in Go's terms.
struct Platform {
    os: String,
    arch: String,
}

impl<'a> Go<'a> {
    /// Finds a recent enough Go, which writes its logs and temporary files to `scratch`.
    ///
    /// The version is queried inside the module, so that Go has selected the toolchain it would build with (`GOTOOLCHAIN`). An
    /// older Go that downloads the right one is accepted.
    pub(super) fn find(
        module: &'static Module,
        scratch: &'a Path,
        given_up: &'a GivenUp,
    ) -> Result<Self, Error> {
        let folder = module.folder;
        ensure_whatever!(
            Path::new(folder).join("go.mod").is_file(),
            "failed to find the Go module {folder}: the test bed builds only in the checkout it was compiled in"
        );
        let needed = module.version("go")?;
        let path = env::var_os("PATH").unwrap_or_default();
        let mut candidates = env::split_paths(&path).map(|folder| folder.join("go"));
        let program = candidates.find(|file| file.is_file()).with_whatever_context(|| {
            format!(
                "failed to find `go` on PATH: the test bed builds Kubernetes with Go {needed} or newer; {ALTERNATIVE}"
            )
        })?;
        let mut go = Self { program, module, platform: None, scratch, given_up };

        let mut command = go.command();
        command.args(["env", "GOVERSION", "GOHOSTOS", "GOHOSTARCH"]);
        let log = scratch.join("env.log");
        let status = go.run(command, log.clone(), None)?;
        let output = tail(&log);
        let old = |found: &str| {
            format!("failed to use `go`: {found}, but Go {needed} or newer is needed; {ALTERNATIVE}")
        };
        ensure_whatever!(status.success(), "{}", old(&output));
        // Download messages may precede the output.
        let [.., version, os, arch] = *output.lines().collect::<Vec<_>>() else {
            whatever!("{}", old(&output));
        };
        ensure_whatever!(
            release(version) >= release(needed),
            "{}",
            old(&format!("its version is {version}"))
        );
        go.platform = Some(Platform { os: os.to_owned(), arch: arch.to_owned() });
        Ok(go)
    }

    pub(super) fn command(&self) -> Command {
        let mut command = process::ending_with_us(&self.program);
        command.current_dir(self.module.folder);
        command.env("GOWORK", "off").env("GO111MODULE", "on").env("GOFLAGS", "-mod=readonly");
        command.env("CGO_ENABLED", "0").env("GOTMPDIR", self.scratch);
        for variable in UNSET {
            command.env_remove(variable);
        }
        if let Some(Platform { os, arch }) = &self.platform {
            command.env("GOOS", os).env("GOARCH", arch);
        }
        command
    }

    /// Runs Go to its end, or kills it when the build is cancelled.
    pub(super) fn run(
        &self,
        command: Command,
        log: PathBuf,
        mut progress: Option<Progress>,
    ) -> Result<ExitStatus, Error> {
        let mut go = Process::start("go", command, log).whatever_context("failed to run `go`")?;
        loop {
            if let Some(status) = go.ended() {
                return Ok(status);
            }
            if let Some(progress) = &mut progress {
                progress.tick();
            }
            self.given_up.pause(POLL)?;
        }
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
