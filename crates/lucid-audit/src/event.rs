use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::note::VerifierKey;

/// Event that a log records about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// A torn last line, left by a crash or power failure, was truncated.
    Recovered { time: Timestamp, bytes: u64 },
    /// The log is sealed with another key from this record on.
    KeyChanged {
        time: Timestamp,
        /// Previous key; `None` if the log was not sealed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<VerifierKey>,
        to: VerifierKey,
    },
}

impl Event {
    pub(crate) fn to_record(&self) -> Vec<u8> {
        // Infallible: every field is representable in JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }
}
