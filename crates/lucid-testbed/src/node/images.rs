//! Images of containerd.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use snafu::{OptionExt as _, ResultExt as _};

use super::{NO_NODE, Node};
use crate::{Cluster, Error, binaries::Component, error::failed_to, image, process};

impl Cluster {
    /// Imports the images of an OCI archive, as `buildah push` and `docker save` write it, on every node. Pods can use them by tag
    /// and by digest. Returns the name of each with its digest, such as `example.com/hello@sha256:…`.
    ///
    /// # Errors
    ///
    /// Returns an error if the cluster was not started with [`Builder::nodes`](crate::Builder::nodes), or if containerd rejects
    /// the archive.
    pub async fn load_image(&self, archive: &Path) -> Result<Vec<String>, Error> {
        let archive = archive.to_owned();
        let all: Vec<_> = self.nodes.iter().map(Ctr::of).collect();
        let load_all = move || {
            let mut loaded = None;
            for ctr in &all {
                loaded = Some(ctr.load(&archive)?);
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

    pub(super) fn load(&self, archive: &Path) -> Result<Vec<String>, Error> {
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
