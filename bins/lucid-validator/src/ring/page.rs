//! One page of decisions.

use std::sync::Arc;

use lucid_audit::{Decision, Entry};
use serde::Serialize;

use super::query::{Order, Query};

/// How long a page becomes at most, in bytes, unless one decision is longer.
const LONGEST: usize = 2 * 1024 * 1024;

/// The decisions that a query asks for, each as JSON.
#[derive(Debug)]
pub(super) struct Page {
    lines: Vec<Vec<u8>>,
    /// The number of the decision behind which the next page begins. In the order of age there always is one: what comes
    /// later is behind it.
    pub(super) next: Option<u64>,
    /// The number of the latest decision there was, asked for or not.
    pub(super) latest: u64,
    /// How many decisions are gone that stood between the cursor and the oldest one left.
    missed: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    number: u64,
    #[serde(flatten)]
    decision: &'a Decision,
}

impl Page {
    /// Chooses from `entries`, which are in the order of age.
    pub(super) fn of(entries: &[Arc<Entry>], query: &Query) -> serde_json::Result<Self> {
        let latest = entries.last().map_or(0, |entry| entry.number);
        let oldest = entries.first().map_or(1, |entry| entry.number);
        let (after, mut missed) = (query.after, 0);
        let chosen: Box<dyn Iterator<Item = &Arc<Entry>>> = match query.order {
            Order::Newest => Box::new(
                entries.iter().rev().filter(move |entry| after.is_none_or(|after| entry.number < after)),
            ),
            Order::Oldest => {
                missed = after.map_or(0, |after| (oldest - 1).saturating_sub(after));
                Box::new(entries.iter().filter(move |entry| after.is_none_or(|after| entry.number > after)))
            }
        };
        let (mut lines, mut length, mut last, mut more) = (Vec::new(), 0, None, false);
        for entry in chosen.filter(|entry| query.takes(entry)) {
            let line = serde_json::to_vec(&Line { number: entry.number, decision: &entry.decision })?;
            length += line.len();
            more = lines.len() == query.limit || (length > LONGEST && !lines.is_empty());
            if more {
                break;
            }
            lines.push(line);
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
        // Of an object that is not empty.
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
