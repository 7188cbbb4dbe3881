//! Files that are read together and watched for changes.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::{self, JoinHandle},
    time::{Instant, sleep_until, timeout_at},
};

use super::{Watching, snapshot::Snapshot, watches::Watches};
use crate::source::{Reason, SourceError};

/// Quiet period before a read, so that a writer can finish.
const QUIET: Duration = Duration::from_millis(25);
/// Maximum delay of a read while files are written continuously.
const MAX_DELAY: Duration = Duration::from_millis(250);

/// Maximum reads per round. A read may discover directories that were not watched yet, which is rare.
const MAX_READS: usize = 4;

/// A set of files that are read together, with change detection.
pub(super) struct FileSet {
    reader: Arc<Mutex<Reader>>,
    /// A read whose future was dropped before the disk responded.
    reading: Option<JoinHandle<Snapshot>>,
    happened: Arc<Notify>,
    poll: Duration,
    next_poll: Option<Instant>,
    /// `true` if an event occurred that the last [`read`](Self::read) may have missed.
    is_stale: bool,
    seen: Option<[u8; 32]>,
}

impl FileSet {
    /// Creates the set. Reads and watches nothing yet.
    pub(super) fn new(paths: Vec<PathBuf>, watching: Watching) -> Self {
        let happened = Arc::new(Notify::new());
        let watches = watching.events.then(|| Watches::new(Arc::clone(&happened)));
        let reader = Arc::new(Mutex::new(Reader { paths, watches, directories: BTreeSet::new() }));
        let poll = watching.poll;
        Self { reader, reading: None, happened, poll, next_poll: None, is_stale: false, seen: None }
    }

    /// Reads the files.
    pub(super) async fn read(&mut self) -> Result<Snapshot, SourceError> {
        let snapshot = self.take().await?;
        self.is_stale = false;
        self.seen = Some(snapshot.digest);
        Ok(snapshot)
    }

    /// Completes when the content differs from the last [`read`](Self::read). Cancel safe.
    pub(super) async fn changed(&mut self) {
        loop {
            if !self.is_stale {
                let next_poll = *self.next_poll.get_or_insert_with(|| Instant::now() + self.poll);
                tokio::select! {
                    () = self.happened.notified() => {}
                    () = sleep_until(next_poll) => {}
                }
                self.is_stale = true;
            }
            let latest = Instant::now() + MAX_DELAY;
            while Instant::now() < latest {
                let quiet = (Instant::now() + QUIET).min(latest);
                if timeout_at(quiet, self.happened.notified()).await.is_err() {
                    break;
                }
            }
            let found = self.take().await;
            self.next_poll = None;
            // The next read reports the error.
            if found.map_or(true, |found| self.seen != Some(found.digest)) {
                return;
            }
            self.is_stale = false;
        }
    }

    /// Reads on a single blocking thread, even if futures are dropped early: an unresponsive file system must
    /// not use up the runtime's thread pool.
    async fn take(&mut self) -> Result<Snapshot, SourceError> {
        if let Some(earlier) = &mut self.reading {
            // The earlier read may predate a change that is already known.
            let _ = earlier.await;
            self.reading = None;
        }
        let reader = Arc::clone(&self.reader);
        // Poisoning is harmless: the next read sets all state.
        let read = move || reader.lock().unwrap_or_else(PoisonError::into_inner).read();
        let snapshot = self.reading.insert(task::spawn_blocking(read)).await;
        self.reading = None;
        snapshot.map_err(|error| {
            // The watcher runs its own thread and panics when that thread is gone. Fall back to polling.
            self.reader.lock().unwrap_or_else(PoisonError::into_inner).watches = None;
            SourceError::new(Reason::Unreadable, format!("failed to read files: {error}"))
        })
    }
}

struct Reader {
    paths: Vec<PathBuf>,
    watches: Option<Watches>,
    directories: BTreeSet<PathBuf>,
}

impl Reader {
    /// Watches each directory before reading it, so no change is missed.
    fn read(&mut self) -> Snapshot {
        let Some(watches) = &mut self.watches else { return Snapshot::take(&self.paths) };
        for _ in 1..MAX_READS {
            watches.arm(&self.directories);
            let snapshot = Snapshot::take(&self.paths);
            if snapshot.directories == self.directories {
                return snapshot;
            }
            self.directories.clone_from(&snapshot.directories);
        }
        watches.arm(&self.directories);
        Snapshot::take(&self.paths)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        runtime,
        time::{sleep, timeout},
    };

    use super::*;

    #[test]
    fn pending_reads_use_a_single_thread() {
        let runtime =
            runtime::Builder::new_current_thread().enable_time().max_blocking_threads(2).build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tls.crt");
        std::fs::write(&path, "before").unwrap();
        let mut files = FileSet::new(vec![path.clone()], Watching::by_poll_alone());
        let reader = Arc::clone(&files.reader);
        // Simulates an unresponsive disk.
        let hang = reader.lock().unwrap();
        runtime.block_on(async {
            for _ in 0..5 {
                assert!(timeout(Duration::from_millis(10), files.read()).await.is_err());
            }
            let other = timeout(Duration::from_secs(30), task::spawn_blocking(|| ())).await;
            other.expect("a thread for something else").unwrap();
        });
        drop(hang);
        runtime.block_on(async {
            // The pending read returns the old content.
            while !files.reading.as_ref().is_some_and(JoinHandle::is_finished) {
                sleep(Duration::from_millis(1)).await;
            }
            std::fs::write(&path, "after").unwrap();
            let found = files.read().await.unwrap();
            assert_eq!(found.contents[0].as_ref().unwrap().as_slice(), b"after");
        });
    }
}
