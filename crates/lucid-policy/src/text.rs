//! Showing text that somebody else wrote.

use std::fmt;

/// How many characters a message repeats.
const SHOWN: usize = 63;

/// A foreign text in quotes, with control characters escaped, and cut.
pub(crate) struct Excerpt<'a>(pub(crate) &'a str);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.0.chars().take(SHOWN).collect();
        let more = if shown.len() < self.0.len() { "…" } else { "" };
        write!(f, "\"{}{more}\"", shown.escape_debug())
    }
}
