//! Builds the measured programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lucid_e2e::Error;
use serde::de::DeserializeOwned;

use crate::command::{ROOT, cargo, succeed};

/// Builds one package of bench/ alone, so that feature unification does not change it, and returns the path of its program.
pub(super) fn build(package: &str) -> Result<PathBuf, Error> {
    build_in("bench/Cargo.toml", &folder(), package)
}

/// Path of a program of bench/.
pub(super) fn program(name: &str) -> PathBuf {
    folder().join("release").join(name)
}

/// Builds one of Lucid's programs with the release settings.
pub(crate) fn build_own(package: &str) -> Result<PathBuf, Error> {
    build_in("Cargo.toml", &Path::new(ROOT).join("target"), package)
}

fn build_in(workspace: &str, folder: &Path, package: &str) -> Result<PathBuf, Error> {
    eprintln!("bench: building {package}");
    let mut cargo = cargo();
    cargo.args(["build", "--quiet", "--release", "--locked", "--package", package]);
    cargo.args(["--manifest-path", workspace, "--target-dir"]).arg(folder);
    succeed(&mut cargo)?;
    Ok(folder.join("release").join(package))
}

/// Builds the webhook server on controller-runtime, and returns the path of its program.
pub(super) fn build_controller_runtime() -> Result<PathBuf, Error> {
    eprintln!("bench: building controller-runtime");
    let program = folder().join("peers/controller-runtime");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(".").env("CGO_ENABLED", "0");
    go.env("GOFLAGS", "-mod=readonly").env("GOWORK", "off");
    succeed(go.current_dir(Path::new(ROOT).join("bench/peers/controller-runtime")))?;
    Ok(program)
}

fn folder() -> PathBuf {
    Path::new(ROOT).join("target/bench")
}

/// Runs a program that prints its figures as JSON.
pub(super) fn figures<T: DeserializeOwned>(command: &mut Command) -> Result<T, Error> {
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// PEM files.
pub(super) struct Certificate {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

impl Certificate {
    /// Generates a key and a certificate for `localhost`.
    pub(super) fn generate() -> Result<Self, Error> {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let certificate = Self { cert: folder().join("tls.crt"), key: folder().join("tls.key") };
        fs::write(&certificate.cert, pair.cert.pem())?;
        fs::write(&certificate.key, pair.signing_key.serialize_pem())?;
        Ok(certificate)
    }
}
