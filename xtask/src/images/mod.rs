//! `cargo xtask images`: builds the images of Lucid as OCI archives, without a container daemon.
//!
//! Each image has a Containerfile beside its program. The build context is staged under `target/images/context`. The same
//! sources, compiler and Debian packages produce the same digest.

mod containerfile;
mod context;
mod debian;
mod elf;
mod elsewhere;
mod environment;
mod layer;
mod program;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use comfy_table::Table;
use lucid_e2e::Error;
use serde::Serialize;

use crate::command::{ROOT, metadata};
use crate::report::{self, Output};
use containerfile::Containerfile;
use context::Context;
use elsewhere::Elsewhere;
use program::{Place, Profile};

/// Images: the package of the program, and the folder of the package and its Containerfile.
const IMAGES: &[(&str, &str)] = &[
    ("lucid", "bins/lucid"),
    ("lucid-operator", "bins/lucid-operator"),
    ("lucid-validator", "bins/lucid-validator"),
    ("lucid-verifier", "bins/lucid-verifier"),
    ("lucid-init", "bins/lucid-init"),
    ("example-auditor", "examples/auditor"),
    ("example-model", "examples/model"),
];

/// User and group of the programs, the `USER` of the Containerfiles.
const PASSWD: &str = "lucid:x:65532:65532::/:/sbin/nologin\n";

#[derive(Args)]
pub(crate) struct Images {
    /// Images to build; all by default.
    names: Vec<String>,
    /// Build profile. Images of `dev` are for tests: fast to build, and large.
    #[arg(long, value_enum, default_value_t = Profile::Release)]
    profile: Profile,
    /// Prefix of the image name in its reference.
    #[arg(long, default_value = "ghcr.io/lucid")]
    repository: String,
    /// Tag of the references.
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
    tag: String,
    /// Folder for archives and contexts; target/images by default, or target/images/dev for `dev`.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Also build everything a second time from scratch, from a copy of the sources at another path, and compare the digests.
    #[arg(long)]
    twice: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// An image to build.
struct Image {
    name: &'static str,
    source: &'static str,
    containerfile: Containerfile,
}

impl Image {
    fn read((name, source): (&'static str, &'static str)) -> Result<Self, Error> {
        Ok(Self { name, source, containerfile: read(source)? })
    }
}

/// A built image.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Made {
    /// Reference for pods: the tag for readers, the digest for the kubelet.
    reference: String,
    digest: String,
    /// Size of the compressed layer in bytes, which a node downloads.
    size: usize,
    archive: PathBuf,
}

pub(crate) fn run(options: &Images) -> Result<(), Error> {
    // Read once, so that a commit or an edit in the meantime does not affect the second build.
    let images = chosen(&options.names)?.into_iter().map(Image::read).collect::<Result<Vec<_>, _>>()?;
    if options.twice && options.profile == Profile::Dev {
        return Err("--twice: accepted with --profile release; programs of dev contain paths".into());
    }
    let sources = Path::new(ROOT).canonicalize()?;
    let folder = match &options.folder {
        Some(folder) => std::path::absolute(folder)?,
        None => sources.join(options.profile.folder()),
    };
    // Serializes builds, as Cargo does in its target folder.
    fs::create_dir_all(&folder)?;
    let lock = fs::File::create(folder.join(".lock"))?;
    lock.lock()?;

    let build = folder.join("build");
    let shared = target_folder()?;
    let intermediate = if options.profile == Profile::Dev { &shared } else { &build };
    let place = Place { sources: &sources, programs: &build, intermediate };
    let made = make_all(&images, options, &folder, &place)?;
    if options.twice {
        let elsewhere = Elsewhere::prepare()?;
        let (sources, build) = (elsewhere.path().join("sources"), elsewhere.path().join("build"));
        let place = Place { sources: &sources, programs: &build, intermediate: &build };
        let second = make_all(&images, options, elsewhere.path(), &place)?;
        for (Image { name, .. }, (first, second)) in images.iter().zip(made.iter().zip(second)) {
            if second.digest != first.digest {
                let message = format!("{name} is not reproducible: {}, then {}", first.digest, second.digest);
                return Err(message.into());
            }
            eprintln!("xtask: {name} came out the same twice");
        }
    }
    print(&made, options.output)
}

/// Target folder of this workspace.
fn target_folder() -> Result<PathBuf, Error> {
    let metadata = metadata()?;
    let folder = metadata["build_directory"].as_str().or(metadata["target_directory"].as_str());
    Ok(folder.ok_or("cargo metadata tells no build_directory")?.into())
}

