//! What is made of files, and made again when they change.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use snafu::{ResultExt, Snafu};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tower::BoxError;

/// For how long what was read is taken to be what the files hold.
const PACE: Duration = Duration::from_secs(1);

/// How long is waited for files: a file system of another machine may never answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// Why a file is of no use.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum FileError {
    /// It cannot be read.
    #[snafu(display("failed to read {}: {source}", path.display()))]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It holds something else than is accepted.
    #[snafu(display("failed to use {what}: {source}"))]
    Content {
        /// Which file or files.
        what: String,
        /// What was found, and what is accepted.
        source: BoxError,
    },
}

type Make<T> = Box<dyn Fn(&[Vec<u8>]) -> Result<T, BoxError> + Send + Sync>;
type OnChange = Box<dyn Fn(bool) + Send + Sync>;
type Contents = Result<Vec<Vec<u8>>, FileError>;

/// A value made of the contents of files. Who asks for it a second or more after the files have changed gets the new
/// one. While they cannot be used, or cannot be read within half a second, the last good value stays, with a warning
/// in the log: a rotation that is half done must not end what works.
///
/// The files are read and compared, not watched: a mounted Secret changes by swapped links, which watches of files miss.
///
/// ```
/// use lucid_notary::client::Reread;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let limit = Reread::open(vec!["/etc/limit".into()], |files| {
///     let text = str::from_utf8(files.first().ok_or("no file")?)?;
///     Ok(text.trim().parse::<u32>()?)
/// })?
/// .on_change(|is_ok| println!("{}", if is_ok { "a new limit" } else { "the limit cannot be read" }));
/// println!("at most {}", limit.get().await);
/// # Ok(()) }
/// ```
pub struct Reread<T> {
    files: Vec<PathBuf>,
    make: Make<T>,
    on_change: OnChange,
    hasher: RandomState,
    known: ArcSwap<Known<T>>,
    /// Begun when, by whoever has the lock; and still there when that one did not wait to the end. There is one at a time: files
    /// that never answer take one thread.
    reading: Mutex<Option<(Instant, JoinHandle<Contents>)>>,
}

struct Known<T> {
    value: Arc<T>,
    /// When the files were looked at.
    at: Instant,
    /// The hash of what was found then, usable or not; none when it could not be read. Not the content: it may be a secret.
    found: Option<u64>,
}

impl<T> fmt::Debug for Reread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reread").field("files", &self.files).finish_non_exhaustive()
    }
}

impl<T> Reread<T> {
    /// Reads the files and makes the first value of their contents, which `make` gets in the order of `files`. Without files
    /// it is made once.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or `make` makes nothing of them.
    pub fn open(
        files: Vec<PathBuf>,
        make: impl Fn(&[Vec<u8>]) -> Result<T, BoxError> + Send + Sync + 'static,
    ) -> Result<Self, FileError> {
        let at = Instant::now();
        let contents = read_all(&files)?;
        let value = make(&contents).context(ContentSnafu { what: names(&files) })?;
        let hasher = RandomState::new();
        let found = Some(hasher.hash_one(&contents));
        let known = ArcSwap::from_pointee(Known { value: Arc::new(value), at, found });
        let on_change = Box::new(|_| ());
        Ok(Self { files, make: Box::new(make), on_change, hasher, known, reading: Mutex::new(None) })
    }

    /// Calls this when other contents were found, with whether they are in use now; such as for a metric.
    #[must_use]
    pub fn on_change(self, call: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self { on_change: Box::new(call), ..self }
    }

    /// The value. Waits for files half a second at most.
    pub async fn get(&self) -> Arc<T> {
        let known = self.known.load_full();
        if self.is_recent(&known) {
            return Arc::clone(&known.value);
        }
        match timeout(PATIENCE, self.reread()).await {
            Ok(value) => value,
            Err(_) => {
                let files = names(&self.files);
                tracing::warn!(
                    "{files} cannot be read within {PATIENCE:?}; what was read before stays in use"
                );
                // Others need not wait as long.
                let known = self.known.load_full();
                let value = Arc::clone(&known.value);
                self.known.store(Arc::new(Known { value, at: Instant::now(), found: known.found }));
                Arc::clone(&known.value)
            }
        }
    }

    async fn reread(&self) -> Arc<T> {
        let mut reading = self.reading.lock().await;
        loop {
            let known = self.known.load_full();
            if self.is_recent(&known) {
                return Arc::clone(&known.value);
            }
            let (begun, contents) = reading.get_or_insert_with(|| {
                let files = self.files.clone();
                (Instant::now(), spawn_blocking(move || read_all(&files)))
            });
            let (at, contents) = (*begun, contents.await);
            *reading = None;
            // A runtime that ends has not read.
            let Ok(contents) = contents else { return Arc::clone(&known.value) };
            self.renew(&known, contents, at);
        }
    }

    fn is_recent(&self, known: &Known<T>) -> bool {
        self.files.is_empty() || known.at.elapsed() < PACE
    }

    fn renew(&self, known: &Known<T>, contents: Contents, at: Instant) {
        let found = contents.as_ref().ok().map(|contents| self.hasher.hash_one(contents));
        let mut value = Arc::clone(&known.value);
        if found != known.found {
            let made = contents.and_then(|contents| {
                (self.make)(&contents).context(ContentSnafu { what: names(&self.files) })
            });
            (self.on_change)(made.is_ok());
            match made {
                Ok(made) => value = Arc::new(made),
                Err(error) => tracing::warn!(%error, "what was read before stays in use"),
            }
        }
        self.known.store(Arc::new(Known { value, at, found }));
    }
}

fn read_all(files: &[PathBuf]) -> Contents {
    files.iter().map(|path| std::fs::read(path).context(ReadSnafu { path })).collect()
}

fn names(files: &[impl AsRef<Path>]) -> String {
    let names: Vec<_> = files.iter().map(|path| path.as_ref().display().to_string()).collect();
    names.join(" and ")
}
