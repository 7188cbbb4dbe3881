//! `cargo xtask release --dry-run`: checks a release and makes what it publishes, in `target/release-artifacts`.
//!
//! Nothing is published here: .github/workflows/ci.yml does so, with what this task made.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use clap::{Args, ValueEnum};
use lucid_e2e::{Error, binary};
use serde_json::{Value, json};

use crate::command::{ROOT, cargo, metadata, output, succeed};
use crate::images::{self, Images, Made, Profile};
use crate::report::Output;
use crate::{crates, manual, report};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Checks a release and makes what it publishes: crates, images with SBOM and provenance, chart, program and krew manifest.
#[derive(Args)]
pub(crate) struct Release {
    /// Publish nothing. Required: only the workflow publishes.
    #[arg(long)]
    dry_run: bool,
    /// Parts to make, after the checks of versions and changelog; all by default.
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// Build profile of programs and images.
    #[arg(long, value_enum, default_value_t = Profile::Release)]
    profile: Profile,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// `cargo publish --dry-run` in the order of dependencies, and semver-checks.
    Crates,
    /// OCI archives, each with an SBOM (CycloneDX) and a statement of its provenance (in-toto, SLSA v1).
    Images,
    /// Archive of `lucid` with man pages and completions, and the krew manifest.
    Program,
    /// The Helm chart.
    Chart,
}

pub(crate) fn run(release: &Release) -> Result<(), Error> {
    if !release.dry_run {
        return Err(
            "expected --dry-run: .github/workflows/ci.yml publishes a tag after this task passed".into()
        );
    }
    let root = Path::new(ROOT).canonicalize()?;
    let out = root.join("target/release-artifacts");
    match fs::remove_dir_all(&out) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => fs::create_dir_all(&out)?,
    }
    let metadata = metadata()?;
    check_versions(&metadata, &root)?;
    let changelog = fs::read_to_string(root.join("CHANGELOG.md"))?;
    fs::write(out.join("notes.md"), notes(&changelog)?)?;

    let has = |part| release.parts.is_empty() || release.parts.contains(&part);
    if has(Part::Crates) {
        crates::run_cargo(&["publish", "--workspace", "--dry-run", "--locked", "--allow-dirty"])?;
        check_compatibility()?;
    }
    if has(Part::Images) || has(Part::Program) {
        let names = if has(Part::Images) { Vec::new() } else { vec!["lucid".to_owned()] };
        let options = Images { names, profile: release.profile, twice: false, output: Output::Json };
        let images = images::build(&options)?;
        if has(Part::Images) {
            images.iter().try_for_each(|image| describe_image(image, &root, &out))?;
        }
        if has(Part::Program) {
            archive_program(&images[0].context.join("lucid"), &root, &out)?;
        }
    }
    if has(Part::Chart) {
        let mut helm = Command::new(binary("helm")?);
        succeed(helm.args(["package", "charts/lucid", "--destination"]).arg(&out).current_dir(&root))?;
    }
    let sums = output(Command::new("sh").args(["-c", "sha256sum -- *"]).current_dir(&out))?;
    fs::write(out.join("SHA256SUMS"), format!("{sums}\n"))?;
    println!("{sums}\n{}", out.display());
    Ok(())
}

/// Checks that everything has the version of the workspace.
fn check_versions(metadata: &Value, root: &Path) -> Result<(), Error> {
    let packages = metadata["packages"].as_array().ok_or("cargo metadata has no packages")?;
    let mut wrong: Vec<String> = Vec::new();
    for package in packages.iter().filter(|package| package["version"] != VERSION) {
        wrong.push(format!("{} {}", package["name"], package["version"]));
    }
    let (minor, _) = VERSION.rsplit_once('.').ok_or("expected a version of three numbers")?;
    for (file, start, version) in [
        ("Cargo.toml", "lucid-", VERSION),
        ("charts/lucid/Chart.yaml", "version:", VERSION),
        ("charts/lucid/Chart.yaml", "appVersion:", VERSION),
        ("template/Cargo.toml.liquid", "lucid-", minor),
    ] {
        let text = fs::read_to_string(root.join(file))?;
        // Members without a version are not published.
        let lines = text.lines().filter(|line| line.starts_with(start));
        let lines = lines.filter(|line| !line.contains("path =") || line.contains("version ="));
        wrong.extend(lines.filter(|line| !has_version(line, version)).map(|line| format!("{file}: {line}")));
    }
    if is_tagged() {
        let tag = std::env::var("GITHUB_REF_NAME").unwrap_or_default();
        wrong.extend((tag != format!("v{VERSION}")).then(|| format!("the tag {tag}")));
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("expected version {VERSION} in {}", wrong.join("; ")).into())
    }
}

/// Returns `true` in a workflow for a tag.
fn is_tagged() -> bool {
    std::env::var("GITHUB_REF_TYPE").as_deref() == Ok("tag")
}

fn has_version(line: &str, version: &str) -> bool {
    line.split(['"', ' ']).any(|word| word == version)
}

