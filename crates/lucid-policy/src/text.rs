//! Truncates untrusted text.

/// Maximum number of characters of an untrusted text that a finding stores.
const MAX_STORED: usize = 512;

/// Copies `text`, truncated to [`MAX_STORED`] characters.
pub(crate) fn truncated(text: &str) -> String {
    shortened(text, MAX_STORED)
}

/// Copies `text`, truncated to `max` characters.
pub(crate) fn shortened(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Maximum number of characters of an untrusted value in a message.
const MAX_EXCERPT: usize = 63;

/// Quotes and escapes `text` for a message, truncated to [`MAX_EXCERPT`] characters.
pub(crate) fn excerpt(text: &str) -> String {
    format!("{:?}", shortened(text, MAX_EXCERPT))
}
