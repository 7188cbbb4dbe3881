//! A trust bundle in a file.

use std::path::{Path, PathBuf};

use tokio::{sync::watch, task};
use tracing::{info, warn};

use super::{Watching, set::FileSet, text};
use crate::{
    bundle::TrustBundle,
    source::{Reason, SourceError, pair},
};

/// Loads the trust bundle in a PEM file, such as the CAs of client certificates, and reloads it when the file changes, which
/// is detected as for [`FileSource`](super::FileSource).
///
/// Returns a receiver of the last valid bundle and its successors. The file is watched until the last receiver is dropped.
/// If it is missing, unreadable or truncated, the last valid bundle stays in use, and a warning is logged. Expired
/// certificates stay in the bundle; verifiers check the validity period.
///
/// # Errors
///
/// Returns an error if the file has no valid bundle.
///
/// # Panics
///
/// Panics if called outside of a tokio runtime.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let mut bundle = lucid_certs::source::watch_bundle("/client-ca/ca.crt").await?;
/// while bundle.changed().await.is_ok() {
///     println!("{} authorities", bundle.borrow_and_update().certificates().count());
/// }
/// # Ok(())
/// # }
/// ```
pub async fn watch_bundle(path: impl Into<PathBuf>) -> Result<watch::Receiver<TrustBundle>, SourceError> {
    load(path.into(), Watching::default()).await
}

async fn load(path: PathBuf, watching: Watching) -> Result<watch::Receiver<TrustBundle>, SourceError> {
    let mut file = FileSet::new(vec![path.clone()], watching);
    let (bundle, receiver) = watch::channel(read(&path, &mut file).await?);
    task::spawn(async move {
        loop {
            tokio::select! {
                () = bundle.closed() => return,
                () = file.changed() => {}
            }
            follow(&path, read(&path, &mut file).await, &bundle);
        }
    });
    Ok(receiver)
}

fn follow(path: &Path, found: Result<TrustBundle, SourceError>, bundle: &watch::Sender<TrustBundle>) {
    match found {
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
        }
        Err(problem) => {
            warn!(reason = problem.reason.as_str(), "{problem}; the last trust bundle stays in use");
        }
    }
}

async fn read(path: &Path, file: &mut FileSet) -> Result<TrustBundle, SourceError> {
    let snapshot = file.read().await?;
    match snapshot.contents.first() {
        Some(content) => pair::bundle(&text(path, content)?),
        None => Err(SourceError::new(Reason::Missing, "no file was named")),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        time::{Duration, SystemTime},
    };

    use lucid_e2e::AtomicWriter;
    use tokio::{
        runtime::Handle,
        task::yield_now,
        time::{sleep, timeout},
    };

    use super::*;
    use crate::{ca::CertificateAuthority, names::ServingNames};

    fn generate() -> TrustBundle {
        let names = ServingNames::for_hosts(&["127.0.0.1"]).unwrap();
        CertificateAuthority::generate(&names, SystemTime::now()).unwrap().trust_bundle()
    }

    #[tokio::test]
    async fn a_bundle_is_reloaded_and_the_last_valid_one_kept() {
        for watching in [
            Watching { events: true, poll: Duration::from_hours(1) },
            Watching { events: false, poll: Duration::from_millis(10) },
        ] {
            let [first, second, third] = [(); 3].map(|()| generate());
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("ca.crt");
            let missing = load(path.clone(), watching).await.unwrap_err();
            assert_eq!(missing.reason, Reason::Missing);

            fs::write(&path, first.to_pem()).unwrap();
            let mut bundle = load(path.clone(), watching).await.unwrap();
            assert_eq!(*bundle.borrow(), first);
            let mut becomes = async |expected: &TrustBundle| {
                let found = bundle.wait_for(|bundle| bundle == expected);
                drop(timeout(Duration::from_secs(60), found).await.unwrap().unwrap());
                bundle.clone()
            };

            fs::write(&path, first.to_pem() + &second.to_pem()).unwrap();
            let both = first.merge(&second);
            let kept = becomes(&both).await;

            let problem = async || {
                sleep(Duration::from_millis(500)).await;
                assert_eq!(*kept.borrow(), both);
                assert!(!kept.has_changed().unwrap());
                let mut file = FileSet::new(vec![path.clone()], watching);
                let problem = read(&path, &mut file).await.unwrap_err();
                assert!(problem.to_string().contains("ca.crt"));
                problem.reason
            };
            fs::write(&path, &first.to_pem()[..100]).unwrap();
            assert_eq!(problem().await, Reason::Malformed);
            fs::remove_file(&path).unwrap();
            assert_eq!(problem().await, Reason::Missing);

            fs::write(&path, third.to_pem()).unwrap();
            becomes(&third).await;
        }
    }

    #[tokio::test]
    async fn a_bundle_is_watched_while_a_receiver_remains() {
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let folder = tempfile::tempdir().unwrap();
        let volume = AtomicWriter::new(folder.path());
        let put = |bundle: &TrustBundle| {
            volume.write(&[("ca.crt".to_owned(), bundle.to_pem().into_bytes())].into()).unwrap();
        };
        put(&generate());
        let first = watch_bundle(folder.path().join("ca.crt")).await.unwrap();
        let mut second = first.clone();
        drop(first);
        for next in [(); 3].map(|()| generate()) {
            put(&next);
            let found = second.wait_for(|bundle| *bundle == next);
            drop(timeout(Duration::from_secs(60), found).await.unwrap().unwrap());
        }
        assert_eq!(tasks(), 1);
        drop(second);
        let end = async {
            while tasks() > 0 {
                yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), end).await.unwrap();
    }
}
