//! A trust bundle that others keep in a file

use std::{fmt, path::PathBuf, sync::Arc};

use tokio::{
    sync::watch,
    task::{self, AbortHandle},
};
use tracing::{info, warn};

use super::{Watching, set::FileSet, text};
use crate::{
    bundle::TrustBundle,
    source::{Reason, SourceError, pair},
};

/// A trust bundle in a PEM file, such as the authorities of client certificates, which is read again when
/// it changes.
///
/// A file that is missing, unreadable or cut off leaves the last good bundle in use. Certificates that are
/// expired stay in the bundle; who verifies with it looks at the time.
///
/// ```no_run
/// use lucid_certs::source::{BundleFile, Watching};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let clients = BundleFile::load("/client-ca/ca.crt", Watching::default()).await?;
/// let mut bundle = clients.subscribe();
/// while bundle.changed().await.is_ok() {
///     println!("{} authorities", bundle.borrow_and_update().certificates().count());
/// }
/// # Ok(())
/// # }
/// ```
///
/// Clones are the same. The file is followed for as long as one of them lives.
#[derive(Clone)]
pub struct BundleFile {
    bundle: watch::Receiver<TrustBundle>,
    problem: watch::Receiver<Option<SourceError>>,
    _task: Arc<Task>,
}

impl BundleFile {
    /// Reads the bundle, and follows the file from then on.
    ///
    /// # Errors
    ///
    /// When there is no bundle yet: why.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn load(path: impl Into<PathBuf>, watching: Watching) -> Result<Self, SourceError> {
        let path = path.into();
        let mut file = FileSet::new(vec![path.clone()], watching);
        let (sender, bundle) = watch::channel(read(&path, &mut file).await?);
        let (complaints, problem) = watch::channel(None);
        let followed = task::spawn(async move {
            loop {
                file.changed().await;
                follow(&path, read(&path, &mut file).await, &sender, &complaints);
            }
        });
        Ok(Self { bundle, problem, _task: Arc::new(Task(followed.abort_handle())) })
    }

    /// The last good bundle
    #[must_use]
    pub fn current(&self) -> TrustBundle {
        self.bundle.borrow().clone()
    }

    /// The last good bundle, and each that follows. It ends when the last clone of this is gone.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<TrustBundle> {
        self.bundle.clone()
    }

    /// Why the file is not what is in use, while that is so; and each change of that
    #[must_use]
    pub fn problem(&self) -> watch::Receiver<Option<SourceError>> {
        self.problem.clone()
    }
}

fn follow(
    path: &std::path::Path,
    found: Result<TrustBundle, SourceError>,
    bundle: &watch::Sender<TrustBundle>,
    complaints: &watch::Sender<Option<SourceError>>,
) {
    let problem = match found {
        Ok(found) => {
            let differs = bundle.send_if_modified(|bundle| {
                let differs = *bundle != found;
                *bundle = found;
                differs
            });
            if differs {
                let bundle: Vec<_> = bundle.borrow().fingerprints().map(|held| held.to_string()).collect();
                info!(path = %path.display(), bundle = bundle.join(", "), "trust bundle reloaded");
            }
            None
        }
        Err(problem) => {
            warn!(reason = problem.reason.as_str(), "the trust bundle in use stays: {problem}");
            Some(problem)
        }
    };
    complaints.send_if_modified(|complaint| {
        let differs = *complaint != problem;
        *complaint = problem;
        differs
    });
}

async fn read(path: &std::path::Path, file: &mut FileSet) -> Result<TrustBundle, SourceError> {
    let snapshot = file.read().await?;
    match snapshot.contents.first() {
        Some(content) => pair::bundle(&text(path, content)?),
        None => Err(SourceError::new(Reason::Missing, "no file was named")),
    }
}

impl fmt::Debug for BundleFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bundle: Vec<_> = self.bundle.borrow().fingerprints().collect();
        f.debug_struct("BundleFile").field("bundle", &bundle).finish_non_exhaustive()
    }
}

/// Ends with the last who asks
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
