//! Programs that need no library of the machine they run on.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use flate2::Compression;
use lucid_e2e::Error;

use super::elf;
use crate::command::{self, ROOT, succeed};

/// A profile of Cargo.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    Release,
    Dev,
}

impl Profile {
    /// Where its images are put.
    pub(crate) fn folder(self) -> &'static Path {
        Path::new(match self {
            Self::Release => "target/images",
            Self::Dev => "target/images/dev",
        })
    }

    /// How hard to try to make layers small.
    pub(crate) fn compression(self) -> Compression {
        match self {
            Self::Release => Compression::default(),
            Self::Dev => Compression::fast(),
        }
    }
}

/// Where programs are put, and what is compiled on the way.
pub(crate) struct Place<'p> {
    pub(crate) programs: &'p Path,
    /// With what is there nothing is compiled again.
    pub(crate) intermediate: &'p Path,
}

/// Builds the programs of `packages`, each statically linked with glibc; gives their paths, in order.
pub(crate) fn build(packages: &[&str], profile: Profile, place: &Place<'_>) -> Result<Vec<PathBuf>, Error> {
    let folder = match profile {
        Profile::Release => {
            packages.iter().try_for_each(|package| release(package, place))?;
            place.programs.join(target()).join("release")
        }
        Profile::Dev => {
            dev(place)?;
            place.programs.join("debug")
        }
    };
    let programs: Vec<_> = packages.iter().map(|package| folder.join(package)).collect();
    for program in &programs {
        let wanted = elf::needed(std::slice::from_ref(program))?;
        if !wanted.is_empty() {
            return Err(
                format!("{} needs {wanted:?}, and an image has none of them", program.display()).into()
            );
        }
    }
    Ok(programs)
}

fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Builds one package, as it is published.
///
/// It is built alone: with others beside it, Cargo gives their common dependencies the features that any of them asks for,
/// and the program would depend on what else is built.
fn release(package: &str, place: &Place<'_>) -> Result<(), Error> {
    let root = std::path::absolute(ROOT)?.canonicalize()?;
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let cargo_home = cargo_home.ok_or("neither CARGO_HOME nor HOME says where Cargo keeps its sources")?;
    let cargo_home = std::path::absolute(cargo_home)?;

    // Where the sources lie is in panics' messages, and would make each machine's program another one. Of those that
    // match, the last one counts.
    let places =
        [(root.as_path(), "/lucid"), (cargo_home.as_path(), "/cargo"), (place.intermediate, "/build")];
    let places = places.map(|(path, name)| format!("{}={name}", path.display()));
    let mut rust = vec!["-Ctarget-feature=+crt-static".to_owned()];
    rust.extend(places.iter().map(|place| format!("--remap-path-prefix={place}")));
    let c: Vec<_> = places.iter().map(|place| format!("-ffile-prefix-map={place}")).collect();

    let mut cargo = cargo(place);
    cargo.args(["--package", package, "--bin", package, "--release", "--target", &target()]);
    // With `--target`, these are for the program alone, not for what builds it.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}"));
    cargo.env("CFLAGS", c.join(" ")).env("SOURCE_DATE_EPOCH", "0");
    // It would be compiled in other units.
    cargo.env("CARGO_INCREMENTAL", "0");
    succeed(&mut cargo)
}

/// Builds all programs at once, for tests: what they depend on is what `cargo test` has built already.
fn dev(place: &Place<'_>) -> Result<(), Error> {
    let wrapper = Path::new(ROOT).canonicalize()?.join("xtask/src/images/static-programs.sh");
    let mut cargo = cargo(place);
    cargo.args(["--workspace", "--bins"]).env("RUSTC_WORKSPACE_WRAPPER", wrapper);
    succeed(&mut cargo)
}

fn cargo(place: &Place<'_>) -> Command {
    let mut cargo = command::cargo();
    cargo.args(["build", "--locked"]);
    cargo.arg("--target-dir").arg(place.programs).env("CARGO_BUILD_BUILD_DIR", place.intermediate);
    cargo
}
