//! Keeps a registry in step with its file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use snafu::{ResultExt, Snafu};

use crate::changes::Changes;
use crate::file;
use crate::registry::{ParseError, Registry};

/// The registry in force, shared between who reloads it and who reads it.
pub type CurrentRegistry = Arc<ArcSwap<Registry>>;

/// Why a registry file cannot be used. The message names the file, the source what is wrong with it.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read.
    #[snafu(display("failed to read registry file {} (accepted is YAML with the list `notarized`)", path.display()))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no UTF-8 text.
    #[snafu(display("failed to parse registry file {} (accepted is UTF-8 text)", path.display()))]
    NotText {
        /// The file.
        path: PathBuf,
        /// Where it is not.
        source: std::str::Utf8Error,
    },
    /// The content is no registry.
    #[snafu(display("failed to parse registry file {}", path.display()))]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong where.
        source: ParseError,
    },
}

/// What was last seen of the file; unreadable counts too, so that it is reported once and not at each poll.
type Content = Result<Vec<u8>, io::ErrorKind>;

/// A registry file, and the registry in force: the last version of the file that was good.
#[derive(Debug)]
pub struct RegistryFile {
    path: PathBuf,
    seen: Content,
    current: CurrentRegistry,
}

impl RegistryFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or is no registry.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, LoadError> {
        let path = path.into();
        let bytes = file::read_aside(&path).await.context(ReadSnafu { path: &path })?;
        let registry = parse(&path, &bytes)?;
        log_in_force(&path, &registry);
        Ok(Self { path, seen: Ok(bytes), current: Arc::new(ArcSwap::from_pointee(registry)) })
    }

    /// The registry in force, now and after each reload.
    #[must_use]
    pub fn current(&self) -> CurrentRegistry {
        self.current.clone()
    }

    /// Follows the file until the future is dropped: each event in its directory, and every `poll`, it is read and
    /// compared. A version that is broken or cannot be read is logged once and leaves the last good one in force.
    pub async fn follow(mut self, poll: Duration) {
        let mut changes = Changes::of(&[&self.path], poll);
        loop {
            changes.next().await;
            self.refresh().await;
        }
    }

    async fn refresh(&mut self) {
        let read = file::read_aside(&self.path).await;
        let seen = read.as_ref().map(Vec::clone).map_err(io::Error::kind);
        if seen == self.seen {
            return;
        }
        self.seen = seen;
        let loaded = read.context(ReadSnafu { path: &self.path }).and_then(|bytes| parse(&self.path, &bytes));
        match loaded {
            Ok(registry) => {
                log_in_force(&self.path, &registry);
                self.current.store(Arc::new(registry));
            }
            Err(error) => {
                tracing::error!(
                    error = %lucid_process::with_causes(&error),
                    "the last good registry stays in force"
                );
            }
        }
    }
}

/// Reads a registry file once.
///
/// # Errors
///
/// When the file cannot be read or is no registry.
pub fn load(path: &Path) -> Result<Registry, LoadError> {
    let bytes = file::read(path).context(ReadSnafu { path })?;
    parse(path, &bytes)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Registry, LoadError> {
    let text = std::str::from_utf8(bytes).context(NotTextSnafu { path })?;
    Registry::parse(text).context(ParseSnafu { path })
}

fn log_in_force(path: &Path, registry: &Registry) {
    tracing::info!(file = %path.display(), notarized = registry.count(), "registry in force");
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Instant;

    use tokio::time::sleep;

    use super::*;

    fn registry_of(count: usize) -> String {
        let digests: Vec<String> = (0..count).map(|number| format!("sha256:{number:064x}")).collect();
        serde_json::json!({ "notarized": digests }).to_string()
    }

    async fn counts_soon(current: &CurrentRegistry, count: usize) {
        let started = Instant::now();
        while current.load().count() != count {
            assert!(started.elapsed() < Duration::from_secs(20), "{count} digests are never in force");
            sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn an_event_in_the_directory_suffices_without_polls() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("registry.yaml");
        fs::write(&path, registry_of(1)).unwrap();
        let file = RegistryFile::open(&path).await.unwrap();
        let current = file.current();
        let task = tokio::spawn(file.follow(Duration::from_secs(3600)));
        // This one may be seen by the comparison at the start, those after it by their events only.
        fs::write(&path, registry_of(2)).unwrap();
        counts_soon(&current, 2).await;
        for count in 3..6 {
            fs::write(folder.path().join("new"), registry_of(count)).unwrap();
            fs::rename(folder.path().join("new"), &path).unwrap();
            counts_soon(&current, count).await;
        }
        task.abort();
    }

    #[tokio::test]
    async fn a_poll_suffices_where_the_directory_gives_no_event() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = elsewhere.path().join("registry.yaml");
        fs::write(&target, registry_of(1)).unwrap();
        symlink(&target, folder.path().join("registry.yaml")).unwrap();
        let file = RegistryFile::open(folder.path().join("registry.yaml")).await.unwrap();
        let current = file.current();
        let task = tokio::spawn(file.follow(Duration::from_millis(20)));
        for count in 2..5 {
            fs::write(&target, registry_of(count)).unwrap();
            counts_soon(&current, count).await;
        }
        task.abort();
    }
}
