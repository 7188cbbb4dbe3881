//! Suggestions for misspelled names.

use lucid_text::{Excerpt, names::nearest};

use super::{Auditor, stem};
use crate::error::Error;

/// Maximum number of characters for the known names in a message, which lists at least one.
const LISTED: usize = 60;

pub(super) fn unknown(name: &str, auditors: &[Auditor]) -> Error {
    // Names are lower-case, so differences in case do not count as edits.
    let lower = name.to_lowercase();
    let found = stem(&lower);
    let allowed = (found.len() / 3).max(1);
    let meant = nearest(found, auditors.iter().map(|auditor| stem(auditor.name())), allowed);
    let known: Vec<_> = auditors.iter().map(Auditor::name).collect();
    let meant = known.iter().find(|name| Some(stem(name)) == meant);
    let meant = meant.map(|name| format!(", did you mean {name}?")).unwrap_or_default();
    let mut room = LISTED;
    let fits = |name: &&&str| room.checked_sub(name.len() + 2).map(|rest| room = rest).is_some();
    let fitting = known.iter().take_while(fits).count();
    let listed = &known[..fitting.max(1).min(known.len())];
    let more = match known.len() - listed.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Error::new(format!("unknown auditor {}{meant} (known: {}{more})", Excerpt(name), listed.join(", ")))
}
