//! Drift between this log and the API server's own, as `lucid-validator audit correlate` reports it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How many alerts are kept; the rest is where they came from.
const KEPT: usize = 100;
/// How much of each text is kept, in bytes.
const LONGEST: usize = 1024;

/// One drift. Only `message` has to be there when it is reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Alert {
    /// When it was reported last.
    #[serde(default = "Timestamp::now")]
    pub(super) time: Timestamp,
    /// Which class of drift, such as `missing`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) class: String,
    /// In which log: its origin.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) log: String,
    /// At which record of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) seq: Option<u64>,
    /// For people.
    pub(super) message: String,
    /// How often the same was reported.
    #[serde(default, skip_deserializing)]
    pub(super) count: u64,
}

/// The latest alerts of this process' life.
#[derive(Debug, Default)]
pub(super) struct Alerts(Mutex<VecDeque<Alert>>);

impl Alerts {
    /// Keeps an alert; one that is there already is counted, and the latest then.
    pub(super) fn raise(&self, mut alert: Alert) {
        for text in [&mut alert.class, &mut alert.log, &mut alert.message] {
            text.truncate(text.floor_char_boundary(LONGEST));
        }
        tracing::error!(class = alert.class, log = alert.log, seq = alert.seq, "drift: {}", alert.message);
        let mut alerts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |other: &Alert| {
            (&other.class, &other.log, other.seq, &other.message)
                == (&alert.class, &alert.log, alert.seq, &alert.message)
        };
        let known = alerts.iter().position(is_same).and_then(|place| alerts.remove(place));
        alert.count = known.map_or(0, |known| known.count) + 1;
        if alerts.len() == KEPT {
            alerts.pop_front();
        }
        alerts.push_back(alert);
    }

    /// The latest first.
    pub(super) fn latest(&self) -> Vec<Alert> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(json: &str) -> Alert {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_latest_are_kept_and_the_same_is_counted() {
        let alerts = Alerts::default();
        alerts.raise(alert(r#"{"class":"gap","log":"a","seq":3,"message":"first","unknown":1}"#));
        for number in 1..=KEPT {
            alerts.raise(alert(&format!(r#"{{"message":"{number}","count":9}}"#)));
        }
        alerts.raise(alert(r#"{"message":"50"}"#));
        let latest = alerts.latest();
        assert_eq!(latest.len(), KEPT);
        assert_eq!((latest[0].message.as_str(), latest[0].count), ("50", 2));
        assert_eq!((latest[1].message.as_str(), latest[1].count), ("100", 1));
        alerts.raise(alert(&format!(r#"{{"message":"{}"}}"#, "é".repeat(10_000))));
        assert_eq!(alerts.latest()[0].message.len(), LONGEST);
        assert!(serde_json::from_str::<Alert>("{}").is_err());
    }
}
