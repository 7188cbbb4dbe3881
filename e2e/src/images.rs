use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde::Deserialize;

use crate::Error;

/// An image of this workspace, for a node of the test bed.
#[derive(Clone, Debug, Deserialize)]
pub struct Image {
    /// Name and tag, such as `ghcr.io/lucid/lucid-init:0.1.0`.
    pub reference: String,
    /// `sha256:…` of its manifest.
    pub digest: String,
    /// The OCI archive, for `lucid_testbed::Cluster::load_archive`.
    pub archive: PathBuf,
}

impl Image {
    /// As pods name it: `NAME@sha256:…`.
    pub fn pinned(&self) -> String {
        let name = self.reference.rsplit_once(':').map_or(self.reference.as_str(), |(name, _)| name);
        format!("{name}@{}", self.digest)
    }
}

/// The images of this workspace, made of the programs as they stand in the checkout.
///
/// They are made by `cargo xtask images --profile dev`, once per process; when everything is built this takes some
/// seconds, and much longer when it is not: call it before a deadline begins.
///
/// # Errors
///
/// When the images cannot be made.
pub fn images() -> Result<&'static [Image], Error> {
    static IMAGES: OnceLock<Result<Vec<Image>, String>> = OnceLock::new();
    let images = IMAGES.get_or_init(|| make().map_err(|error| error.to_string()));
    images.as_deref().map_err(|error| error.as_str().into())
}

/// The one of the [`images`] that is called `name`, such as `lucid-operator`.
///
/// # Errors
///
/// As of [`images`], or when there is none of this name.
pub fn image(name: &str) -> Result<Image, Error> {
    let called = |image: &&Image| image.pinned().contains(&format!("/{name}@"));
    images()?.iter().find(called).cloned().ok_or_else(|| format!("the workspace has no image {name}").into())
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
