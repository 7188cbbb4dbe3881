//! Files that are read together and watched for changes.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{sync::watch, time::sleep};

use super::{Watching, snapshot::Snapshot, watches::Watches};
use crate::source::{Reason, SourceError};

/// Quiet period before a read, so that a writer can finish.
const QUIET: Duration = Duration::from_millis(25);
/// Maximum delay of a read while files are written continuously.
const MAX_DELAY: Duration = Duration::from_millis(250);

/// Maximum reads per round. A read may discover directories that were not watched yet, which is rare.
const MAX_READS: usize = 4;

type Latest = Option<Arc<Snapshot>>;

/// A set of files that are read together whenever they change.
///
/// They are read by a separate thread: an unresponsive file system must not block threads of the runtime. The
/// thread ends when the set is dropped.
pub(super) struct FileSet {
    paths: Vec<PathBuf>,
    watching: Watching,
    latest: watch::Receiver<Latest>,
    wake: SyncSender<()>,
    /// Digest of the last [`read`](Self::read).
    seen: Option<[u8; 32]>,
}

impl FileSet {
    pub(super) fn new(paths: Vec<PathBuf>, watching: Watching) -> Self {
        let (latest, wake) = start(paths.clone(), watching);
        Self { paths, watching, latest, wake, seen: None }
    }

    pub(super) async fn read(&mut self) -> Result<Arc<Snapshot>, SourceError> {
        let latest = self.latest.wait_for(Option::is_some).await.ok().and_then(|latest| latest.clone());
        let Some(latest) = latest else {
            self.restart();
            return Err(SourceError::new(Reason::Unreadable, "failed to read files: the reader has stopped"));
        };
        self.seen = Some(latest.digest);
        Ok(latest)
    }

    /// Completes when the content differs from the last [`read`](Self::read). Cancel safe.
    pub(super) async fn changed(&mut self) {
        loop {
            let digest = self.latest.borrow_and_update().as_ref().map(|latest| latest.digest);
            if digest.is_some() && digest != self.seen {
                return;
            }
            if self.latest.changed().await.is_err() {
                sleep(self.watching.poll).await;
                self.restart();
            }
        }
    }

    /// Starts another reader, without events: `notify` panics if its own thread is gone.
    fn restart(&mut self) {
        self.watching.events = false;
        (self.latest, self.wake) = start(self.paths.clone(), self.watching);
    }
}

impl Drop for FileSet {
    /// Ends the reader: it observes that its channel is closed.
    fn drop(&mut self) {
        self.latest = watch::channel(None).1;
        // If the channel is full, the reader is about to wake up anyway.
        let _ = self.wake.try_send(());
    }
}

fn start(paths: Vec<PathBuf>, watching: Watching) -> (watch::Receiver<Latest>, SyncSender<()>) {
    let (sender, latest) = watch::channel(None);
    // A capacity of one coalesces events.
    let (wake, events) = sync_channel(1);
    let watches = watching.events.then(|| Watches::new(wake.clone()));
    let reader = Reader { paths, watches, directories: BTreeSet::new() };
    // On failure the channel is closed, and `FileSet` tries again.
    let thread = thread::Builder::new().name("lucid-files".to_owned());
    drop(thread.spawn(move || reader.run(watching.poll, &events, &sender)));
    (latest, wake)
}

struct Reader {
    paths: Vec<PathBuf>,
    watches: Option<Watches>,
    directories: BTreeSet<PathBuf>,
}

impl Reader {
    fn run(mut self, poll: Duration, events: &Receiver<()>, latest: &watch::Sender<Latest>) {
        while !latest.is_closed() {
            let snapshot = self.read();
            latest.send_if_modified(|latest| {
                let differs = latest.as_ref().is_none_or(|latest| latest.digest != snapshot.digest);
                if differs {
                    *latest = Some(Arc::new(snapshot));
                }
                differs
            });
            if events.recv_timeout(poll).is_ok() {
                let end = Instant::now() + MAX_DELAY;
                while Instant::now() < end && events.recv_timeout(QUIET) != Err(RecvTimeoutError::Timeout) {}
            }
        }
    }

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
