//! Showing text that somebody else wrote.

use std::fmt;

/// How many characters a message repeats.
const SHOWN: usize = 63;

/// How much of a container's name and image a message repeats: as long as the API server takes a name, and as registries
/// take a reference.
pub(crate) const NAME: usize = 63;
pub(crate) const IMAGE: usize = 512;

/// Most characters of a foreign text that a finding stores.
const KEPT: usize = 512;

/// A copy of a foreign text for a finding, truncated.
pub(crate) fn kept(text: &str) -> String {
    match text.char_indices().nth(KEPT) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// At most `most` characters of a foreign text, with control characters escaped.
pub(crate) fn shown(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.escape_debug().to_string(),
        Some((end, _)) => format!("{}…", text[..end].escape_debug()),
    }
}

/// A foreign text in quotes, with control characters escaped, and cut.
pub(crate) struct Excerpt<'a>(pub(crate) &'a str);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", shown(self.0, SHOWN))
    }
}
