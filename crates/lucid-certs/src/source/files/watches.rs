//! File system events.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use notify::{
    ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::sync::Notify;
use tracing::{info, warn};

/// Notifies of any event in a set of directories; the receiver re-reads the files.
///
/// A lack of events is not an error, whether the limits are exhausted (`fs.inotify.max_user_instances`,
/// `max_user_watches`) or the file system does not support them: files are polled as well.
pub(super) struct Watches {
    watcher: Option<RecommendedWatcher>,
    armed: BTreeSet<PathBuf>,
    happened: Arc<Notify>,
    is_blind: bool,
}

impl Watches {
    /// Creates the watcher without directories. `happened` is notified of each event.
    pub(super) fn new(happened: Arc<Notify>) -> Self {
        Self { watcher: None, armed: BTreeSet::new(), happened, is_blind: false }
    }

    /// Watches exactly these directories from now on.
    ///
    /// A watch follows the directory that was at a path, not the path, so all watches are set again each
    /// time. Setting an existing watch again has no effect.
    pub(super) fn arm(&mut self, directories: &BTreeSet<PathBuf>) {
        let outcome = self.try_arm(directories);
        match (&outcome, self.is_blind) {
            (Err(error), false) => {
                warn!("files are polled, because the system does not tell of changes: {error}");
            }
            (Ok(()), true) => info!("the system tells of changes of files again"),
            _ => {}
        }
        self.is_blind = outcome.is_err();
    }

    fn try_arm(&mut self, directories: &BTreeSet<PathBuf>) -> notify::Result<()> {
        let watcher = match &mut self.watcher {
            Some(watcher) => watcher,
            none => none.insert(watcher(Arc::clone(&self.happened))?),
        };
        for gone in self.armed.difference(directories) {
            // Fails if the directory was deleted, which also removed the watch.
            drop(watcher.unwatch(gone));
        }
        self.armed.clone_from(directories);
        for directory in directories {
            match watcher.watch(directory, RecursiveMode::NonRecursive) {
                // Deleted since the read; the watch on its parent reports when it is back.
                Err(error) if matches!(error.kind, ErrorKind::PathNotFound) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

fn watcher(happened: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(move |event: notify::Result<Event>| {
        // Ignore read events, which include our own.
        let is_reading = event.is_ok_and(|event| {
            matches!(
                event.kind,
                EventKind::Access(
                    AccessKind::Read | AccessKind::Open(_) | AccessKind::Close(AccessMode::Read)
                )
            )
        });
        if !is_reading {
            happened.notify_one();
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use std::{fs, time::Duration};

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn reading_causes_no_event() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "text").unwrap();
        let happened = Arc::new(Notify::new());
        let mut watches = Watches::new(Arc::clone(&happened));
        watches.arm(&BTreeSet::from([folder.path().to_owned()]));

        for _ in 0..10 {
            fs::read(&file).unwrap();
            fs::read_dir(folder.path()).unwrap().for_each(drop);
        }
        let quiet = timeout(Duration::from_millis(300), happened.notified()).await;
        assert!(quiet.is_err(), "reading made an event");
        fs::write(&file, "other").unwrap();
        timeout(Duration::from_secs(60), happened.notified()).await.unwrap();
    }
}
