use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use snafu::Snafu;

use crate::metrics::Metrics;
use crate::note::{SigningKey, VerifierKey};

/// Durability that a record must reach to count as kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sync {
    /// Flushed to disk individually, with one write(2) and one fdatasync(2) per record.
    Always,
    /// Flushed to disk together with concurrent records, with one write(2) and one fdatasync(2) for up to 64 records. Records
    /// are not delayed to fill a batch.
    #[default]
    Batch,
    /// Accepted by the operating system and flushed to disk within this interval. Records survive the process being killed,
    /// but younger ones are lost in a power failure.
    Interval(Duration),
}

impl Sync {
    /// Interval of `interval` without a value.
    const INTERVAL: Duration = Duration::from_secs(1);
}

impl fmt::Display for Sync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::Batch => f.write_str("batch"),
            Self::Interval(interval) => write!(f, "interval={}ms", interval.as_millis()),
        }
    }
}

/// Error parsing a [`Sync`].
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display(
    "accepted are always, batch, interval (one second), and interval=MILLISECONDSms from 1 to 60000"
))]
pub struct ParseSyncError;

impl FromStr for Sync {
    type Err = ParseSyncError;

    fn from_str(text: &str) -> Result<Self, ParseSyncError> {
        match text {
            "always" => Ok(Self::Always),
            "batch" => Ok(Self::Batch),
            "interval" => Ok(Self::Interval(Self::INTERVAL)),
            _ => {
                let millis = text.strip_prefix("interval=").and_then(|text| text.strip_suffix("ms"));
                let millis = millis.and_then(|millis| millis.parse().ok());
                let millis = millis.filter(|millis| (1..=60_000).contains(millis)).ok_or(ParseSyncError)?;
                Ok(Self::Interval(Duration::from_millis(millis)))
            }
        }
    }
}

/// Options of a [`Log`](super::Log).
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) key: Option<Arc<SigningKey>>,
    pub(super) sync: Sync,
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
            sync: Sync::default(),
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
    /// Creates the default options: an unsealed log in batches, with segments of 64 MiB.
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

    /// Sets the durability of records (default [`Sync::Batch`]).
    #[must_use]
    pub const fn with_sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_to_sync_reads_as_it_is_written() {
        for text in ["always", "batch", "interval=5ms", "interval=60000ms"] {
            assert_eq!(text.parse::<Sync>().unwrap().to_string(), text);
        }
        assert_eq!("interval".parse(), Ok(Sync::Interval(Duration::from_secs(1))));
        for text in ["", "never", "Batch", "interval=0ms", "interval=60001ms", "interval=5", "interval=5s"] {
            assert!(text.parse::<Sync>().is_err(), "{text}");
        }
    }
}
