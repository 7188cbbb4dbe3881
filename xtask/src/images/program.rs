//! Static builds of programs, independent of the libraries on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use flate2::Compression;
use lucid_e2e::Error;

use super::{elf, environment};
use crate::command::{self, ROOT, succeed};

/// A Cargo profile.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    Release,
    Dev,
}

impl Profile {
    /// Output folder for images of this profile.
    pub(crate) fn folder(self) -> &'static Path {
        Path::new(match self {
            Self::Release => "target/images",
            Self::Dev => "target/images/dev",
        })
    }

    /// Compression level of layers.
    pub(crate) fn compression(self) -> Compression {
        match self {
            Self::Release => Compression::default(),
            Self::Dev => Compression::fast(),
        }
    }
}

/// Absolute paths of the inputs and outputs of a build.
pub(crate) struct Place<'p> {
    /// Root folder of the workspace, or of a copy of it.
    pub(crate) sources: &'p Path,
    pub(crate) programs: &'p Path,
    /// Intermediate artifacts, reused by later builds.
    pub(crate) intermediate: &'p Path,
}

/// Builds the programs of `packages`, each statically linked with glibc. Returns their paths, in order.
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

/// Builds one package with the release settings.
///
/// Packages are built one at a time. Otherwise Cargo unifies the features of common dependencies, and the program would depend
/// on the other packages.
fn release(package: &str, place: &Place<'_>) -> Result<(), Error> {
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let cargo_home = cargo_home.ok_or("neither CARGO_HOME nor HOME says where Cargo keeps its sources")?;
    let cargo_home = std::path::absolute(cargo_home)?;
    let variables = std::env::vars_os().map(|(name, _)| name);
    let mut cargo = release_command(package, place, &cargo_home, variables);
    let status = cargo.status().map_err(|error| format!("failed to run Cargo: {error}"))?;
    // The message omits the command: with all removed variables it would be unreadable.
    if status.success() { Ok(()) } else { Err(format!("failed to build {package}: {status}").into()) }
}

/// `variables` are the names of this process' environment variables.
fn release_command(
    package: &str,
    place: &Place<'_>,
    cargo_home: &Path,
    variables: impl Iterator<Item = OsString>,
) -> Command {
    // Panic messages contain source paths, which would make the program depend on the machine. The last matching prefix counts.
    let places = [(place.sources, "/lucid"), (cargo_home, "/cargo"), (place.intermediate, "/build")];
    let places = places.map(|(path, name)| format!("{}={name}", path.display()));
    let mut rust = vec!["-Ctarget-feature=+crt-static".to_owned()];
    rust.extend(places.iter().map(|place| format!("--remap-path-prefix={place}")));
    let c: Vec<_> = places.iter().map(|place| quoted(&format!("-ffile-prefix-map={place}"))).collect();

    let mut cargo = cargo(place);
    for variable in variables.filter(|variable| !environment::is_kept(variable)) {
        cargo.env_remove(variable);
    }
    cargo.args(["--package", package, "--bin", package, "--release", "--target", &target()]);
    cargo.env("CARGO_BUILD_BUILD_DIR", place.intermediate);
    // With `--target`, these apply to the program only, not to build scripts.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}"));
    cargo.env("CFLAGS", c.join(" ")).env("CC_SHELL_ESCAPED_FLAGS", "1").env("SOURCE_DATE_EPOCH", "0");
    // Incremental compilation would change the codegen units.
    cargo.env("CARGO_INCREMENTAL", "0");
    cargo
}

/// Quotes one word for a shell: a path may contain spaces.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Builds all programs at once, for tests: `cargo test` has already built their dependencies.
fn dev(place: &Place<'_>) -> Result<(), Error> {
    let wrapper = Path::new(ROOT).canonicalize()?.join("xtask/src/images/static-programs.sh");
    let mut cargo = cargo(place);
    cargo.args(["--workspace", "--bins"]).env("RUSTC_WORKSPACE_WRAPPER", wrapper);
    cargo.env("CARGO_BUILD_BUILD_DIR", place.intermediate);
    succeed(&mut cargo)
}

fn cargo(place: &Place<'_>) -> Command {
    let mut cargo = command::cargo();
    cargo.current_dir(place.sources).args(["build", "--locked"]);
    cargo.arg("--target-dir").arg(place.programs);
    cargo
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_published_program_is_built_with_flags_of_ours_alone() {
        let place = Place {
            sources: Path::new("/home/me/two words"),
            programs: Path::new("/programs"),
            intermediate: Path::new("/it's/here"),
        };
        let set = [
            "PATH",
            "CC",
            "HTTPS_PROXY",
            "CARGO_REGISTRIES_OWN_TOKEN",
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_BUILD_BUILD_DIR",
            "CARGO_INCREMENTAL",
            "RUSTFLAGS",
            "RUSTC_WRAPPER",
            "AWS_LC_SYS_NO_ASM",
            "CFLAGS",
            "CFLAGS_x86_64_unknown_linux_gnu",
            "TARGET_CFLAGS",
        ];
        let set = set.map(OsString::from).into_iter();
        let command = release_command("lucid-init", &place, Path::new("/cargo-home"), set);
        assert_eq!(command.get_current_dir(), Some(place.sources));
        let changed: BTreeMap<_, _> =
            command.get_envs().map(|(name, value)| (name.to_str().unwrap(), value)).collect();
        let removed: Vec<_> =
            changed.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| *name).collect();
        assert_eq!(
            removed,
            [
                "AWS_LC_SYS_NO_ASM",
                "CARGO_PROFILE_RELEASE_LTO",
                "CFLAGS_x86_64_unknown_linux_gnu",
                "RUSTC_WRAPPER",
                "RUSTFLAGS",
                "TARGET_CFLAGS"
            ]
        );
        let is = |name: &str, value: &str| assert_eq!(changed[name], Some(OsStr::new(value)), "{name}");
        is("CARGO_BUILD_BUILD_DIR", "/it's/here");
        is("CARGO_INCREMENTAL", "0");
        is(
            "CARGO_ENCODED_RUSTFLAGS",
            "-Ctarget-feature=+crt-static\u{1f}--remap-path-prefix=/home/me/two words=/lucid\u{1f}\
             --remap-path-prefix=/cargo-home=/cargo\u{1f}--remap-path-prefix=/it's/here=/build",
        );
        is(
            "CFLAGS",
            "'-ffile-prefix-map=/home/me/two words=/lucid' '-ffile-prefix-map=/cargo-home=/cargo' \
             '-ffile-prefix-map=/it'\\''s/here=/build'",
        );
        is("CC_SHELL_ESCAPED_FLAGS", "1");
    }
}
