//! Programs that need no library of the machine they run on.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use lucid_e2e::Error;

use super::ROOT;

/// A profile of Cargo.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Profile {
    Release,
    Dev,
}

/// Builds the program of `package`, statically linked with glibc, into `folder`; gives its path.
///
/// A package is built alone: with others beside it, Cargo gives their common dependencies the features that any of them
/// asks for, and the program would depend on what else is built.
pub(crate) fn build(package: &str, profile: Profile, folder: &Path) -> Result<PathBuf, Error> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let (name, output) = match profile {
        Profile::Release => ("release", "release"),
        Profile::Dev => ("dev", "debug"),
    };
    let root = std::path::absolute(ROOT)?.canonicalize()?;
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let cargo_home = cargo_home.ok_or("neither CARGO_HOME nor HOME says where Cargo keeps its sources")?;

    // Where the sources lie is in panics' messages, and would make each machine's program another one.
    let places = [(folder, "/build"), (cargo_home.as_path(), "/cargo"), (root.as_path(), "/lucid")];
    let places = places.map(|(path, name)| format!("{}={name}", path.display()));
    let mut rust = vec!["-Ctarget-feature=+crt-static".to_owned()];
    rust.extend(places.iter().map(|place| format!("--remap-path-prefix={place}")));
    let c: Vec<_> = places.iter().map(|place| format!("-ffile-prefix-map={place}")).collect();

    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "build",
        "--locked",
        "--package",
        package,
        "--bin",
        package,
        "--profile",
        name,
        "--target",
        &target,
    ]);
    cargo.arg("--target-dir").arg(folder).current_dir(&root);
    // With `--target`, these are for the program alone, not for what builds it.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}"));
    cargo.env("CFLAGS", c.join(" ")).env("SOURCE_DATE_EPOCH", "0");
    if !cargo.status()?.success() {
        return Err(format!("failed to build {package}").into());
    }
    Ok(folder.join(target).join(output).join(package))
}
