//! The folder of one cluster.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
};

use tempfile::TempDir;

use crate::say;

/// Readable by its owner only, as it holds keys. Removed on drop unless something failed or the
/// user wants it.
#[derive(Debug)]
pub(crate) struct Folder {
    folder: TempDir,
    /// True until the start has succeeded.
    pub(crate) failed: bool,
    pub(crate) keep: bool,
}

impl Folder {
    pub(crate) fn create(keep: bool) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("lucid-testbed-").tempdir()?;
        let folder = Self { folder, failed: true, keep };
        fs::create_dir(folder.path().join("pki"))?;
        fs::create_dir(folder.path().join("logs"))?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.path().join("logs").join(format!("{name}.log"))
    }

    /// Where etcd keeps its data: large, and of no use without etcd.
    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("etcd")
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> io::Result<PathBuf> {
        let path = self.path().join(name);
        fs::write(&path, content)?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let failed = self.failed || thread::panicking();
        if !failed && !self.keep {
            return;
        }
        self.folder.disable_cleanup(true);
        if self.keep {
            say(format_args!("the files of this cluster stay in {}", self.path().display()));
        } else {
            let _ = fs::remove_dir_all(self.data());
            say(format_args!("something failed; the logs stay in {}/logs", self.path().display()));
        }
    }
}
