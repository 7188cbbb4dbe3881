//! Suggestions for misspelled names.

use std::fmt;

use super::{Auditor, stem};
use crate::text::Excerpt;

/// Maximum length of names that are compared: that of container names.
const LONGEST: usize = 63;

/// Maximum number of characters for the known names in a message, which lists at least one.
const LISTED: usize = 80;

/// The catalogue has no auditor with this name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownAuditor {
    /// The requested name.
    pub name: String,
    /// The most similar known name, if any is similar enough.
    pub nearest: Option<String>,
    /// All known names, in catalogue order.
    pub known: Vec<String>,
}

impl UnknownAuditor {
    pub(super) fn new(name: &str, auditors: &[Auditor]) -> Self {
        // Names are lower-case, so differences in case do not count as edits.
        let lower = name.to_lowercase();
        let found = stem(&lower);
        let allowed = (found.len() / 3).max(1);
        let nearest = auditors
            .iter()
            .filter(|_| name.len() <= LONGEST)
            .map(|auditor| (distance(found, stem(auditor.name())), auditor))
            .filter(|(distance, _)| *distance <= allowed)
            .min_by_key(|(distance, _)| *distance);
        Self {
            name: name.to_owned(),
            nearest: nearest.map(|(_, auditor)| auditor.name().to_owned()),
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

/// Returns the closest of `known` that is at most `edits` edits away from `word`; the first of several. An edit
/// inserts, removes or replaces a character, or swaps two neighbors.
///
/// ```
/// let known = ["secured", "auditors"];
/// assert_eq!(lucid_chain::nearest("secure", known, 2), Some("secured"));
/// assert_eq!(lucid_chain::nearest("name", known, 2), None);
/// ```
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>, edits: usize) -> Option<&'k str> {
    let alike = |known: &&str| word.len() <= LONGEST && word.len().abs_diff(known.len()) <= edits;
    let known = known.into_iter().filter(alike).map(|known| (distance(word, known), known));
    known
        .filter(|(distance, _)| *distance <= edits)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Counts the edits (insert, remove or replace a character, swap two neighbors) between two names.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut before_last = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let mut best = (last[j + 1] + 1).min(row[j] + 1).min(last[j] + usize::from(a != b));
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn the_distance_counts_single_edits() {
        let cases = [
            ("", "", 0),
            ("", "abc", 3),
            ("injection", "injection", 0),
            ("injectoin", "injection", 1),
            ("toxcity", "toxicity", 1),
            ("kitten", "sitting", 3),
            ("ü", "u", 1),
        ];
        for (left, right, edits) in cases {
            assert_eq!(distance(left, right), edits, "{left} {right}");
            assert_eq!(distance(right, left), edits, "{right} {left}");
        }
    }
}
