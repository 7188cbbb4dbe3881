//! `cargo xtask images`: builds the images of Lucid with buildah, as OCI archives.
//!
//! Each image has a Containerfile beside its program, and a build context in `target/images/context`. The same sources, compiler,
//! buildah and Debian packages produce the same digest.

mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use lucid_e2e::Error;
use rustix::fs::Mode;
use rustix::process::umask;
use serde::Serialize;
use serde_json::Value;

use crate::command::{ROOT, metadata, succeed};
use crate::report::{self, Output, bytes, table};
pub(crate) use program::{Profile, target};

/// Images: the package of the program, and the folder of the package and its Containerfile.
const IMAGES: &[(&str, &str)] = &[
    ("lucid", "bins/lucid"),
    ("lucid-operator", "bins/lucid-operator"),
    ("lucid-validator", "bins/lucid-validator"),
    ("lucid-verifier", "bins/lucid-verifier"),
    ("lucid-init", "bins/lucid-init"),
    ("lucid-egress", "bins/lucid-egress"),
    ("lucid-guardrails-auditor", "bins/lucid-guardrails-auditor"),
    ("example-auditor", "examples/auditor"),
    ("example-model", "examples/model"),
];

/// Licences of Debian's nft and iptables with their libraries, in the image of lucid-init.
const NETWORK_TOOLS_LICENSES: &str = " AND GPL-2.0-only AND GPL-2.0-or-later AND LGPL-2.1-or-later";

/// Other names of lucid-guardrails-auditor, which selects its judges by the name of its container. The digest is the same.
const GUARDRAILS: [&str; 3] = ["lucid-injection-auditor", "lucid-toxicity-auditor", "lucid-pii-auditor"];

