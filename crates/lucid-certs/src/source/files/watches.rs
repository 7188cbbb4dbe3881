//! File system events.

use std::{collections::BTreeSet, path::PathBuf, sync::mpsc::SyncSender};

use notify::{
    ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tracing::{info, warn};

/// Sends each event in a set of directories; the receiver re-reads the files.
///
/// A lack of events is not an error, whether the limits are exhausted (`fs.inotify.max_user_instances`,
/// `max_user_watches`) or the file system does not support them: files are polled as well.
pub(super) struct Watches {
    watcher: Option<RecommendedWatcher>,
    armed: BTreeSet<PathBuf>,
    events: SyncSender<()>,
    is_polling: bool,
}

impl Watches {
    pub(super) fn new(events: SyncSender<()>) -> Self {
        Self { watcher: None, armed: BTreeSet::new(), events, is_polling: false }
    }

    /// Watches exactly these directories from now on.
    ///
    /// A watch follows the directory that was at a path, not the path, so all watches are set again each
    /// time. Setting an existing watch again has no effect.
    pub(super) fn arm(&mut self, directories: &BTreeSet<PathBuf>) {
        let outcome = self.try_arm(directories);
        match (&outcome, self.is_polling) {
            (Err(error), false) => {
                warn!("failed to watch files, they are polled: {error}");
            }
            (Ok(()), true) => info!("watching files again"),
            _ => {}
        }
        self.is_polling = outcome.is_err();
    }

    fn try_arm(&mut self, directories: &BTreeSet<PathBuf>) -> notify::Result<()> {
        let watcher = match &mut self.watcher {
            Some(watcher) => watcher,
            none => none.insert(watcher(self.events.clone())?),
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

fn watcher(events: SyncSender<()>) -> notify::Result<RecommendedWatcher> {
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
            // If the channel is full, a read is pending anyway.
            let _ = events.try_send(());
        }
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::mpsc::sync_channel, time::Duration};

    use super::*;

    #[test]
    fn reading_causes_no_event() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "text").unwrap();
        let (sender, events) = sync_channel(1);
        let mut watches = Watches::new(sender);
        watches.arm(&BTreeSet::from([folder.path().to_owned()]));

        for _ in 0..10 {
            fs::read(&file).unwrap();
            fs::read_dir(folder.path()).unwrap().for_each(drop);
        }
        assert!(events.recv_timeout(Duration::from_millis(300)).is_err(), "reading causes no event");
        fs::write(&file, "other").unwrap();
        events.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
