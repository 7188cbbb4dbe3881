//! Truncates and escapes untrusted text.

use std::fmt;

/// Maximum number of characters in an [`Excerpt`].
const MAX_EXCERPT: usize = 63;

/// Maximum number of characters shown of a container name (RFC 1123 label) and of an image reference.
pub(crate) const MAX_NAME: usize = 63;
pub(crate) const MAX_IMAGE: usize = 512;

/// Maximum number of characters of an untrusted text stored in a finding.
const MAX_STORED: usize = 512;

/// Copies `text`, truncated to [`MAX_STORED`] characters.
pub(crate) fn truncated(text: &str) -> String {
    match text.char_indices().nth(MAX_STORED) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Returns at most `most` characters of `text`, with control characters escaped.
pub(crate) fn shown(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.escape_debug().to_string(),
        Some((end, _)) => format!("{}…", text[..end].escape_debug()),
    }
}

/// Displays an untrusted text in quotes, escaped and truncated.
pub(crate) struct Excerpt<'a>(pub(crate) &'a str);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", shown(self.0, MAX_EXCERPT))
    }
}
