//! Images of containerd.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Command,
};

use snafu::{OptionExt as _, ResultExt as _};
use tempfile::NamedTempFile;

use super::{NO_NODE, Node, STAGE_FAILED};
use crate::{Cluster, Component, Error, Image, error::failed_to, image, process};

impl Cluster {
    /// Imports an image on every node, under its tag and its digest: pods can use either.
    ///
    /// # Errors
    ///
    /// Returns an error if the cluster was not started with [`Builder::node`](crate::Builder::node), or if containerd rejects
    /// the image.
    pub async fn load_image(&self, image: &Image) -> Result<(), Error> {
        let folder = self.folder.path().to_owned();
        let image = image.clone();
        self.on_each_node(move |ctr| ctr.load_image(&image, &folder)).await.map(drop)
    }

    /// Imports the images of an OCI archive on every node, like [`Cluster::load_image`]. Returns the name of each with its
    /// digest, such as `example.com/hello@sha256:…`.
    ///
    /// # Errors
    ///
    /// See [`Cluster::load_image`].
    pub async fn load_archive(&self, archive: &Path) -> Result<Vec<String>, Error> {
        let archive = archive.to_owned();
        self.on_each_node(move |ctr| ctr.load(&archive)).await
    }

    /// Runs an import on each node, and returns the result of the last one.
    async fn on_each_node<T: Send + 'static>(
        &self,
        load: impl Fn(&Ctr) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let all: Vec<_> = self.nodes.iter().map(Ctr::of).collect();
        let load_all = move || {
            let mut loaded = None;
            for ctr in &all {
                loaded = Some(load(ctr)?);
            }
            loaded.whatever_context(NO_NODE)
        };
        let loading = tokio::task::spawn_blocking(load_all);
        loading.await.whatever_context("failed to wait for containerd")?
    }
}

/// containerd's client, which runs in the namespaces of this process: the socket is a file.
#[derive(Clone)]
pub(super) struct Ctr {
    arguments: [String; 4],
    program: PathBuf,
}

impl Ctr {
    pub(super) fn of(node: &Node) -> Self {
        let program = node.binaries.path(Component::Ctr);
        let socket = node.place.socket().display().to_string();
        // Namespace in which the kubelet looks for images.
        let arguments = ["--address".to_owned(), socket, "--namespace".to_owned(), "k8s.io".to_owned()];
        Self { arguments, program }
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Result<String, Error> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args(arguments);
        Ok(String::from_utf8_lossy(&process::output(&mut command)?).into_owned())
    }

    /// Imports through a file in `folder`.
    pub(super) fn load_image(&self, image: &Image, folder: &Path) -> Result<(), Error> {
        let stage = || -> io::Result<NamedTempFile> {
            let mut file = NamedTempFile::new_in(folder)?;
            file.write_all(image.archive())?;
            Ok(file)
        };
        self.load(stage().whatever_context(STAGE_FAILED)?.path()).map(drop)
    }

    fn load(&self, archive: &Path) -> Result<Vec<String>, Error> {
        let images = image::named(archive).with_whatever_context(|_| failed_to("read", archive))?;
        let failed = || failed_to("load the images of", archive);
        self.run(&["images", "import", &archive.display().to_string()])
            .with_whatever_context(|_| failed())?;
        let pin = |(reference, digest): (String, String)| -> Result<String, Error> {
            let name = reference.rsplit_once(':').map_or(&*reference, |(name, _)| name);
            let pinned = format!("{name}@{digest}");
            self.run(&["images", "tag", "--force", &reference, &pinned])
                .with_whatever_context(|_| failed())?;
            Ok(pinned)
        };
        images.into_iter().map(pin).collect()
    }
}
