use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use snafu::Snafu;

use crate::metrics::Metrics;
use crate::note::{SigningKey, VerifierKey};

/// When a record counts as kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sync {
    /// When the disk has it, each by itself: one write(2) and one fdatasync(2) for every record.
    Always,
    /// When the disk has it, with those that came meanwhile: one write(2) and one fdatasync(2) for up to 64 records. Nobody
    /// waits for others to come.
    #[default]
    Batch,
    /// When the system has it. The disk has it up to this much later: what a process writes before it is killed stays, what
    /// is younger than this when the power fails is lost.
    Interval(Duration),
}

impl Sync {
    /// How long the disk may be behind with `interval` alone.
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

/// The text is no [`Sync`].
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

/// How a [`Log`](super::Log) is kept.
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
    /// A log without a key: lines in segments of 64 MiB, in batches.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Seals the log with `key`: a tree over the lines and a signed checkpoint. The key's name is the log's origin.
    #[must_use]
    pub fn key(mut self, key: SigningKey) -> Self {
        self.key = Some(Arc::new(key));
        self
    }

    /// When a record counts as kept; [`Sync::Batch`] otherwise.
    #[must_use]
    pub const fn sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    /// Begins a new segment when one has this many bytes, at least 4 KiB; 64 MiB otherwise.
    #[must_use]
    pub const fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = if bytes < 4096 { 4096 } else { bytes };
        self
    }

    /// Seals at most this often while records come, 200 ms otherwise; less often when the disk is so slow that sealing would
    /// take more than a tenth of its time. What is written is sealed at once when nothing was sealed for this long.
    #[must_use]
    pub const fn seal_interval(mut self, interval: Duration) -> Self {
        self.seal_interval = interval;
        self
    }

    /// Seals a log that was sealed by another key of its name, or was never sealed, with this one from now on. The change stands
    /// in the log as a record. Without it such a log is not opened.
    #[must_use]
    pub const fn adopt(mut self, adopt: bool) -> Self {
        self.adopt = adopt;
        self
    }

    /// Witnesses whose cosignatures of checkpoints are accepted; none otherwise.
    #[must_use]
    pub fn witnesses(mut self, witnesses: impl IntoIterator<Item = VerifierKey>) -> Self {
        self.witnesses = witnesses.into_iter().collect();
        self
    }

    /// Where it is counted; nowhere otherwise.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
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
