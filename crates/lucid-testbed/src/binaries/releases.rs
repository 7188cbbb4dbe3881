//! Minor versions of Kubernetes, and the Go modules generated for them.

use super::{KUBERNETES, Module};

/// A module without a folder. Until [`go_mod`] replaces its go.mod, it only downloads the release. The checksum pins the
/// release with its go.sum, and so every dependency except the modules of Kubernetes itself, which Go compares with its
/// checksum database.
macro_rules! release {
    ($version:literal, $checksum:literal) => {
        Module {
            folder: "",
            go_mod: concat!(
                "module lucid.computing/testbed\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v",
                $version,
                "\n"
            ),
            go_sum: concat!("k8s.io/kubernetes v", $version, " ", $checksum, "\n"),
            sources: &[],
        }
    };
}

/// One release of each minor version, oldest first.
pub(super) static RELEASES: [&Module; 8] = [
    &release!("1.30.14", "h1:MrlKXh9uhLIJpyxOeXhcndzRVSvwiV9iJ8NgH8nqPsg="),
    &release!("1.31.4", "h1:VQDX52gTQnq8C/jCo48AQuDsWbWMh9XXxhQRDYjgakw="),
    &release!("1.32.2", "h1:mShetlA102UpjRVSGzB+5vjJwy8oPy8FMWrkTH5f37o="),
    &release!("1.33.13", "h1:bmH31xUdSzeA5vk0wZAK9MZp11mdLuzUSeKk0qN3hPQ="),
    &release!("1.34.4", "h1:Yy6R4QB8C9kJPp25GFqEvX5XQwY5qzKeqD0Xx6oAcmk="),
    &release!("1.35.4", "h1:o/8dBC/pHVpYoGV4OAIytAlNPZbdYVTXJHoYvXC4qzM="),
    &release!("1.36.3", "h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o="),
    &KUBERNETES,
];

impl Module {
    /// Minor version of Kubernetes, such as `1.31`.
    pub(super) fn minor(&self) -> Option<&'static str> {
        let version = self.version("k8s.io/kubernetes").ok()?;
        Some(version.trim_start_matches('v').rsplit_once('.')?.0)
    }
}

/// Turns the go.mod of a release into that of a module that requires the release. The modules of Kubernetes come from their
/// own repositories, in the same version, instead of its folder `staging`.
pub(super) fn go_mod(release: &str, version: &str) -> String {
    let staging_version = version.replacen("v1.", "v0.", 1);
    let mut lines: Vec<_> = release.lines().map(str::to_owned).collect();
    for line in &mut lines {
        if let Some((replaced, module)) = line.split_once(" => ./staging/src/") {
            *line = format!("{replaced} => {module} {staging_version}");
        } else if line.starts_with("module ") {
            *line = format!("module lucid.computing/testbed\n\nrequire k8s.io/kubernetes {version}");
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_release_of_each_minor_version() {
        let minors: Vec<_> = RELEASES.iter().map(|module| module.minor().unwrap()).collect();
        let expected: Vec<_> = (30..).take(RELEASES.len()).map(|minor| format!("1.{minor}")).collect();
        assert_eq!(minors, expected);
    }

    #[test]
    fn the_generated_module_requires_the_release_and_its_staging_modules() {
        let release = "// Comment.\n\nmodule k8s.io/kubernetes\n\ngo 1.24.0\n\ngodebug default=go1.24\n\nrequire (\n\tgolang.org/x/net v0.38.0\n\tk8s.io/api v0.0.0\n)\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\tk8s.io/legacy-cloud-providers => ./staging/src/k8s.io/legacy-cloud-providers\n)\n";
        let expected = "// Comment.\n\nmodule lucid.computing/testbed\n\nrequire k8s.io/kubernetes v1.31.4\n\ngo 1.24.0\n\ngodebug default=go1.24\n\nrequire (\n\tgolang.org/x/net v0.38.0\n\tk8s.io/api v0.0.0\n)\n\nreplace (\n\tk8s.io/api => k8s.io/api v0.31.4\n\tk8s.io/legacy-cloud-providers => k8s.io/legacy-cloud-providers v0.31.4\n)\n";
        assert_eq!(go_mod(release, "v1.31.4"), expected);
    }
}
