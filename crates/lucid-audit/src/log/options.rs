use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Metrics;
use crate::note::{SigningKey, VerifierKey};

/// Options of a [`Log`](super::Log).
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) key: Option<Arc<SigningKey>>,
    pub(super) segment_bytes: u64,
    pub(super) seal_interval: Duration,
    pub(super) adopt: bool,
    pub(super) witnesses: Vec<VerifierKey>,
    pub(super) metrics: Metrics,
    #[cfg(test)]
    pub(super) faults: super::segment::Faults,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            key: None,
            segment_bytes: 64 << 20,
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

    /// Sets the metrics to update (default unregistered metrics).
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }
}
