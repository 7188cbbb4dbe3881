use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde::Deserialize;

use crate::Error;

/// An image of this workspace, for a node of the test bed.
#[derive(Clone, Debug, Deserialize)]
pub struct Image {
    /// Name and tag, such as `ghcr.io/lucid/lucid-init:0.1.0`.
    pub reference: String,
    /// Digest of the manifest, `sha256:…`.
    pub digest: String,
    /// Path of the OCI archive, for `lucid_testbed::Cluster::load_image`.
    pub archive: PathBuf,
}

impl Image {
    /// Reference for pods: `NAME@sha256:…`.
    pub fn pinned(&self) -> String {
        let name = self.reference.rsplit_once(':').map_or(self.reference.as_str(), |(name, _)| name);
        format!("{name}@{}", self.digest)
    }
}

/// Builds the images of this workspace from the checkout.
///
/// `cargo xtask images --profile dev` builds them, once per process. That takes some seconds if everything is built, and much
/// longer otherwise: call this before a deadline begins.
///
/// # Errors
///
/// Returns an error if the images cannot be built.
pub fn images() -> Result<&'static [Image], Error> {
    static IMAGES: OnceLock<Result<Vec<Image>, String>> = OnceLock::new();
    let images = IMAGES.get_or_init(|| make().map_err(|error| error.to_string()));
    images.as_deref().map_err(|error| error.as_str().into())
}

/// Returns the one of the [`images`] named `name`, such as `lucid-operator`.
///
/// # Errors
///
/// Returns the errors of [`images`], and an error if there is no image of this name.
pub fn image(name: &str) -> Result<Image, Error> {
    let called = |image: &&Image| image.pinned().contains(&format!("/{name}@"));
    images()?.iter().find(called).cloned().ok_or_else(|| format!("the workspace has no image {name}").into())
}

/// Builds an image from a Containerfile and the files in `context` with buildah. Returns the path of its OCI archive.
///
/// # Errors
///
/// Returns an error if buildah fails.
pub fn build_image(reference: &str, containerfile: &str, context: &Path) -> Result<PathBuf, Error> {
    let archive = context.join("image.tar");
    fs::write(context.join("Containerfile"), containerfile)?;
    let storage = tempfile::tempdir()?;
    let output = Command::new("buildah")
        .current_dir(storage.path())
        .env("CONTAINERS_CONF", "/dev/null")
        .args(["--root", "root", "--runroot", "run", "--storage-driver", "vfs", "build", "--quiet"])
        .args(["--isolation", "chroot", "--format", "oci", "--tag"])
        .arg(format!("oci-archive:{}:{reference}", archive.display()))
        .arg(context)
        .output()?;
    if !output.status.success() {
        return Err(
            format!("failed to build {reference}: {}", String::from_utf8_lossy(&output.stderr)).into()
        );
    }
    Ok(archive)
}

fn make() -> Result<Vec<Image>, Error> {
    const ARGUMENTS: &[&str] = &["xtask", "images", "--profile", "dev", "--output", "json"];
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(ARGUMENTS)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("failed to make the images: cargo {}; see above", ARGUMENTS.join(" ")).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
