//! The log of notarizations and revocations, whose proofs are part of responses.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use lucid_audit::Log;
use lucid_audit::follow::LogFollower;
use lucid_audit::log::{AppendError, Options};
use lucid_audit::proof::Proof;
use lucid_notary::Digest;
use serde::{Deserialize, Serialize};
use snafu::{ResultExt, Snafu};

use crate::registry::Registry;

/// Name of a log whose key is generated.
const ORIGIN: &str = "lucid.computing/verifier";
/// Maximum number of records in one call of the log.
const BATCH: usize = 1024;
/// Time within which all records have to be sealed.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// The log does not have all of the registry.
#[derive(Debug, Snafu)]
pub(crate) enum UpdateError {
    #[snafu(display("failed to log the changes of the registry"))]
    Append { source: AppendError },
    #[snafu(display("failed to log the changes of the registry within {PATIENCE:?}"))]
    Late,
}

/// A record, to which the log adds its position.
#[derive(Debug, Serialize)]
struct Change {
    time: Timestamp,
    event: Event,
    digest: Digest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Event {
    Notarize,
    Revoke,
}

/// Position and content of the latest record of each digest, ordered so that the log follows from the registry.
type Latest = BTreeMap<Digest, (u64, Event)>;

#[derive(Debug)]
pub(crate) struct RegistryLog {
    directory: PathBuf,
    log: Log,
    latest: Mutex<Latest>,
    updating: tokio::sync::Mutex<()>,
}

impl RegistryLog {
    /// Opens the log in `directory`, sealed by the key in a file or by a generated one. Blocks on disk I/O.
    pub(crate) fn open(directory: &Path, key: Option<&Path>) -> Result<Self, Box<dyn Error>> {
        let options = match key {
            None => Options::new().with_generated_key(ORIGIN),
            Some(path) => {
                let key = fs::read_to_string(path).map_err(Into::into).and_then(|text| Ok(text.parse()?));
                let failed = |error: Box<dyn Error>| format!("failed to read {}: {error}", path.display());
                Options::new().with_key(key.map_err(failed)?)
            }
        };
        let log = Log::open(directory, options)?;
        #[derive(Deserialize)]
        struct Line {
            seq: u64,
            event: Event,
            digest: Digest,
        }
        let mut latest = Latest::new();
        LogFollower::new(directory).poll(|line| {
            // Records that the log writes about itself have other events.
            if let Ok(Line { seq, event, digest }) = serde_json::from_slice(line) {
                latest.insert(digest, (seq, event));
            }
        })?;
        let (latest, updating) = (Mutex::new(latest), tokio::sync::Mutex::default());
        Ok(Self { directory: directory.to_owned(), log, latest, updating })
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs how `registry` differs from the log, and waits until that is sealed.
    pub(crate) async fn update(self: &Arc<Self>, registry: &Registry) -> Result<(), UpdateError> {
        let notarized: BTreeSet<_> = registry.entries().map(|(digest, _)| digest.clone()).collect();
        let log = Arc::clone(self);
        // It goes on if it is late: the log may keep what nobody waits for any more.
        let appended = tokio::spawn(async move { log.append(&notarized).await });
        match tokio::time::timeout(PATIENCE, appended).await {
            Ok(Ok(appended)) => appended,
            Ok(Err(_)) | Err(_) => LateSnafu.fail(),
        }
    }

    async fn append(&self, notarized: &BTreeSet<Digest>) -> Result<(), UpdateError> {
        let _updating = self.updating.lock().await;
        let changes: Vec<_> = {
            let latest = self.latest();
            let is_logged = |digest| latest.get(digest).is_some_and(|(_, event)| *event == Event::Notarize);
            let added = notarized.iter().filter(|digest| !is_logged(digest));
            let revoked = latest.keys().filter(|digest| is_logged(digest) && !notarized.contains(digest));
            let added = added.map(|digest| (digest.clone(), Event::Notarize));
            added.chain(revoked.map(|digest| (digest.clone(), Event::Revoke))).collect()
        };
        let time = Timestamp::now();
        for batch in changes.chunks(BATCH) {
            let appended = join_all(batch.iter().map(async |(digest, event)| {
                let change = Change { time, event: *event, digest: digest.clone() };
                // Infallible: every field is representable in JSON.
                let anchor = self.log.append(serde_json::to_vec(&change).unwrap_or_default()).await?;
                self.latest().insert(digest.clone(), (anchor.seq, *event));
                Ok(())
            }));
            appended.await.into_iter().collect::<Result<(), _>>().context(AppendSnafu)?;
        }
        loop {
            let status = self.log.status();
            if status.sealed_size >= status.size {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns the proof that the latest record of the digest is what the registry says; `None` if it is another or not
    /// sealed. Blocks on disk I/O.
    pub(crate) fn proof(&self, digest: &Digest, is_notarized: bool) -> Option<Proof> {
        let (seq, event) = *self.latest().get(digest)?;
        let proof = ((event == Event::Notarize) == is_notarized).then(|| Proof::of(&self.directory, seq))?;
        proof.inspect_err(|error| tracing::warn!(%digest, %error, "failed to prove a record of the log")).ok()
    }
}
