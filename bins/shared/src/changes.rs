//! Reloads files that change.
//!
//! The *directories* of the files are watched: the kubelet updates a mounted ConfigMap or Secret by swapping the
//! symbolic link `..data` beside the files, and editors often replace files. A watch on the file itself would miss
//! both. Every event in a directory only triggers a read and comparison, as does a periodic poll for file systems
//! without events.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::with_causes;

const SETTLE: Duration = Duration::from_millis(50);

/// Calls `reload` at once, after each event in the directories of `files`, and at every `poll` interval, until the future is
/// dropped. Logs an error once: the last good version of `what` stays in force.
pub async fn follow<E: std::error::Error + 'static>(
    files: &[PathBuf],
    poll: Duration,
    what: &str,
    mut reload: impl FnMut() -> Result<(), E> + Send + 'static,
) {
    // The channel stays open without a watcher.
    let (changed, mut changes) = mpsc::channel(1);
    let _watcher = watch_directories(files, changed.clone()).inspect_err(|error| {
        tracing::warn!(?files, %error, ?poll, "failed to watch for changes, polling only");
    });
    let mut ticks = interval(poll);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_error = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = changes.recv() => {
                sleep(SETTLE).await;
                // One read covers all earlier events.
                let _ = changes.try_recv();
            }
        }
        let reloading = spawn_blocking(move || {
            let error = reload().err().map(|error| with_causes(&error));
            (reload, error)
        });
        // The task fails only when the runtime shuts down.
        let Ok((again, error)) = reloading.await else { return };
        reload = again;
        if let Some(error) = error.as_ref().filter(|error| last_error.as_ref() != Some(*error)) {
            tracing::error!(%error, "the last good {what} stays in force");
        }
        last_error = error;
    }
}

/// Sends to `changed` after each event in the directories of `files`, until the watcher is dropped.
fn watch_directories(files: &[PathBuf], changed: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.is_ok_and(|event| is_reading(event.kind)) {
            return;
        }
        // A full channel already holds a notification.
        let _ = changed.try_send(());
    })?;
    for directory in files.iter().map(|file| parent(file)).collect::<BTreeSet<_>>() {
        watcher.watch(directory, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}

/// Returns the directory of a file.
pub fn parent(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
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
