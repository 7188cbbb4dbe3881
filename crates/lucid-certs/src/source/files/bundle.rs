//! A trust bundle in a file.

use std::{fmt, path::PathBuf};

use tokio::{sync::watch, task};
use tracing::{info, warn};

use super::{Watching, set::FileSet, text};
use crate::{
    bundle::TrustBundle,
    source::{Reason, SourceError, pair},
};

/// A trust bundle in a PEM file, such as the CAs of client certificates. The file is reloaded when it
/// changes.
///
/// If the file is missing, unreadable or truncated, the last valid bundle stays in use. Expired certificates
/// stay in the bundle; verifiers check the validity period.
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
/// Clones share the same state. The file is watched until the last clone and the last receiver of the
/// [problem](Self::problem) are dropped.
#[derive(Clone)]
pub struct BundleFile {
    bundle: watch::Receiver<TrustBundle>,
    problem: watch::Receiver<Option<SourceError>>,
}

impl BundleFile {
    /// Loads the bundle and starts watching the file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file has no valid bundle.
    ///
    /// # Panics
    ///
    /// Panics if called outside of a tokio runtime.
    pub async fn load(path: impl Into<PathBuf>, watching: Watching) -> Result<Self, SourceError> {
        let path = path.into();
        let mut file = FileSet::new(vec![path.clone()], watching);
        let (sender, bundle) = watch::channel(read(&path, &mut file).await?);
        let (problems, problem) = watch::channel(None);
        task::spawn(async move {
            loop {
                tokio::select! {
                    () = problems.closed() => return,
                    () = file.changed() => {}
                }
                follow(&path, read(&path, &mut file).await, &sender, &problems);
            }
        });
        Ok(Self { bundle, problem })
    }

    /// Returns the last valid bundle.
    #[must_use]
    pub fn current(&self) -> TrustBundle {
        self.bundle.borrow().clone()
    }

    /// Returns a receiver of the last valid bundle and its successors. The channel closes when the file is no
    /// longer watched.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<TrustBundle> {
        self.bundle.clone()
    }

    /// Returns a receiver of the current problem: why the last valid bundle differs from the file, or `None`.
    #[must_use]
    pub fn problem(&self) -> watch::Receiver<Option<SourceError>> {
        self.problem.clone()
    }
}

fn follow(
    path: &std::path::Path,
    found: Result<TrustBundle, SourceError>,
    bundle: &watch::Sender<TrustBundle>,
    problems: &watch::Sender<Option<SourceError>>,
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
            warn!(reason = problem.reason.as_str(), "{problem}; the last trust bundle stays in use");
            Some(problem)
        }
    };
    problems.send_if_modified(|current| {
        let differs = *current != problem;
        *current = problem;
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
