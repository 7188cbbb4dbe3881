//! Drift between this log and the API server's audit log, reported by `lucid audit correlate`.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const KEPT: usize = 100;
/// Maximum length of each text, in bytes.
const LONGEST: usize = 1024;

/// Request body of `/audit/alerts`.
#[derive(Debug, Deserialize)]
pub(super) struct Report {
    pub(super) drifts: Vec<Alert>,
}

/// One drift in the format of `lucid_audit::correlate::Drift`. Only `detail` is required.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Alert {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) class: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) log: String,
    /// Sequence number of the record, or of the first of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) seq: Option<u64>,
    /// Sequence number of the last of several records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<u64>,
    /// Id of the request in the API server's audit log.
    #[serde(default, rename = "auditID", skip_serializing_if = "String::is_empty")]
    pub(super) audit_id: String,
    pub(super) detail: String,
    #[serde(default = "Timestamp::now", skip_deserializing)]
    pub(super) time: Timestamp,
    #[serde(default, skip_deserializing)]
    pub(super) count: u64,
}

#[derive(Debug, Default)]
pub(super) struct Alerts(Mutex<VecDeque<Alert>>);

impl Alerts {
    /// Stores an alert. A repeated alert increments its count and becomes the latest.
    pub(super) fn raise(&self, mut alert: Alert) {
        for text in [&mut alert.class, &mut alert.log, &mut alert.audit_id, &mut alert.detail] {
            text.truncate(text.floor_char_boundary(LONGEST));
            text.shrink_to_fit();
        }
        tracing::error!(class = alert.class, log = alert.log, seq = alert.seq, "drift: {}", alert.detail);
        let mut alerts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |other: &Alert| {
            (&other.class, &other.log, other.seq, &other.audit_id, &other.detail)
                == (&alert.class, &alert.log, alert.seq, &alert.audit_id, &alert.detail)
        };
        let known = alerts.iter().position(is_same).and_then(|place| alerts.remove(place));
        alert.count = known.map_or(0, |known| known.count) + 1;
        if alerts.len() == KEPT {
            alerts.pop_front();
        }
        alerts.push_back(alert);
    }

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
    fn the_latest_notices_are_kept_and_repetitions_counted() {
        let alerts = Alerts::default();
        alerts.raise(alert(r#"{"class":"gap","log":"a","seq":3,"detail":"first","unknown":1}"#));
        for number in 1..=KEPT {
            alerts.raise(alert(&format!(r#"{{"detail":"{number}","count":9}}"#)));
        }
        alerts.raise(alert(r#"{"detail":"50"}"#));
        let latest = alerts.latest();
        assert_eq!(latest.len(), KEPT);
        assert_eq!((latest[0].detail.as_str(), latest[0].count), ("50", 2));
        assert_eq!((latest[1].detail.as_str(), latest[1].count), ("100", 1));
        alerts.raise(alert(&format!(r#"{{"detail":"{}"}}"#, "é".repeat(10_000))));
        assert_eq!(alerts.latest()[0].detail.len(), LONGEST);
        assert!(serde_json::from_str::<Alert>("{}").is_err());
    }
}
