use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Metrics;
use crate::note::{SigningKey, VerifierKey};

/// Options of a [`Log`](super::Log).
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) key: Option<Arc<SigningKey>>,
    /// Name of the log whose key is generated, if no key is given.
    pub(super) generate: Option<String>,
    pub(super) segment_bytes: u64,
    pub(super) keep_bytes: Option<u64>,
    pub(super) keep_age: Option<Duration>,
    pub(super) seal_interval: Duration,
    pub(super) adopt: bool,
    pub(super) witnesses: Vec<VerifierKey>,
    pub(crate) metrics: Metrics,
    #[cfg(test)]
    pub(super) faults: super::segment::Faults,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            key: None,
            generate: None,
            segment_bytes: 64 << 20,
            keep_bytes: None,
            keep_age: None,
            seal_interval: Duration::from_millis(200),
            adopt: false,
            witnesses: Vec::new(),
            metrics: Metrics::default(),
            #[cfg(test)]
            faults: super::segment::Faults::default(),
        }
    }
}

impl Options {
    /// Creates the default options: an unsealed log with segments of 64 MiB.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Seals the log with `key`: a Merkle tree over the lines and a signed checkpoint. The name of the key is the log's
    /// origin.
    #[must_use]
    pub fn with_key(mut self, key: SigningKey) -> Self {
        self.key = Some(Arc::new(key));
        self
    }

    /// Seals the log with a key in its own directory, generated when the log is first opened. `origin` is the name of the
    /// log. A log that was never sealed is sealed from then on.
    #[must_use]
    pub fn with_generated_key(mut self, origin: impl Into<String>) -> Self {
        self.generate = Some(origin.into());
        self
    }

    /// Prunes a sealed log: removes the oldest segments while the log occupies more than `bytes` (default unlimited). A
    /// segment begins after an eighth of that at the latest. Segments that differ from what was sealed are not removed.
    #[must_use]
    pub const fn with_keep_bytes(mut self, bytes: u64) -> Self {
        self.keep_bytes = Some(bytes);
        self
    }

    /// Prunes a sealed log: removes segments whose last record is older than `age` (default unlimited), also if no record
    /// follows. A segment ends after an eighth of that at the latest.
    #[must_use]
    pub const fn with_keep_age(mut self, age: Duration) -> Self {
        self.keep_age = Some(age);
        self
    }

    pub(super) fn segment_limit(&self) -> u64 {
        self.segment_bytes.min(self.keep_bytes.map_or(u64::MAX, |bytes| bytes / 8)).max(4096)
    }

    /// Sets the size at which a new segment begins, in bytes (default 64 MiB, minimum 4 KiB).
    #[must_use]
    pub const fn with_segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = if bytes < 4096 { 4096 } else { bytes };
        self
    }

    /// Sets the minimum interval between seals (default 200 ms). On a slow disk the interval grows, so that sealing takes at
    /// most a tenth of the time. Records are sealed immediately if the last seal is older than the interval.
    #[must_use]
    pub const fn with_seal_interval(mut self, interval: Duration) -> Self {
        self.seal_interval = interval;
        self
    }

    /// Permits sealing a log that was sealed with another key of the same name, or was never sealed. The change is recorded
    /// as an event. Without this option, such a log is not opened.
    #[must_use]
    pub const fn with_adoption(mut self, adopt: bool) -> Self {
        self.adopt = adopt;
        self
    }

    /// Sets the witnesses whose cosignatures of checkpoints are accepted (default none).
    #[must_use]
    pub fn with_witnesses(mut self, witnesses: impl IntoIterator<Item = VerifierKey>) -> Self {
        self.witnesses = witnesses.into_iter().collect();
        self
    }
}
