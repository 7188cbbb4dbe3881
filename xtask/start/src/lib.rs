//! Packages that the checks need, read from `.ci/packages`.

use std::process::{Command, Stdio};

const LIST: &str = include_str!("../../../.ci/packages");

/// Variable set where every check must run.
const NEEDED: &str = "LUCID_NEED_ALL";

const RUSTUP: &str = "rustup:";

/// Debian packages that are installed together, or a component of Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package {
    /// Names separated by spaces; `rustup:NAME` for a component.
    pub names: &'static str,
    /// Shell command that succeeds if the package is installed.
    pub probe: &'static str,
    /// Purpose.
    pub purpose: &'static str,
}

impl Package {
    /// All packages.
    pub fn all() -> impl Iterator<Item = Self> {
        LIST.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let mut fields = line.split(" | ");
            Some(Self { names: fields.next()?, probe: fields.next()?, purpose: fields.next()? })
        })
    }

    /// Packages that are not installed.
    pub fn missing() -> Vec<Self> {
        Self::all().filter(|package| !package.is_installed()).collect()
    }

    fn is_installed(&self) -> bool {
        // By its path: PATH may lack it.
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", self.probe]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.status().is_ok_and(|status| status.success())
    }
}

/// Returns the command that installs packages, in one line.
pub fn install_command(packages: &[Package]) -> String {
    let (components, debian): (Vec<_>, Vec<_>) =
        packages.iter().map(|package| package.names).partition(|names| names.starts_with(RUSTUP));
    let debian = debian.join(" ");
    let components = components.join(" ").replace(RUSTUP, "");
    let commands =
        [("apt-get install --yes --no-install-recommends", debian), ("rustup component add", components)];
    let commands = commands.iter().filter(|(_, names)| !names.is_empty());
    commands.map(|(command, names)| format!("{command} {names}")).collect::<Vec<_>>().join(" && ")
}

/// Returns `true` if checks must not be skipped: `LUCID_NEED_ALL` has a value other than `0` and the empty string.
pub fn needs_all() -> bool {
    std::env::var_os(NEEDED).is_some_and(|value| !value.is_empty() && value != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_list_is_a_package() {
        assert_eq!(Package::all().count(), LIST.lines().filter(|line| !line.starts_with('#')).count());
        for package in Package::all() {
            assert!(
                [package.names, package.probe, package.purpose].iter().all(|text| !text.trim().is_empty())
            );
        }
    }

    #[test]
    fn the_contributing_page_has_the_list() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../CONTRIBUTING.md")).unwrap();
        let row = |package: Package| {
            let names = package.names.replace(RUSTUP, "");
            format!("| `{}` | {} |\n", names.replace(' ', "` `"), package.purpose)
        };
        let rows: String = Package::all().map(row).collect();
        assert!(page.contains(&rows), "expected in CONTRIBUTING.md:\n{rows}");
    }

    #[test]
    fn missing_packages_are_installed_by_one_line() {
        let package = |names, probe| Package { names, probe, purpose: "" };
        let [absent, present] = [package("a a-dev", "no-such-program"), package("b", "command -v cd")];
        assert_eq!([absent, present].map(|package| package.is_installed()), [false, true]);
        let component = package("rustup:clippy", "false");
        let line = "apt-get install --yes --no-install-recommends a a-dev b && rustup component add clippy";
        assert_eq!(install_command(&[absent, component, present]), line);
        assert_eq!(install_command(&[component]), "rustup component add clippy");
    }
}
