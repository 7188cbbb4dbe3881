//! When to read files again.
//!
//! The files' *directories* are watched: a mounted ConfigMap or Secret is updated by swapping the symbolic link `..data`
//! beside the files, and an editor often replaces a file by another; a watch on the file itself would end there. Whatever
//! happens in a directory only means "read again and compare", and so does the time that passes, for file systems that
//! announce nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

/// How long a writer that does not replace the file at once is given to finish.
const SETTLE: Duration = Duration::from_millis(50);

/// The occasions to read files again. The first one is at once.
#[derive(Debug)]
pub struct Changes {
    changes: mpsc::Receiver<()>,
    // Keeps the channel open where there is no watcher.
    _changed: mpsc::Sender<()>,
    _watcher: Option<RecommendedWatcher>,
    ticks: Interval,
}

impl Changes {
    /// The occasions to read `files`: each event in their directories, and every `poll`.
    #[must_use]
    pub fn of(files: &[&Path], poll: Duration) -> Self {
        let (changed, changes) = mpsc::channel(1);
        let watcher = watch_directories(files, changed.clone()).inspect_err(|error| {
            tracing::warn!(?files, %error, ?poll, "failed to watch for changes, polling only");
        });
        let mut ticks = interval(poll);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { changes, _changed: changed, _watcher: watcher.ok(), ticks }
    }

    /// Completes at the next occasion.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.ticks.tick() => {}
            _ = self.changes.recv() => {
                sleep(SETTLE).await;
                // One reading covers all that happened before it.
                let _ = self.changes.try_recv();
            }
        }
    }
}

/// Sends to `changed` after each event in the directories of `files`, until the watcher is dropped.
fn watch_directories(files: &[&Path], changed: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.is_ok_and(|event| is_reading(event.kind)) {
            return;
        }
        // A full channel holds a notice already.
        let _ = changed.try_send(());
    })?;
    let directory = |file: &&Path| {
        file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
    };
    for directory in files.iter().map(directory).collect::<BTreeSet<_>>() {
        watcher.watch(&directory, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}

/// Reading a file is an event too: to answer it by reading again would never end.
fn is_reading(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        EventKind::Access(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, DataChange, ModifyKind};

    use super::*;

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
