//! Cache of verdicts.

use std::sync::Arc;
use std::time::Duration;

use lucid_auditor::{Passage, Verdict};
use moka::future;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// Options of a cache of verdicts.
///
/// Clients send the whole conversation with each request, so most of its messages were judged before.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Maximum number of verdicts, each span of a mask counted as one. 0 disables the cache. Default: 10,000.
    pub size: u64,
    /// Time to live of a verdict. Default: `1m`.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub ttl: Duration,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { size: 10_000, ttl: Duration::from_secs(60) }
    }
}

/// A bounded cache of verdicts that coalesces concurrent requests for a text. It keeps hashes, not texts. Errors are not
/// cached.
#[derive(Debug)]
pub(crate) struct Cache(future::Cache<[u8; 32], Verdict>);

impl Cache {
    pub(crate) fn new(options: &CacheOptions) -> Self {
        let weight = |_: &_, verdict: &Verdict| match verdict {
            Verdict::Mask(spans) => u32::try_from(spans.len()).unwrap_or(u32::MAX).max(1),
            _ => 1,
        };
        let builder = future::Cache::builder().max_capacity(options.size).weigher(weight);
        Self(builder.time_to_live(options.ttl).build())
    }

    /// Returns the cached verdict on the text in its direction, or the one of `judge`.
    pub(crate) async fn get_or<E: Send + Sync + 'static>(
        &self,
        passage: &Passage<'_>,
        judge: impl Future<Output = Result<Verdict, E>>,
    ) -> Result<Verdict, Arc<E>> {
        let hash = Sha256::new_with_prefix(passage.direction.as_str())
            .chain_update([0])
            .chain_update(&*passage.text);
        self.0.try_get_with(hash.finalize().into(), judge).await
    }
}
