use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::note::VerifierKey;

/// What a log records of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// The last line was torn, by a crash or a power failure, and was cut off.
    Recovered {
        /// When.
        time: Timestamp,
        /// How many bytes were cut off.
        bytes: u64,
    },
    /// The log is sealed with another key from here on.
    KeyChanged {
        /// When.
        time: Timestamp,
        /// The key that verifies what was sealed before; none when it was not sealed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<VerifierKey>,
        /// The key that verifies it from now on.
        to: VerifierKey,
    },
}

impl Event {
    /// The event as a record.
    pub(crate) fn to_record(&self) -> Vec<u8> {
        // It has nothing in it that JSON has not.
        serde_json::to_vec(self).unwrap_or_default()
    }
}