fn make_all(
    images: &[Image],
    options: &Images,
    folder: &Path,
    place: &Place<'_>,
) -> Result<Vec<Made>, Error> {
    let names: Vec<_> = images.iter().map(|image| image.name).collect();
    let programs = program::build(&names, options.profile, place)?;
    images.iter().zip(programs).map(|(image, program)| make(image, &program, options, folder)).collect()
}

fn chosen(names: &[String]) -> Result<Vec<(&'static str, &'static str)>, Error> {
    let known = || IMAGES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = names.iter().find(|name| !IMAGES.iter().any(|(known, _)| known == name)) {
        return Err(format!("found image {unknown}, accepted {}", known()).into());
    }
    let is_chosen = |name: &str| names.is_empty() || names.iter().any(|chosen| chosen == name);
    Ok(IMAGES.iter().copied().filter(|(name, _)| is_chosen(name)).collect())
}

fn make(image: &Image, program: &Path, options: &Images, folder: &Path) -> Result<Made, Error> {
    let Image { name, source, containerfile } = image;
    eprintln!("xtask: image {name}");

    let place = folder.join("context").join(name);
    let mut context = Context::create(&place)?;
    for copy in &containerfile.copies {
        match copy.source.as_str() {
            "ca-certificates.crt" => context.add_text(&copy.source, &debian::certificates()?)?,
            "passwd" => context.add_text(&copy.source, PASSWD)?,
            "network-tools" => debian::network_tools(&mut context.folder(&copy.source)?)?,
            found if found == *name => context.add_file(&copy.source, program)?,
            found => {
                return Err(format!(
                    "{source}/Containerfile copies {found:?}, accepted {name}, ca-certificates.crt, passwd, network-tools"
                )
                .into());
            }
        }
    }

    let layer = layer::Tree::of(&containerfile.copies, &place)?.layer(options.profile.compression())?;
    let reference = format!("{}/{name}:{}", options.repository, options.tag);
    let image = lucid_testbed::Image::new(&reference, &containerfile.config.document(), &layer)?;
    let archive = folder.join(format!("{name}.oci.tar"));
    fs::write(&archive, image.archive())?;
    Ok(Made { reference, digest: image.digest().to_owned(), size: layer.size(), archive })
}

/// Reads the Containerfile of `source`, a folder of this repository.
fn read(source: &str) -> Result<Containerfile, Error> {
    let path = Path::new(ROOT).join(source).join("Containerfile");
    let text =
        fs::read_to_string(&path).map_err(|error| format!("failed to read {}: {error}", path.display()))?;
    let revision = report::output("git", &["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]);
    let arguments = BTreeMap::from([
        ("VERSION", env!("CARGO_PKG_VERSION").to_owned()),
        ("REVISION", if revision.is_empty() { "unknown".to_owned() } else { revision }),
    ]);
    Containerfile::parse(&text, &arguments)
        .map_err(|error| format!("failed to read {}: {error}", path.display()).into())
}

fn print(made: &[Made], output: Output) -> Result<(), Error> {
    let Some(preset) = output.preset() else {
        println!("{}", serde_json::to_string_pretty(made)?);
        return Ok(());
    };
    let mut table = Table::new();
    table.load_preset(preset).set_header(["image", "size", "archive"]);
    for Made { reference, digest, size, archive } in made {
        let size = format!("{}.{} MB", size / 1_000_000, size / 100_000 % 10);
        table.add_row([format!("{reference}\n@{digest}"), size, archive.display().to_string()]);
    }
    println!("{table}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_image_has_a_user_of_its_own_one_program_and_labels() {
        for (name, source) in IMAGES {
            let Containerfile { copies, config } = read(source).unwrap();
            let program = copies.iter().find(|copy| copy.source == *name);
            assert_eq!(config.entrypoint, [program.unwrap().destination.as_str()], "{name}");
            assert_eq!(config.user, "65532:65532", "{name}");
            let label = |key: &str| config.labels[&format!("org.opencontainers.image.{key}")].as_str();
            assert_eq!(label("title"), *name);
            assert_eq!(label("version"), env!("CARGO_PKG_VERSION"), "{name}");
            for key in ["description", "licenses", "revision", "source"] {
                assert!(!label(key).is_empty(), "{name} {key}");
            }
        }
    }

    #[test]
    fn an_image_that_is_not_there_is_named_with_those_that_are() {
        let message = chosen(&["lucid-init".to_owned(), "lucid-pii".to_owned()]).unwrap_err().to_string();
        assert!(message.contains("lucid-pii") && message.contains("lucid-operator"), "{message}");
        assert_eq!(chosen(&["lucid-init".to_owned()]).unwrap(), [("lucid-init", "bins/lucid-init")]);
        assert_eq!(chosen(&[]).unwrap().len(), IMAGES.len());
    }
}
