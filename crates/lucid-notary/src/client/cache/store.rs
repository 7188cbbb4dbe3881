use std::fmt;
use std::time::Duration;

use moka::ops::compute::Op;
use tokio::time::Instant;
use tower::BoxError;

use crate::checked::{Checked, Provenance};
use crate::client::failure::{CachedFailure, SharedError, was_not_asked};
use crate::digest::Digest;
use crate::verdict::Verdict;

/// For how long what is known of a digest is taken to be so. Zero is not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeToLive {
    /// How long a digest stays notarized; so long a revocation may go unnoticed. Default: 60 s.
    pub notarized: Duration,
    /// How long it stays not notarized; so long may take, after it was notarized, what waits for it. Default: 5 s.
    pub not_notarized: Duration,
    /// How long nobody asks again after an ask that failed. Default: 2 s.
    pub unknown: Duration,
}

impl Default for TimeToLive {
    fn default() -> Self {
        Self {
            notarized: Duration::from_secs(60),
            not_notarized: Duration::from_secs(5),
            unknown: Duration::from_secs(2),
        }
    }
}

/// What is known of digests: the last answer and the last failure about each. Cheap to clone; clones share it.
///
/// The key is the digest, of which there is one spelling, never a tag. The number of digests is bounded; of more, those
/// that are asked about the least are forgotten.
#[derive(Clone)]
pub struct Cache {
    entries: moka::sync::Cache<Digest, Entry>,
    time_to_live: TimeToLive,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("time_to_live", &self.time_to_live).finish_non_exhaustive()
    }
}

#[derive(Clone, Default)]
struct Entry {
    answer: Option<(Answered, Instant)>,
    failure: Option<(SharedError, Instant)>,
}

/// A verdict that is none of failure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answered {
    Notarized,
    NotNotarized,
}

impl From<Answered> for Verdict {
    fn from(answered: Answered) -> Self {
        match answered {
            Answered::Notarized => Self::Notarized,
            Answered::NotNotarized => Self::NotNotarized,
        }
    }
}

impl Cache {
    /// An empty cache for at most so many digests.
    #[must_use]
    pub fn new(time_to_live: TimeToLive, digests: u64) -> Self {
        Self { entries: moka::sync::Cache::new(digests), time_to_live }
    }

    /// An answer that is taken to be so.
    pub(crate) fn answer(&self, digest: &Digest) -> Option<Checked> {
        let (answered, at) = self.entries.get(digest)?.answer?;
        let age = at.elapsed();
        let limit = match answered {
            Answered::Notarized => self.time_to_live.notarized,
            Answered::NotNotarized => self.time_to_live.not_notarized,
        };
        (age < limit).then(|| Checked::new(answered.into(), Provenance::Cached { age }))
    }

    /// A failure after which it is not asked again yet.
    pub(super) fn failure(&self, digest: &Digest) -> Option<CachedFailure> {
        let (error, at) = self.entries.get(digest)?.failure?;
        let age = at.elapsed();
        (age < self.time_to_live.unknown).then_some(CachedFailure { error, age })
    }

    /// The last answer, if it is that the digest is notarized, and at most so old.
    pub(crate) fn last_known_good(&self, digest: &Digest, oldest: Duration) -> Option<Checked> {
        let (answered, at) = self.entries.get(digest)?.answer?;
        let age = at.elapsed();
        let is_good = answered == Answered::Notarized && age <= oldest;
        is_good.then(|| Checked::new(Verdict::Notarized, Provenance::LastKnownGood { age }))
    }

    /// Keeps what came of an ask, and gives it back.
    pub(super) fn keep(
        &self,
        digest: &Digest,
        outcome: Result<Checked, BoxError>,
    ) -> Result<Checked, BoxError> {
        let now = Instant::now();
        match outcome {
            Ok(checked) => {
                let answered = match checked {
                    Checked { verdict: Verdict::Notarized, provenance: Provenance::Asked } => {
                        Answered::Notarized
                    }
                    Checked { verdict: Verdict::NotNotarized, provenance: Provenance::Asked } => {
                        Answered::NotNotarized
                    }
                    other => return Ok(other),
                };
                self.entries.insert(digest.clone(), Entry { answer: Some((answered, now)), failure: None });
                Ok(checked)
            }
            // What a breaker refuses costs nothing, and may be asked in a moment.
            Err(error) if was_not_asked(&*error) || self.time_to_live.unknown.is_zero() => Err(error),
            Err(error) => {
                let error = SharedError::new(error);
                let failure = Some((error.clone(), now));
                self.entries.entry_by_ref(digest).and_compute_with(|entry| {
                    let answer = entry.and_then(|entry| entry.into_value().answer);
                    Op::Put(Entry { answer, failure })
                });
                Err(error.into())
            }
        }
    }
}
