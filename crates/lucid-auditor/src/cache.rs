//! Cache of verdicts on whole texts.

use std::time::Duration;

use moka::{future, policy::EvictionPolicy};
use sha2::{Digest as _, Sha256};

use crate::{JudgeError, Passage, Verdict};

/// Length in bytes of the texts of a verdict that count as one verdict more.
const UNIT: usize = 256;

/// Cache of a judge's verdicts: see [`JudgePolicy::cache`](crate::JudgePolicy::cache).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Maximum number of verdicts. Those with many spans or long messages count as several. 0 disables the cache. Default:
    /// 10,000.
    pub size: u64,
    /// Time to live of a verdict. Default: a day.
    pub ttl: Duration,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { size: 10_000, ttl: Duration::from_secs(24 * 60 * 60) }
    }
}

impl CacheOptions {
    /// Sets the maximum number of verdicts.
    #[must_use]
    pub const fn with_size(mut self, size: u64) -> Self {
        self.size = size;
        self
    }

    /// Sets the time to live of a verdict.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }
}

/// SHA-256 of a text, its direction and its role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key([u8; 32]);

impl Key {
    pub(crate) fn of(passage: &Passage<'_>) -> Self {
        let mut hash = Sha256::new();
        for part in [passage.direction.as_str(), passage.role.as_deref().unwrap_or_default()] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        hash.update(&*passage.text);
        Self(hash.finalize().into())
    }
}

/// The verdicts that were used last. Texts are not kept, and neither are errors.
#[derive(Debug)]
pub(crate) struct Cache(future::Cache<Key, Verdict>);

impl Cache {
    /// Returns `None` for an empty cache.
    pub(crate) fn new(options: CacheOptions) -> Option<Self> {
        (options.size > 0).then_some(())?;
        let builder = future::Cache::builder()
            .max_capacity(options.size)
            .weigher(|_, verdict| weight(verdict))
            .eviction_policy(EvictionPolicy::lru())
            .time_to_live(options.ttl);
        Some(Self(builder.build()))
    }

    /// Returns the cached verdict, or the one of `judge`, and whether it is cached. Concurrent calls for a text wait for one
    /// verdict.
    pub(crate) async fn get_or(
        &self,
        key: Key,
        judge: impl Future<Output = Result<Verdict, JudgeError>>,
    ) -> Result<(Verdict, bool), JudgeError> {
        match self.0.entry(key).or_try_insert_with(judge).await {
            Ok(entry) => {
                let is_cached = !entry.is_fresh();
                Ok((entry.into_value(), is_cached))
            }
            Err(error) => Err(JudgeError::new(error.to_string())),
        }
    }
}

fn weight(verdict: &Verdict) -> u32 {
    let bytes = match verdict {
        Verdict::Allow => 0,
        Verdict::Deny { rule, message } => rule.len() + message.len(),
        Verdict::Mask(spans) => {
            spans.iter().map(|span| size_of_val(span) + span.rule.len() + span.replacement.len()).sum()
        }
    };
    u32::try_from(1 + bytes / UNIT).unwrap_or(u32::MAX)
}
