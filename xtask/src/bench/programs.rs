//! The measured programs: builds and processes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use lucid_e2e::Error;

use crate::command::{ROOT, cargo, succeed};

/// Core of the measured process. The load generator has the other one.
pub(super) const SERVER_CORE: &str = "0";
pub(super) const LOAD_CORE: &str = "1";

pub(super) const BENCH: &str = "bench/Cargo.toml";
pub(super) const OWN: &str = "Cargo.toml";

/// Builds one package of bench/ alone, so that feature unification does not change it, and returns the path of its program.
pub(super) fn build(package: &str) -> Result<PathBuf, Error> {
    build_in(BENCH, &folder(), "release", package)
}

pub(crate) fn build_own(package: &str) -> Result<PathBuf, Error> {
    build_in(OWN, &target(), "release", package)
}

/// Builds a package with another profile, beside Lucid's programs, whose compiled dependencies it shares.
pub(super) fn build_as(profile: &str, workspace: &str, package: &str) -> Result<PathBuf, Error> {
    build_in(workspace, &target(), profile, package)
}

fn build_in(workspace: &str, folder: &Path, profile: &str, package: &str) -> Result<PathBuf, Error> {
    eprintln!("bench: building {package}");
    let mut cargo = cargo();
    cargo.args(["build", "--quiet", "--locked", "--profile", profile, "--package", package]);
    cargo.args(["--manifest-path", workspace, "--target-dir"]).arg(folder);
    succeed(&mut cargo)?;
    Ok(folder.join(if profile == "dev" { "debug" } else { profile }).join(package))
}

fn target() -> PathBuf {
    Path::new(ROOT).join("target")
}

pub(super) fn build_controller_runtime() -> Result<PathBuf, Error> {
    eprintln!("bench: building controller-runtime");
    let program = folder().join("peers/controller-runtime");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(".").env("CGO_ENABLED", "0");
    go.env("GOFLAGS", "-mod=readonly").env("GOWORK", "off");
    succeed(go.current_dir(Path::new(ROOT).join("bench/peers/controller-runtime")))?;
    Ok(program)
}

pub(super) fn folder() -> PathBuf {
    Path::new(ROOT).join("target/bench")
}

/// A process on one core, killed on drop and when this process ends.
pub(super) struct Pinned {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Pinned {
    /// Starts a program; `configure` completes its command line.
    pub(super) fn start(
        core: &str,
        program: &Path,
        configure: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<Self, Error> {
        let mut command = lucid_e2e::command("taskset");
        command.args(["--cpu-list", core]).arg(program);
        let command = configure(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let input = child.stdin.take().ok_or("a process without standard input")?;
        let output = child.stdout.take().ok_or("a process without standard output")?;
        Ok(Self { child, input, output: BufReader::new(output) })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn ended(&mut self) -> Result<bool, Error> {
        Ok(self.child.try_wait()?.is_some())
    }

    pub(super) fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(format!("a process ended too early: {}", self.child.wait()?).into());
        }
        Ok(line.trim_end().to_owned())
    }

    pub(super) fn order(&mut self, order: &str) -> Result<(), Error> {
        writeln!(self.input, "{order}")?;
        Ok(self.input.flush()?)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) struct Certificate {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

impl Certificate {
    /// Generates a key and a certificate for `localhost`.
    pub(super) fn generate() -> Result<Self, Error> {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let certificate = Self { cert: folder().join("tls.crt"), key: folder().join("tls.key") };
        fs::create_dir_all(folder())?;
        fs::write(&certificate.cert, pair.cert.pem())?;
        fs::write(&certificate.key, pair.signing_key.serialize_pem())?;
        Ok(certificate)
    }
}
