//! Suggestions for misspelled names.

use std::fmt;

use lucid_text::{Excerpt, names::nearest};

use super::{Auditor, stem};

/// Maximum number of characters for the known names in a message, which lists at least one.
const LISTED: usize = 60;

/// The catalogue has no auditor with this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownAuditor {
    /// The requested name.
    name: String,
    /// The most similar known name, if any is similar enough.
    nearest: Option<String>,
    /// All known names, in catalogue order.
    known: Vec<String>,
}

impl UnknownAuditor {
    pub(super) fn new(name: &str, auditors: &[Auditor]) -> Self {
        // Names are lower-case, so differences in case do not count as edits.
        let lower = name.to_lowercase();
        let found = stem(&lower);
        let allowed = (found.len() / 3).max(1);
        let stems = auditors.iter().map(|auditor| stem(auditor.name()));
        let nearest = nearest(found, stems, allowed);
        let nearest = auditors.iter().map(Auditor::name).find(|name| Some(stem(name)) == nearest);
        Self {
            name: name.to_owned(),
            nearest: nearest.map(str::to_owned),
            known: auditors.iter().map(|auditor| auditor.name().to_owned()).collect(),
        }
    }
}

impl fmt::Display for UnknownAuditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown auditor {}", Excerpt(&self.name))?;
        if let Some(nearest) = &self.nearest {
            write!(f, ", did you mean {nearest}?")?;
        }
        let mut room = LISTED;
        let fits = |name: &&String| room.checked_sub(name.len() + 2).map(|rest| room = rest).is_some();
        let fitting = self.known.iter().take_while(fits).count();
        let listed = &self.known[..fitting.max(1).min(self.known.len())];
        write!(f, " (known: {}", listed.join(", "))?;
        match self.known.len() - listed.len() {
            0 => f.write_str(")"),
            more => write!(f, " and {more} more)"),
        }
    }
}

impl std::error::Error for UnknownAuditor {}