/// Section of this version in the changelog.
fn notes(changelog: &str) -> Result<String, Error> {
    let missing = || format!("CHANGELOG.md has no section ## [{VERSION}]");
    let (_, section) = changelog.split_once(&format!("\n## [{VERSION}] - ")).ok_or_else(missing)?;
    let (date, notes) = section.split_once('\n').ok_or_else(missing)?;
    if date == "unreleased" {
        let message = format!("CHANGELOG.md gives no date for {VERSION} yet");
        if is_tagged() {
            return Err(message.into());
        }
        eprintln!("xtask: {message}");
    }
    let notes = notes.split("\n## [").next().unwrap_or_default().trim();
    if notes.is_empty() { Err(missing().into()) } else { Ok(format!("{notes}\n")) }
}

/// Compares the public items with those of the last tag.
fn check_compatibility() -> Result<(), Error> {
    // Not the tag of this version.
    let this = format!("v{VERSION}");
    let describe = ["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "--exclude", &this];
    let tag = report::output("git", &describe);
    let tool = output(cargo().args(["semver-checks", "--version"]));
    match (tag.as_str(), tool) {
        ("", _) => eprintln!("xtask: no version has been tagged: semver-checks has nothing to compare with"),
        (tag, Err(_)) => {
            eprintln!("xtask: not compared with {tag}: `cargo install --locked cargo-semver-checks`")
        }
        (tag, Ok(_)) => succeed(cargo().args(["semver-checks", "--workspace", "--baseline-rev", tag]))?,
    }
    Ok(())
}

/// Writes the archive of an image, its SBOM and its provenance.
fn describe_image(image: &Made, root: &Path, out: &Path) -> Result<(), Error> {
    let name = image.archive.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.trim_end_matches(".oci.tar");
    fs::hard_link(&image.archive, out.join(format!("{name}.oci.tar")))?;
    let write = |kind: &str, value: &Value| -> Result<(), Error> {
        Ok(fs::write(out.join(format!("{name}.{kind}.json")), serde_json::to_string_pretty(value)?)?)
    };
    write("cdx", &sbom(image, root)?)?;
    write("provenance", &provenance(image, &report::output("git", &["rev-parse", "HEAD"])))
}

fn sbom(image: &Made, root: &Path) -> Result<Value, Error> {
    let target = images::target();
    let tree =
        ["tree", "--locked", "--prefix", "none", "--edges", "normal,no-proc-macro", "--format", "{p}|{l}"];
    let tree = output(cargo().args(tree).args(["--package", image.package(), "--target", &target]))?;
    let mut components = crates_of(&tree, &fs::read_to_string(root.join("Cargo.lock"))?);
    let context = &image.context;
    if context.join("ca-certificates.crt").exists() {
        components.push(debian_package(&report::output("dpkg-query", &["--status", "ca-certificates"])));
    }
    // Only images with network tools have it.
    for entry in fs::read_dir(context.join("network-tools/var/lib/dpkg/status.d")).into_iter().flatten() {
        components.push(debian_package(&fs::read_to_string(entry?.path())?));
    }
    let (name, version) = image.reference.rsplit_once(':').unwrap_or((&image.reference, VERSION));
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {
            "type": "container",
            "name": name,
            "version": version,
            "hashes": [{"alg": "SHA-256", "content": image.digest.trim_start_matches("sha256:")}],
        }},
        "components": components,
    }))
}

/// Components of the crates in an output of `cargo tree`, with checksums of the lock file.
fn crates_of(tree: &str, lock: &str) -> Vec<Value> {
    let field = |package: &str, name: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
        line.map(|value| value.trim_end_matches('"').to_owned())
    };
    let checksums: BTreeMap<_, _> = lock
        .split("[[package]]")
        .filter_map(|it| Some(((field(it, "name")?, field(it, "version")?), field(it, "checksum")?)))
        .collect();
    let crates: BTreeSet<_> = tree
        .lines()
        .filter_map(|line| {
            let (package, license) = line.trim_end_matches(" (*)").split_once('|')?;
            let mut words = package.split(' ');
            Some((words.next()?, words.next()?.strip_prefix('v')?, license))
        })
        .collect();
    let component = |(name, version, license): (&str, &str, &str)| {
        let checksum = checksums.get(&(name.to_owned(), version.to_owned()));
        let hashes: Vec<_> =
            checksum.map(|sum| json!({"alg": "SHA-256", "content": sum})).into_iter().collect();
        json!({
            "type": "library",
            "name": name,
            "version": version,
            "purl": format!("pkg:cargo/{name}@{version}"),
            // Older crates separate alternatives by a slash.
            "licenses": [{"expression": license.replace('/', " OR ")}],
            "hashes": hashes,
        })
    };
    crates.into_iter().map(component).collect()
}

/// Component of a Debian package, from its entry in dpkg's status.
fn debian_package(status: &str) -> Value {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let [name, version, architecture] = ["Package: ", "Version: ", "Architecture: "].map(field);
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let distribution = release.lines().find_map(|line| line.strip_prefix("ID=")).unwrap_or("debian");
    let purl = format!("pkg:deb/{distribution}/{name}@{version}?arch={architecture}");
    json!({"type": "library", "name": name, "version": version, "purl": purl})
}

