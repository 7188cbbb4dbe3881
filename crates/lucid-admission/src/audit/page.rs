//! Pages of decisions.

use std::sync::Arc;

use lucid_audit::Entry;
use serde::Serialize;

use super::query::{Order, Query};

#[derive(Debug)]
pub(super) struct Page {
    lines: Vec<Vec<u8>>,
    /// Number of the decision after which the next page begins. Oldest first, there always is a next page for later
    /// decisions.
    pub(super) next: Option<u64>,
    /// Number of the latest decision, matching or not.
    pub(super) latest: u64,
    /// Number of decisions after the cursor that are no longer in memory.
    missed: u64,
}

impl Page {
    /// Selects from `entries`, which are sorted by age.
    pub(super) fn of(entries: &[Arc<Entry>], query: &Query) -> serde_json::Result<Self> {
        let latest = entries.last().map_or(0, |entry| entry.number);
        let (after, mut missed) = (query.after, 0);
        let chosen: Box<dyn Iterator<Item = &Arc<Entry>>> = match query.order {
            Order::Newest => Box::new(
                entries.iter().rev().filter(move |entry| after.is_none_or(|after| entry.number < after)),
            ),
            Order::Oldest => {
                let behind =
                    entries.partition_point(|entry| after.is_some_and(|after| entry.number <= after));
                let left = (entries.len() - behind) as u64;
                missed = after.map_or(0, |after| latest.saturating_sub(after).saturating_sub(left));
                Box::new(entries.iter().skip(behind))
            }
        };
        let (mut lines, mut last, mut more) = (Vec::new(), None, false);
        for entry in chosen.filter(|entry| query.takes(&entry.decision())) {
            more = lines.len() == query.limit;
            if more {
                break;
            }
            lines.push(line(entry)?);
            last = Some(entry.number);
        }
        let next = match query.order {
            _ if more => last,
            Order::Newest => None,
            Order::Oldest => Some(latest.max(after.unwrap_or(0))),
        };
        Ok(Self { lines, next, latest, missed })
    }

    pub(super) fn json(
        &self,
        replica: &str,
        next: Option<&str>,
        latest: &str,
    ) -> serde_json::Result<Vec<u8>> {
        #[derive(Serialize)]
        struct Head<'a> {
            replica: &'a str,
            next: Option<&'a str>,
            latest: &'a str,
            missed: u64,
        }

        let mut body = serde_json::to_vec(&Head { replica, next, latest, missed: self.missed })?;
        // Removes the closing brace; the object is not empty.
        body.pop();
        body.extend(b",\"decisions\":[");
        body.extend(self.lines.join(&b','));
        body.extend(b"]}");
        Ok(body)
    }

    pub(super) fn json_lines(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for line in &self.lines {
            body.extend(line);
            body.push(b'\n');
        }
        body
    }
}

fn line(entry: &Entry) -> serde_json::Result<Vec<u8>> {
    let mut line = format!("{{\"number\":{},", entry.number).into_bytes();
    line.extend(entry.json.get(1..).unwrap_or_default());
    if let Some(anchor) = &entry.anchor {
        line.pop();
        line.extend(b",\"anchor\":");
        serde_json::to_writer(&mut line, anchor)?;
        line.push(b'}');
    }
    Ok(line)
}
