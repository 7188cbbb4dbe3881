//! Builds the measured programs and reports their versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lucid_e2e::Error;
use serde_json::{Map, Value};

use crate::command::{ROOT, cargo, succeed};
use crate::report;

/// Rust packages named in a report, and the Go module.
const CRATES: [&str; 7] = ["axum", "hyper", "kube-core", "rustls", "serde_json", "tokio", "aws-lc-rs"];
const MODULE: &str = "sigs.k8s.io/controller-runtime";

/// Paths of the benchmark programs.
pub(super) struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Builds all programs. Each Rust package is built alone, so that feature unification does not change it.
    pub(super) fn build() -> Result<Self, Error> {
        let Self { folder } =
            Self::build_only(&["bench-load", "bench-lucid", "bench-bare", "bench-axum-kube"])?;
        eprintln!("bench: building controller-runtime");
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(folder.join("peers").join("controller-runtime")).arg(".");
        go.env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=readonly").env("GOWORK", "off");
        succeed(go.current_dir(Path::new(ROOT).join("bench/peers/controller-runtime")))?;
        Ok(Self { folder })
    }

    /// Builds only these Rust packages.
    pub(super) fn build_only(packages: &[&str]) -> Result<Self, Error> {
        for package in packages {
            build(package)?;
        }
        Ok(Self { folder: folder() })
    }

    pub(super) fn rust(&self, package: &str) -> PathBuf {
        rust(&self.folder, package)
    }

    pub(super) fn go(&self, name: &str) -> PathBuf {
        self.folder.join("peers").join(name)
    }

    /// Generates a key and a certificate for `localhost`.
    pub(super) fn certificate(&self) -> Result<Certificate, Error> {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let certificate = Certificate { cert: self.folder.join("tls.crt"), key: self.folder.join("tls.key") };
        fs::write(&certificate.cert, pair.cert.pem())?;
        fs::write(&certificate.key, pair.signing_key.serialize_pem())?;
        Ok(certificate)
    }
}

/// Builds one Rust package alone and returns the path of its program.
pub(super) fn build(package: &str) -> Result<PathBuf, Error> {
    build_in("bench/Cargo.toml", &folder(), package)
}

/// Path of another program of a package built by [`build`].
pub(super) fn program(name: &str) -> PathBuf {
    rust(&folder(), name)
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
    Ok(rust(folder, package))
}

fn folder() -> PathBuf {
    Path::new(ROOT).join("target/bench")
}

fn rust(folder: &Path, package: &str) -> PathBuf {
    folder.join("release").join(package)
}

/// PEM files.
pub(super) struct Certificate {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

/// Versions of the measured software, by name.
pub(super) fn versions() -> Result<Map<String, Value>, Error> {
    let mut versions = report::versions("bench/Cargo.lock", &CRATES)?;
    let module = fs::read_to_string(Path::new(ROOT).join("bench/peers/controller-runtime/go.mod"))?;
    let version = module.split_once(MODULE).and_then(|(_, rest)| rest.split_whitespace().next());
    versions.insert("controller-runtime".to_owned(), version.unwrap_or("unknown").into());
    versions.insert("go".to_owned(), report::output("go", &["env", "GOVERSION"]).into());
    Ok(versions)
}
