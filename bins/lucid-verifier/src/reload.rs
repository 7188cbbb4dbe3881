//! Keeps a registry in step with its file.
//!
//! The file's *directory* is watched: a mounted ConfigMap is updated by swapping the symbolic link `..data` beside
//! the file, and an editor often replaces a file by another; a watch on the file itself would end there. Whatever
//! happens in the directory only means "read again and compare", and the content is compared from time to time
//! besides, for file systems that announce nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use snafu::{ResultExt, Snafu};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::registry::{ParseError, Registry};

/// How long a writer that does not replace the file at once is given to finish.
const SETTLE: Duration = Duration::from_millis(50);

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
        let bytes = tokio::fs::read(&path).await.context(ReadSnafu { path: &path })?;
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
        let (changed, mut changes) = mpsc::channel(1);
        let _watcher = watch_directory(&self.path, changed.clone()).inspect_err(|error| {
            tracing::warn!(file = %self.path.display(), %error, ?poll, "failed to watch for changes, polling only");
        });
        let mut ticks = interval(poll);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = changes.recv() => {
                    sleep(SETTLE).await;
                    // One reading covers all that happened before it.
                    let _ = changes.try_recv();
                }
            }
            self.refresh().await;
        }
    }

    async fn refresh(&mut self) {
        let read = tokio::fs::read(&self.path).await;
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

fn parse(path: &Path, bytes: &[u8]) -> Result<Registry, LoadError> {
    let text = std::str::from_utf8(bytes).context(NotTextSnafu { path })?;
    Registry::parse(text).context(ParseSnafu { path })
}

fn log_in_force(path: &Path, registry: &Registry) {
    tracing::info!(file = %path.display(), notarized = registry.count(), "registry in force");
}

/// Sends to `changed` after each event in the directory of `path`, until the watcher is dropped.
fn watch_directory(path: &Path, changed: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.is_ok_and(|event| is_reading(event.kind)) {
            return;
        }
        // A full channel holds a notice already.
        let _ = changed.try_send(());
    })?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    watcher.watch(directory, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

/// Reading the file is an event too: to answer it by reading again would never end.
fn is_reading(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        EventKind::Access(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Instant;

    use notify::event::{CreateKind, DataChange, ModifyKind};

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

    #[test]
    fn only_events_of_reading_are_ignored() {
        assert!(is_reading(EventKind::Access(AccessKind::Open(AccessMode::Any))));
        assert!(is_reading(EventKind::Access(AccessKind::Close(AccessMode::Read))));
        assert!(!is_reading(EventKind::Access(AccessKind::Close(AccessMode::Write))));
        assert!(!is_reading(EventKind::Create(CreateKind::File)));
        assert!(!is_reading(EventKind::Modify(ModifyKind::Data(DataChange::Any))));
        assert!(!is_reading(EventKind::Any));
    }
}
