//! Reloads a registry when its file changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use snafu::Snafu;
use tokio::runtime::Handle;

use crate::file::{self, FileError};
use crate::log::{RegistryLog, UpdateError};
use crate::registry::Registry;

/// The registry in force, shared between the reloader and its readers.
pub(crate) type CurrentRegistry = Arc<ArcSwap<Registry>>;

/// A registry file and the registry in force: the last valid version of the file.
#[derive(Debug)]
pub(crate) struct RegistryFile {
    path: PathBuf,
    text: String,
    current: CurrentRegistry,
    log: Option<Arc<RegistryLog>>,
    /// `true` if the log has all of the registry.
    is_logged: bool,
}

/// A version of the file cannot take effect, or not be logged.
#[derive(Debug, Snafu)]
pub(crate) enum ReloadError {
    #[snafu(transparent)]
    File { source: FileError },
    #[snafu(transparent)]
    Log { source: UpdateError },
}

impl RegistryFile {
    pub(crate) fn open(path: impl Into<PathBuf>) -> Result<Self, FileError> {
        let path = path.into();
        let text = file::read(&path)?;
        let registry = file::parse(&path, &text)?;
        log_in_force(&path, &registry);
        let current = Arc::new(ArcSwap::from_pointee(registry));
        Ok(Self { path, text, current, log: None, is_logged: true })
    }

    /// Logs each later version before it takes effect. The current one is in the log already.
    pub(crate) fn with_log(self, log: Arc<RegistryLog>) -> Self {
        Self { log: Some(log), ..self }
    }

    #[must_use]
    pub(crate) fn current(&self) -> CurrentRegistry {
        self.current.clone()
    }

    /// Reloads the file until the future is dropped: after each event in its directory, and at every `poll` interval.
    /// An invalid or unreadable version is logged once, and the last valid one stays in force.
    pub(crate) async fn follow(mut self, poll: Duration) {
        lucid_shared::follow(&[self.path.clone()], poll, "registry", move || self.refresh()).await;
    }

    fn refresh(&mut self) -> Result<(), ReloadError> {
        let text = file::read(&self.path)?;
        if text == self.text {
            return if self.is_logged { Ok(()) } else { self.update_log(&self.current.load_full()) };
        }
        let registry = file::parse(&self.path, &text)?;
        let logged = self.update_log(&registry);
        // Without a record, a revocation still takes effect, and a notarization has no proof.
        log_in_force(&self.path, &registry);
        self.current.store(Arc::new(registry));
        self.text = text;
        logged
    }

    fn update_log(&mut self, registry: &Registry) -> Result<(), ReloadError> {
        let Some(log) = &self.log else { return Ok(()) };
        let logged = Handle::current().block_on(log.update(registry));
        self.is_logged = logged.is_ok();
        Ok(logged?)
    }
}

fn log_in_force(path: &Path, registry: &Registry) {
    tracing::info!(file = %path.display(), notarized = registry.count(), "registry in force");
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use lucid_e2e::eventually;

    use super::*;

    fn registry_of(count: usize) -> String {
        let digests: Vec<String> = (0..count).map(|number| format!("sha256:{number:064x}")).collect();
        serde_json::json!({ "notarized": digests }).to_string()
    }

    async fn counts_soon(current: &CurrentRegistry, count: usize) {
        eventually(&format!("{count} digests"), async || current.load().count() == count).await;
    }

    #[tokio::test]
    async fn events_suffice_without_polls() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("registry.yaml");
        fs::write(&path, registry_of(1)).unwrap();
        let file = RegistryFile::open(&path).unwrap();
        let current = file.current();
        let task = tokio::spawn(file.follow(Duration::from_secs(3600)));
        // This change may be found by the initial comparison, later ones only through events.
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
    async fn polls_suffice_without_events() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = elsewhere.path().join("registry.yaml");
        fs::write(&target, registry_of(1)).unwrap();
        symlink(&target, folder.path().join("registry.yaml")).unwrap();
        let file = RegistryFile::open(folder.path().join("registry.yaml")).unwrap();
        let current = file.current();
        let task = tokio::spawn(file.follow(Duration::from_millis(20)));
        for count in 2..5 {
            fs::write(&target, registry_of(count)).unwrap();
            counts_soon(&current, count).await;
        }
        task.abort();
    }
}
