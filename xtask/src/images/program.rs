//! Static builds of programs, independent of the libraries on this machine.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use lucid_e2e::Error;

use crate::command::{self, ROOT, metadata, succeed};

/// A Cargo profile.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    Release,
    Dev,
}

impl Profile {
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Release => "target/images",
            Self::Dev => "target/images/dev",
        }
    }
}

/// Returns `true` if the build of a published program gets the environment variable `name`: paths of compilers and of Cargo's
/// downloads, and access to registries. Most others could change the program, and there are too many for a deny list.
fn is_kept(name: &OsStr) -> bool {
    const NAMES: &str = "CARGO_BUILD_JOBS CARGO_HOME CC HOME PATH TMPDIR";
    const PREFIXES: &str =
        "CARGO_HTTP_ CARGO_NET_ CARGO_REGISTRIES_ CARGO_REGISTRY_ CARGO_TERM_ GIT_ RUSTUP_ SSH_ SSL_CERT_";
    // Uppercase, and lowercase as in curl.
    const PROXIES: &str = "ALL_PROXY HTTP_PROXY HTTPS_PROXY NO_PROXY";
    let Some(name) = name.to_str() else { return false };
    NAMES.split(' ').any(|kept| kept == name)
        || PREFIXES.split(' ').any(|prefix| name.starts_with(prefix))
        || PROXIES.split(' ').any(|proxy| proxy.eq_ignore_ascii_case(name))
}

/// Builds the programs of `packages` from the checkout `sources`, each statically linked with glibc. Returns their folder.
pub(crate) fn build(
    packages: &[&str],
    profile: Profile,
    sources: &Path,
    folder: &Path,
) -> Result<PathBuf, Error> {
    let build = folder.join("build");
    if profile == Profile::Dev {
        dev(packages, sources, &build)?;
        return Ok(build.join("debug"));
    }
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let cargo_home = cargo_home.ok_or("CARGO_HOME or HOME is needed")?;
    let cargo_home = std::path::absolute(cargo_home)?;
    // Packages are built one at a time. Otherwise Cargo unifies the features of common dependencies, and the program would depend
    // on the other packages.
    for package in packages {
        let mut cargo = release(package, sources, &build, &cargo_home, std::env::vars_os());
        let status = cargo.status().map_err(|error| format!("failed to run Cargo: {error}"))?;
        // The message omits the command: its environment may contain tokens of registries.
        if !status.success() {
            return Err(format!("failed to build {package}: {status}").into());
        }
    }
    Ok(build.join(target()).join("release"))
}

/// Target of published programs.
pub(crate) fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Command that builds one package with the release settings. `variables` is the environment of this process.
fn release(
    package: &str,
    sources: &Path,
    build: &Path,
    cargo_home: &Path,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Command {
    // Panic messages contain source paths, which would make the program depend on the machine. The last matching prefix counts.
    let paths = [(sources, "/lucid"), (cargo_home, "/cargo"), (build, "/build")];
    let paths = paths.map(|(path, name)| format!("{}={name}", path.display()));
    let mut rust = vec!["-Ctarget-feature=+crt-static".to_owned()];
    rust.extend(paths.iter().map(|path| format!("--remap-path-prefix={path}")));
    let c: Vec<_> = paths.iter().map(|path| quoted(&format!("-ffile-prefix-map={path}"))).collect();

    let mut cargo = cargo(sources, build);
    cargo.env_clear().envs(variables.filter(|(name, _)| is_kept(name)));
    cargo.env("CARGO_BUILD_BUILD_DIR", build);
    cargo.args(["--package", package, "--bin", package, "--release", "--target", &target()]);
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

/// Builds the programs at once, for tests: with the features of the workspace, so that `cargo test` has already built their
/// dependencies.
fn dev(packages: &[&str], sources: &Path, build: &Path) -> Result<(), Error> {
    let wrapper = Path::new(ROOT).canonicalize()?.join("xtask/src/images/static-programs.sh");
    let metadata = metadata()?;
    let shared = metadata["build_directory"].as_str().or(metadata["target_directory"].as_str());
    let mut cargo = cargo(sources, build);
    cargo
        .args(packages.iter().flat_map(|package| ["--bin", package]))
        .env("RUSTC_WORKSPACE_WRAPPER", wrapper);
    cargo.env("CARGO_BUILD_BUILD_DIR", shared.ok_or("cargo metadata has no build_directory")?);
    succeed(&mut cargo)
}

fn cargo(sources: &Path, build: &Path) -> Command {
    let mut cargo = command::cargo();
    cargo.current_dir(sources).args(["build", "--locked", "--target-dir"]).arg(build);
    cargo
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_published_program_is_built_with_our_flags_only() {
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
        let set = set.map(|name| (name.into(), "set".into())).into_iter();
        let (sources, build) = (Path::new("/home/me/two words"), Path::new("/it's/here"));
        let command = release("lucid-init", sources, build, Path::new("/cargo-home"), set);
        assert_eq!(command.get_current_dir(), Some(sources));
        let variables: BTreeMap<_, _> =
            command.get_envs().map(|(name, value)| (name.to_str().unwrap(), value.unwrap())).collect();
        let is = |name: &str, value: &str| assert_eq!(variables[name], value, "{name}");
        is("PATH", "set");
        is("CC", "set");
        is("HTTPS_PROXY", "set");
        is("CARGO_REGISTRIES_OWN_TOKEN", "set");
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
        is("SOURCE_DATE_EPOCH", "0");
        assert_eq!(variables.len(), 10, "{variables:?}");
    }

    #[test]
    fn variables_that_change_a_program_are_dropped() {
        for kept in [
            "PATH",
            "CC",
            "CARGO_HOME",
            "CARGO_NET_OFFLINE",
            "CARGO_HTTP_CAINFO",
            "CARGO_REGISTRIES_OWN_INDEX",
            "CARGO_REGISTRIES_CRATES_IO_PROTOCOL",
            "RUSTUP_TOOLCHAIN",
            "https_proxy",
            "HTTPS_PROXY",
        ] {
            assert!(is_kept(OsStr::new(kept)), "{kept}");
        }
        for left in [
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_PROFILE_RELEASE_OPT_LEVEL",
            "CARGO_BUILD_RUSTFLAGS",
            "CARGO_BUILD_RUSTC_WRAPPER",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER",
            "CARGO_UNSTABLE_TRIM_PATHS",
            "RUSTC",
            "RUSTC_BOOTSTRAP",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTFLAGS",
            "AWS_LC_SYS_NO_ASM",
            "AWS_LC_SYS_CFLAGS",
            "CC_x86_64-unknown-linux-gnu",
            "CFLAGS_x86_64-unknown-linux-gnu",
            "CFLAGS_x86_64_unknown_linux_gnu",
            "TARGET_CFLAGS",
            "HOST_CFLAGS",
            "CFLAGS",
            "CPPFLAGS",
            "CXXFLAGS",
            "LDFLAGS",
            "ARFLAGS",
            "CPATH",
            "C_INCLUDE_PATH",
            "LIBRARY_PATH",
            "GCC_EXEC_PREFIX",
            "K8S_OPENAPI_ENABLED_VERSION",
        ] {
            assert!(!is_kept(OsStr::new(left)), "{left}");
        }
    }
}
