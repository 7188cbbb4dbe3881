//! What containerd knows by name.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Command,
};

use snafu::{OptionExt as _, ResultExt as _};
use tempfile::NamedTempFile;

use super::{ArchiveSnafu, Error, LoadSnafu, LoadTaskSnafu, NoNodeSnafu, StageSnafu, config};
use crate::{Cluster, Component, Image, error::NodeSnafu, image, process};

impl Cluster {
    /// Makes an image known to the node, under its tag and under its digest: pods may name it either way.
    ///
    /// # Errors
    /// The cluster was not started with [`Builder::node`](crate::Builder::node), or containerd refuses the image.
    pub async fn load_image(&self, image: &Image) -> Result<(), crate::Error> {
        let stage = || -> io::Result<NamedTempFile> {
            let mut file = NamedTempFile::new_in(self.folder.path())?;
            file.write_all(image.archive())?;
            Ok(file)
        };
        let file = stage().context(StageSnafu).context(NodeSnafu)?;
        self.load_archive(file.path()).await?;
        Ok(())
    }

    /// Makes the images of an OCI archive known to the node, as [`Cluster::load_image`] does. Returns the name of each with its
    /// digest, such as `example.com/hello@sha256:…`.
    ///
    /// # Errors
    /// As [`Cluster::load_image`].
    pub async fn load_archive(&self, archive: &Path) -> Result<Vec<String>, crate::Error> {
        let ctr = Ctr::of(self).context(NoNodeSnafu).context(NodeSnafu)?;
        let archive = archive.to_owned();
        let loading = tokio::task::spawn_blocking(move || ctr.load(&archive));
        loading.await.context(LoadTaskSnafu).flatten().context(NodeSnafu)
    }
}

/// containerd's client, which runs on this machine as we do: the socket is a file.
#[derive(Clone)]
pub(super) struct Ctr {
    arguments: [String; 4],
    program: PathBuf,
}

impl Ctr {
    pub(super) fn of(cluster: &Cluster) -> Option<Self> {
        let program = cluster.node.as_ref()?.binaries.path(Component::Ctr);
        let socket = config::socket(cluster).display().to_string();
        // Where the kubelet looks for images.
        let arguments = ["--address".to_owned(), socket, "--namespace".to_owned(), "k8s.io".to_owned()];
        Some(Self { arguments, program })
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Result<String, process::CommandError> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args(arguments);
        Ok(String::from_utf8_lossy(&process::output(&mut command)?).into_owned())
    }

    fn load(&self, archive: &Path) -> Result<Vec<String>, Error> {
        let images = image::named(archive).context(ArchiveSnafu { archive })?;
        let failed = || LoadSnafu { archive };
        self.run(&["images", "import", &archive.display().to_string()]).with_context(|_| failed())?;
        let pin = |(reference, digest): (String, String)| {
            let name = reference.rsplit_once(':').map_or(&*reference, |(name, _)| name);
            let pinned = format!("{name}@{digest}");
            self.run(&["images", "tag", "--force", &reference, &pinned]).with_context(|_| failed())?;
            Ok(pinned)
        };
        images.into_iter().map(pin).collect()
    }
}
