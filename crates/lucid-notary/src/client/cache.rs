use std::time::Duration;

use moka::future;
use tokio::time::Instant;
use tower::BoxError;

use super::answer::Answer;
use super::breaker::BreakerOpen;
use crate::digest::Digest;
use crate::verdict::{CheckedVerdict, NotaryVerdict, Provenance};

/// Time to live of cached verdicts. Zero disables caching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeToLive {
    /// Time to live of notarized digests, and thus the delay until a revocation takes effect. Default: 60 s.
    pub notarized: Duration,
    /// Time to live of digests that are not notarized. Default: 5 s.
    pub not_notarized: Duration,
    /// Time to live of failures. Default: 2 s.
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

#[derive(Debug)]
pub(super) struct Cache {
    entries: future::Cache<Digest, Entry>,
    time_to_live: TimeToLive,
}

#[derive(Clone, Debug)]
struct Entry {
    verdict: NotaryVerdict,
    at: Instant,
    time_to_live: Duration,
}

impl Entry {
    fn is_expired(&self) -> bool {
        self.at.elapsed() >= self.time_to_live
    }
}

impl Cache {
    pub(super) fn new(time_to_live: TimeToLive, digests: u64) -> Self {
        Self { entries: future::Cache::new(digests), time_to_live }
    }

    pub(super) async fn get(&self, digest: &Digest) -> Option<CheckedVerdict> {
        let entry = self.entries.get(digest).await.filter(|entry| !entry.is_expired())?;
        let age = entry.at.elapsed();
        Some(CheckedVerdict::new(entry.verdict, Provenance::Cached { age }))
    }

    /// Returns the verdict, and `true` for a coalesced request.
    pub(super) async fn get_or_request(
        &self,
        digest: Digest,
        request: impl Future<Output = Result<Answer, BoxError>> + Send,
    ) -> (NotaryVerdict, bool) {
        let init = async { self.entry(request.await) };
        let entry = self.entries.entry(digest).or_insert_with_if(init, Entry::is_expired).await;
        let is_coalesced = !entry.is_fresh();
        (entry.into_value().verdict, is_coalesced)
    }

    pub(super) async fn insert(&self, digest: Digest, answer: Answer) {
        self.entries.insert(digest, self.entry(Ok(answer))).await;
    }

    fn entry(&self, result: Result<Answer, BoxError>) -> Entry {
        let (verdict, time_to_live) = match result {
            Ok(Answer::Notarized) => (NotaryVerdict::Notarized, self.time_to_live.notarized),
            Ok(answer) => (answer.into(), self.time_to_live.not_notarized),
            // Rejections are not cached: they end with the breaker's pause.
            Err(error) if error.is::<BreakerOpen>() => (NotaryVerdict::unknown(error), Duration::ZERO),
            Err(error) => (NotaryVerdict::unknown(error), self.time_to_live.unknown),
        };
        Entry { verdict, at: Instant::now(), time_to_live }
    }
}
