//! Reloads files that change.
//!
//! The *directories* of the files are watched: the kubelet updates a mounted ConfigMap or Secret by swapping the
//! symbolic link `..data` beside the files, and editors often replace files. A watch on the file itself would miss
//! both. Every event in a directory only triggers a read and comparison, as does a periodic poll for file systems
//! without events.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use crate::file;

/// Delay after an event, for writers that do not replace the file atomically.
const SETTLE: Duration = Duration::from_millis(50);

/// A source of notifications to read files again. The first one is immediate.
pub(crate) struct Changes {
    changes: mpsc::Receiver<()>,
    // Keeps the channel open if there is no watcher.
    _changed: mpsc::Sender<()>,
    _watcher: Option<RecommendedWatcher>,
    ticks: Interval,
    last_error: Option<String>,
}

impl Changes {
    /// Watches `files`: notifies of each event in their directories and at every `poll` interval.
    pub(crate) fn of(files: &[&Path], poll: Duration) -> Self {
        let (changed, changes) = mpsc::channel(1);
        let watcher = watch_directories(files, changed.clone()).inspect_err(|error| {
            tracing::warn!(?files, %error, ?poll, "failed to watch for changes, polling only");
        });
        let mut ticks = interval(poll);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { changes, _changed: changed, _watcher: watcher.ok(), ticks, last_error: None }
    }

    /// Completes at the next notification.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.ticks.tick() => {}
            _ = self.changes.recv() => {
                sleep(SETTLE).await;
                // One read covers all earlier events.
                let _ = self.changes.try_recv();
            }
        }
    }

    /// Logs the error of reading the files again, once: the last good version of `what` stays in force.
    pub(crate) fn report(&mut self, what: &str, reloaded: Result<(), impl std::error::Error + 'static>) {
        let error = reloaded.err().map(|error| lucid_shared::with_causes(&error));
        if let Some(error) = error.as_ref().filter(|error| self.last_error.as_ref() != Some(*error)) {
            tracing::error!(%error, "the last good {what} stays in force");
        }
        self.last_error = error;
    }
}

/// Sends to `changed` after each event in the directories of `files`, until the watcher is dropped.
fn watch_directories(files: &[&Path], changed: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.is_ok_and(|event| is_reading(event.kind)) {
            return;
        }
        // A full channel already holds a notification.
        let _ = changed.try_send(());
    })?;
    for directory in files.iter().map(|file| file::parent(file)).collect::<BTreeSet<_>>() {
        watcher.watch(directory, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}

/// Returns `true` for events of reads, which must not trigger another read.
fn is_reading(kind: EventKind) -> bool {
    kind.is_access() && kind != EventKind::Access(AccessKind::Close(AccessMode::Write))
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, DataChange, ModifyKind};

    use super::*;

    #[test]
    fn only_read_events_are_ignored() {
        assert!(is_reading(EventKind::Access(AccessKind::Open(AccessMode::Any))));
        assert!(is_reading(EventKind::Access(AccessKind::Close(AccessMode::Read))));
        assert!(!is_reading(EventKind::Access(AccessKind::Close(AccessMode::Write))));
        assert!(!is_reading(EventKind::Create(CreateKind::File)));
        assert!(!is_reading(EventKind::Modify(ModifyKind::Data(DataChange::Any))));
        assert!(!is_reading(EventKind::Any));
    }
}
