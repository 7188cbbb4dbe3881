//! Environment variables that reach the build of a published program.
//!
//! Nearly all are removed: flags and profiles for Cargo, flags for the C compiler, settings of build scripts. Each could change
//! the program, and there are too many for a deny list.

use std::ffi::OsStr;

/// Paths of compilers and of Cargo's downloads, and the number of parallel jobs.
const KEPT: &[&str] = &["CARGO_BUILD_JOBS", "CARGO_HOME", "CC", "HOME", "PATH", "TMPDIR"];

/// Prefixes for access to registries, the rustup toolchain and progress output.
const KEPT_GROUPS: &[&str] = &[
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTRIES_",
    "CARGO_REGISTRY_",
    "CARGO_TERM_",
    "GIT_",
    "RUSTUP_",
    "SSH_",
    "SSL_CERT_",
];

/// Uppercase, and lowercase as in curl.
const PROXIES: &[&str] = &["ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];

/// Returns `true` if the build gets the variable `name`.
pub(crate) fn is_kept(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    KEPT.contains(&name)
        || KEPT_GROUPS.iter().any(|group| name.starts_with(group))
        || PROXIES.iter().any(|proxy| proxy.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_tools_and_registries_is_kept_and_what_changes_a_program_is_not() {
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
