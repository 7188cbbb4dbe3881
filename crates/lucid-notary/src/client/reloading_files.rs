//! Values derived from files that are reloaded when they change.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use snafu::{ResultExt, Snafu};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tower::BoxError;

const FRESHNESS: Duration = Duration::from_secs(1);

/// Maximum wait for a read: network file systems may hang.
const READ_TIMEOUT: Duration = Duration::from_millis(500);

/// Files cannot be used.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)), display("failed to {action} {files}: {source}"))]
pub struct FileError {
    action: &'static str,
    files: String,
    source: BoxError,
}

type Make<T, C> = Box<dyn Fn(&C) -> Result<T, BoxError> + Send + Sync>;
type OnChange = Box<dyn Fn(bool) + Send + Sync>;
type Read<C> = fn(&[PathBuf]) -> Result<C, FileError>;
type Reading<C> = JoinHandle<Result<C, FileError>>;

const USE: &str = "use";

/// A value derived from the contents of files.
///
/// [`get`](Self::get) returns the new value within a second after the files change. If they are invalid, or cannot be
/// read within half a second, the last valid value stays in use and a warning is logged, so that an incomplete
/// rotation does not cause failures.
///
/// Files are polled rather than watched: a mounted Secret is updated by swapping symbolic links, which file watches
/// miss.
pub(super) struct ReloadingFiles<T, C = Vec<Vec<u8>>> {
    files: Vec<PathBuf>,
    read: Read<C>,
    make: Make<T, C>,
    on_change: OnChange,
    hasher: RandomState,
    known: ArcSwap<Known<T>>,
    /// Start and task of the current read. It outlives callers that time out. At most one read runs at a time, so
    /// hanging files occupy one thread.
    reading: Mutex<Option<(Instant, Reading<C>)>>,
}

struct Known<T> {
    value: Arc<T>,
    at: Instant,
    /// Hash of the contents last read, valid or not; `None` if the read failed. The contents themselves may be secret
    /// and are not kept.
    found: Option<u64>,
}

impl<T, C> fmt::Debug for ReloadingFiles<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReloadingFiles").field("files", &self.files).finish_non_exhaustive()
    }
}

impl<T> ReloadingFiles<T> {
    /// Reads the files and derives the first value. `make` receives the contents in the order of `files`. Without
    /// files it is called once.
    pub(super) fn open(
        files: Vec<PathBuf>,
        make: impl Fn(&[Vec<u8>]) -> Result<T, BoxError> + Send + Sync + 'static,
    ) -> Result<Self, FileError> {
        Self::open_with(files, read_all, Box::new(move |contents| make(contents)))
    }
}

impl<T, C: Hash + Send + 'static> ReloadingFiles<T, C> {
    /// Like [`open`](ReloadingFiles::open), with a function that reads the files.
    pub(super) fn open_with(files: Vec<PathBuf>, read: Read<C>, make: Make<T, C>) -> Result<Self, FileError> {
        let at = Instant::now();
        let contents = read(&files)?;
        let value = make(&contents).context(FileSnafu { action: USE, files: names(&files) })?;
        let hasher = RandomState::new();
        let found = Some(hasher.hash_one(&contents));
        let known = ArcSwap::from_pointee(Known { value: Arc::new(value), at, found });
        let on_change = Box::new(|_| ());
        Ok(Self { files, read, make, on_change, hasher, known, reading: Mutex::new(None) })
    }

    /// Sets a function to call when the contents have changed, with `true` if the new value is in use.
    pub(super) fn on_change(self, call: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self { on_change: Box::new(call), ..self }
    }

    /// Returns the value. Waits at most half a second for the files.
    pub(super) async fn get(&self) -> Arc<T> {
        let known = self.known.load_full();
        if self.is_recent(&known) {
            return Arc::clone(&known.value);
        }
        if timeout(READ_TIMEOUT, self.reload()).await.is_err() {
            let files = names(&self.files);
            tracing::warn!(
                "timed out reading {files} after {READ_TIMEOUT:?}; the last valid value stays in use"
            );
            // Postpones the next read, so that other callers do not wait as well.
            let Known { value, found, .. } = &*self.known.load_full();
            self.known.store(Arc::new(Known { value: value.clone(), at: Instant::now(), found: *found }));
        }
        Arc::clone(&self.known.load().value)
    }

    async fn reload(&self) {
        let mut reading = self.reading.lock().await;
        loop {
            let known = self.known.load_full();
            if self.is_recent(&known) {
                return;
            }
            let (begun, contents) = reading.get_or_insert_with(|| {
                let (files, read) = (self.files.clone(), self.read);
                (Instant::now(), spawn_blocking(move || read(&files)))
            });
            let (at, contents) = (*begun, contents.await);
            *reading = None;
            // The task fails only when the runtime shuts down.
            let Ok(contents) = contents else { return };
            self.renew(&known, contents, at);
        }
    }

    fn is_recent(&self, known: &Known<T>) -> bool {
        self.files.is_empty() || known.at.elapsed() < FRESHNESS
    }

    fn renew(&self, known: &Known<T>, contents: Result<C, FileError>, at: Instant) {
        let found = contents.as_ref().ok().map(|contents| self.hasher.hash_one(contents));
        let mut value = Arc::clone(&known.value);
        if found != known.found {
            let made = contents.and_then(|contents| {
                (self.make)(&contents).context(FileSnafu { action: USE, files: names(&self.files) })
            });
            (self.on_change)(made.is_ok());
            match made {
                Ok(made) => value = Arc::new(made),
                Err(error) => tracing::warn!(%error, "the last valid value stays in use"),
            }
        }
        self.known.store(Arc::new(Known { value, at, found }));
    }
}

fn read_all(files: &[PathBuf]) -> Result<Vec<Vec<u8>>, FileError> {
    let read = |path: &PathBuf| {
        let contents = std::fs::read(path).map_err(BoxError::from);
        contents.context(FileSnafu { action: "read", files: names(&[path]) })
    };
    files.iter().map(read).collect()
}

fn names(files: &[impl AsRef<Path>]) -> String {
    let names: Vec<_> = files.iter().map(|path| path.as_ref().display().to_string()).collect();
    names.join(" and ")
}
