//! Anchors in the API server's audit log, without comparison.

use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::event::Event;
use crate::anchor::Anchor;
use crate::error::Error;
use crate::follow::EventFollower;

/// Anchor of a decision in an event of the API server's audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SeenAnchor {
    /// Identifier of the request in the API server's audit log.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// Time at which the API server received the request.
    pub time: Timestamp,
    /// Webhook that responded.
    pub webhook: String,
    /// Name of the object, or its `generateName`.
    pub name: String,
    /// Name of the log, if the webhook gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Position and hash of the record.
    #[serde(flatten)]
    pub anchor: Anchor,
}

/// Passes the anchors of requests for objects in `namespace` to `each`, from the API server's audit log at `path` and its
/// uncompressed rotated files. Unreadable lines and anchors are skipped.
///
/// # Errors
///
/// Returns an error if a file cannot be read.
pub fn seen_anchors(path: &Path, namespace: &str, mut each: impl FnMut(SeenAnchor)) -> Result<(), Error> {
    EventFollower::new(path).poll(|line| {
        let Some(event) = Event::parse(line).filter(|event| event.request().namespace == namespace) else {
            return;
        };
        for (webhook, anchor) in event.anchors().filter_map(|(webhook, anchor)| Some((webhook, anchor.ok()?)))
        {
            each(SeenAnchor {
                audit_id: event.audit_id.clone(),
                time: event.request_received_timestamp,
                webhook: webhook.to_owned(),
                name: event.name().to_owned(),
                log: anchor.log,
                anchor: Anchor { seq: anchor.seq, leaf: anchor.leaf, size: anchor.size },
            });
        }
    })
}