#[derive(Args)]
pub(crate) struct Images {
    /// Images to build; all by default.
    pub(crate) names: Vec<String>,
    /// Build profile. Images of `dev` are for tests: fast to build, and large.
    #[arg(long, value_enum, default_value_t = Profile::Release)]
    pub(crate) profile: Profile,
    /// Also build everything a second time from scratch, from a copy of the sources at another path, and compare the digests.
    #[arg(long)]
    pub(crate) twice: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Made {
    /// Reference for pods: the tag for readers, the digest for the kubelet.
    pub(crate) reference: String,
    pub(crate) digest: String,
    /// Size of the layer in bytes, which a node downloads.
    size: u64,
    pub(crate) archive: PathBuf,
    /// Build context, named as the package of its program.
    #[serde(skip)]
    pub(crate) context: PathBuf,
}

impl Made {
    /// Package of the program.
    pub(crate) fn package(&self) -> &str {
        self.context.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }
}

pub(crate) fn run(options: &Images) -> Result<(), Error> {
    print(&build(options)?, options.output)
}

pub(crate) fn build(options: &Images) -> Result<Vec<Made>, Error> {
    let images = chosen(&options.names)?;
    if options.twice && options.profile == Profile::Dev {
        return Err("--twice: expected --profile release, because programs of dev contain paths".into());
    }
    let sources = Path::new(ROOT).canonicalize()?;
    let folder = sources.join(options.profile.folder());
    // Serializes builds, as Cargo does in its target folder.
    fs::create_dir_all(&folder)?;
    let lock = fs::File::create(folder.join(".lock"))?;
    lock.lock()?;

    // Read once, so that a commit in the meantime does not affect the second build.
    let revision = report::output("git", &["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]);
    let revision = if revision.is_empty() { "unknown" } else { &revision };
    let metadata = metadata()?;
    let labels = |name: &str| labels(name, revision, &metadata);
    let made = make_all(&images, options, labels, &sources, &folder)?;
    if options.twice {
        let second_folder = tempfile::Builder::new().prefix("lucid, built elsewhere ").tempdir()?;
        // Resolved, as compilers record it.
        let second_folder = second_folder.path().canonicalize()?;
        // Files created from here on are accessible to their owner only.
        umask(Mode::RWXG | Mode::RWXO);
        let sources = second_folder.join("sources");
        copy_checkout(&sources)?;
        let second = make_all(&images, options, labels, &sources, &second_folder)?;
        for (first, second) in made.iter().zip(second) {
            let name = &first.reference;
            if second.digest != first.digest {
                let message = format!("{name} is not reproducible: {}, then {}", first.digest, second.digest);
                return Err(message.into());
            }
            eprintln!("xtask: {name} came out the same twice");
        }
    }
    Ok(made)
}

fn chosen(names: &[String]) -> Result<Vec<(&'static str, &'static str)>, Error> {
    let known = || IMAGES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = names.iter().find(|name| !IMAGES.iter().any(|(known, _)| known == name)) {
        return Err(format!("expected one of the images {}; found {unknown}", known()).into());
    }
    let is_chosen = |name: &str| names.is_empty() || names.iter().any(|chosen| chosen == name);
    Ok(IMAGES.iter().copied().filter(|(name, _)| is_chosen(name)).collect())
}

/// Copies the checkout to `to`, with uncommitted changes and untracked files, but without ignored files.
fn copy_checkout(to: &Path) -> Result<(), Error> {
    // Git rejects the configuration of a checkout that another user owns, but listing names is safe. It lists deleted files until
    // the deletion is committed.
    const COPY: &str = "git -c safe.directory=* ls-files -z --cached --others --exclude-standard | \
        tar --create --null --files-from - --ignore-failed-read | tar --extract --no-same-permissions --directory \"$0\"";
    fs::create_dir(to)?;
    succeed(Command::new("sh").args(["-fc", COPY]).arg(to).current_dir(ROOT))
}

fn make_all(
    images: &[(&str, &str)],
    options: &Images,
    labels: impl Fn(&str) -> Result<Vec<String>, Error>,
    sources: &Path,
    folder: &Path,
) -> Result<Vec<Made>, Error> {
    let names: Vec<_> = images.iter().map(|(name, _)| *name).collect();
    let programs = program::build(&names, options.profile, sources, folder)?;
    let mut made = Vec::new();
    for (name, source) in images {
        let context = folder.join("context").join(name);
        let containerfile = sources.join(source).join("Containerfile");
        fill(&context, &containerfile, &programs.join(name))?;
        let labels = labels(name)?;
        let others: &[&str] = if *name == "lucid-guardrails-auditor" { &GUARDRAILS } else { &[] };
        for name in [name].into_iter().chain(others) {
            eprintln!("xtask: image {name}");
            let reference = format!("ghcr.io/lucid/{name}:{}", env!("CARGO_PKG_VERSION"));
            let archive = folder.join(format!("{name}.oci.tar"));
            made.push(package(reference, context.clone(), &labels, options.profile, archive)?);
        }
    }
    Ok(made)
}

/// Returns the labels of an image, from the Cargo.toml of its program.
fn labels(name: &str, revision: &str, metadata: &Value) -> Result<Vec<String>, Error> {
    let mut packages = metadata["packages"].as_array().into_iter().flatten();
    let package = packages.find(|package| package["name"] == name);
    let package = package.ok_or_else(|| format!("{name} is not a package of the workspace"))?;
    let field = |key: &str| package[key].as_str().ok_or_else(|| format!("the package {name} has no {key}"));
    let packaged = if name == "lucid-init" { NETWORK_TOOLS_LICENSES } else { "" };
    let licenses = format!("{}{packaged}", field("license")?);
    let labels = [
        ("title", name),
        ("description", field("description")?),
        ("version", field("version")?),
        ("revision", revision),
        ("source", field("repository")?),
        ("licenses", &licenses),
    ];
    Ok(labels.map(|(key, value)| format!("org.opencontainers.image.{key}={value}")).into())
}

fn fill(context: &Path, containerfile: &Path, program: &Path) -> Result<(), Error> {
    let script = Path::new(ROOT).join("xtask/src/images/context.sh");
    succeed(Command::new(script).arg(containerfile).arg(program).arg(context))
}

fn package(
    reference: String,
    context: PathBuf,
    labels: &[String],
    profile: Profile,
    archive: PathBuf,
) -> Result<Made, Error> {
    // Separate storage leaves the images and containers of the user alone.
    let storage = tempfile::tempdir()?;
    let mut buildah = Command::new("buildah");
    buildah.current_dir(storage.path()).env("CONTAINERS_CONF", "/dev/null").stdout(Stdio::null());
    buildah.args(["--root", "root", "--runroot", "run", "--storage-driver", "vfs", "build", "--quiet"]);
    buildah.args(["--isolation", "chroot", "--no-cache", "--format", "oci"]);
    // Neither times, nor the version of buildah, nor its default PATH.
    buildah.args(["--timestamp", "0", "--identity-label=false", "--unsetenv", "PATH"]);
    buildah.arg(format!("--disable-compression={}", profile == Profile::Dev));
    buildah.args(labels.iter().flat_map(|label| ["--label", label]));
    buildah.args(["--tag", &format!("oci:layout:{reference}")]).arg(&context);
    succeed(&mut buildah)?;

    let layout = storage.path().join("layout");
    let index = read(&layout.join("index.json"))?;
    let digest = index["manifests"][0]["digest"].as_str().ok_or("buildah wrote no digest")?;
    let manifest = read(&layout.join("blobs").join(digest.replace(':', "/")))?;
    let size = manifest["layers"].as_array().into_iter().flatten().filter_map(|layer| layer["size"].as_u64());

    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--mode=u=rwX,go=rX"]);
    tar.arg("--file").arg(&archive).current_dir(&layout).args(["oci-layout", "index.json", "blobs"]);
    succeed(&mut tar)?;
    Ok(Made { reference, digest: digest.to_owned(), size: size.sum(), archive, context })
}

fn read(path: &Path) -> Result<Value, Error> {
    let text = fs::read(path).map_err(|error| format!("failed to read {}: {error}", path.display()))?;
    Ok(serde_json::from_slice(&text)?)
}

fn print(made: &[Made], output: Output) -> Result<(), Error> {
    let rows: Vec<_> = made
        .iter()
        .map(|made| {
            let image = format!("{}@{}", made.reference, made.digest);
            vec![
                ("image", image),
                ("size", bytes(made.size)),
                ("archive", made.archive.display().to_string()),
            ]
        })
        .collect();
    match output.preset() {
        Some(preset) => println!("{}", table(&rows, preset)),
        None => println!("{}", serde_json::to_string_pretty(made)?),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