/// Statement of how an image was built. The workflow attests its checksum.
fn provenance(image: &Made, commit: &str) -> Value {
    let (name, _) = image.reference.rsplit_once(':').unwrap_or((&image.reference, ""));
    let workflow = std::env::var("GITHUB_WORKFLOW_REF").ok().map(|it| format!("https://github.com/{it}"));
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": image.digest.trim_start_matches("sha256:")}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": format!("{REPOSITORY}/blob/main/docs/images.md"),
                "externalParameters": {"task": "cargo xtask images", "image": image.package()},
                "internalParameters": {"rustc": report::output("rustc", &["--version"])},
                "resolvedDependencies": [{"uri": format!("git+{REPOSITORY}"), "digest": {"gitCommit": commit}}],
            },
            "runDetails": {"builder": {"id": workflow.unwrap_or_else(|| format!("{REPOSITORY}#local-build"))}},
        },
    })
}

/// Writes the archive of `lucid` and the krew manifest that names it.
fn archive_program(program: &Path, root: &Path, out: &Path) -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    let staging = folder.path();
    fs::copy(program, staging.join("lucid"))?;
    fs::copy(root.join("LICENSE"), staging.join("LICENSE"))?;
    manual::write(&staging.join("share"))?;
    let archive = out.join(format!("lucid-{VERSION}-linux-{}.tar.gz", architecture()));
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--gzip",
        "--sort=name",
        "--mtime=@0",
        "--owner=0",
        "--group=0",
        "--mode=u=rwX,go=rX",
    ]);
    tar.arg("--file").arg(&archive).arg("--directory").arg(staging).args(["LICENSE", "lucid", "share"]);
    succeed(&mut tar)?;
    let sum = output(Command::new("sha256sum").arg(&archive))?;
    Ok(fs::write(out.join("krew.yaml"), krew_manifest(&archive, sum.split(' ').next().unwrap_or_default()))?)
}

/// Go's name of the architecture, which krew uses.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn krew_manifest(archive: &Path, sum: &str) -> String {
    let (file, architecture) = (archive.file_name().unwrap_or_default().display(), architecture());
    format!(
        r#"apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: lucid
spec:
  version: v{VERSION}
  homepage: {REPOSITORY}
  shortDescription: Inject and verify chains of auditors
  description: |
    Explains, injects and validates chains of auditors in front of AI models, checks
    an installation, and verifies its decision log.
  platforms:
    - selector:
        matchLabels: {{os: linux, arch: {architecture}}}
      uri: {REPOSITORY}/releases/download/v{VERSION}/{file}
      sha256: {sum}
      bin: lucid
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkout_is_ready_for_a_release_of_its_version() {
        let root = Path::new(ROOT);
        check_versions(&metadata().unwrap(), root).unwrap();
        assert!(has_version("lucid-text = { version = \"0.1.0\" }", "0.1.0"));
        assert!(!has_version("version: 0.1.01", "0.1.0"));
        notes(&fs::read_to_string(root.join("CHANGELOG.md")).unwrap()).unwrap();
    }

    #[test]
    fn notes_are_the_section_of_the_version() {
        let changelog =
            format!("# Changelog\n\n## [{VERSION}] - 2026-01-02\n\n- a\n\n## [0.0.1] - 2025-01-02\n\n- b\n");
        assert_eq!(notes(&changelog).unwrap(), "- a\n");
        assert!(notes("# Changelog\n").is_err());
        assert!(notes(&format!("\n## [{VERSION}] - 2026-01-02\n\n## [0.0.1] - 2025-01-02\n")).is_err());
    }

    #[test]
    fn components_have_licence_and_checksum() {
        let lock =
            "[[package]]\nname = \"serde\"\nversion = \"1.0.1\"\nsource = \"registry\"\nchecksum = \"ab\"\n";
        let tree =
            "lucid v0.1.0 (/a)|Apache-2.0\nserde v1.0.1|MIT/Apache-2.0\nserde v1.0.1|MIT/Apache-2.0 (*)\n";
        let found = crates_of(tree, lock);
        let purls: Vec<_> = found.iter().map(|it| it["purl"].as_str().unwrap()).collect();
        assert_eq!(purls, ["pkg:cargo/lucid@0.1.0", "pkg:cargo/serde@1.0.1"]);
        assert_eq!(found[1]["licenses"], json!([{"expression": "MIT OR Apache-2.0"}]));
        assert_eq!(found[1]["hashes"], json!([{"alg": "SHA-256", "content": "ab"}]));
        let debian =
            debian_package("Package: nftables\nStatus: install ok\nVersion: 1.1-2\nArchitecture: amd64\n");
        let purl = debian["purl"].as_str().unwrap();
        assert!(purl.starts_with("pkg:deb/") && purl.ends_with("/nftables@1.1-2?arch=amd64"), "{purl}");
    }
}
