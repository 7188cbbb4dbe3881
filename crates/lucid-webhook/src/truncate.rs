//! Truncates text sent by callers for logs and messages.

use std::borrow::Cow;

/// Maximum number of characters of a caller's text in a log line.
pub(crate) const EXCERPT: usize = 200;

/// Truncates `text` to `longest` characters, appending `…`.
pub(crate) fn truncate(text: &str, longest: usize) -> Cow<'_, str> {
    let end = if text.len() <= longest { None } else { text.char_indices().nth(longest) };
    end.map_or_else(|| text.into(), |(end, _)| format!("{}…", &text[..end]).into())
}

/// Truncates `text` to [`EXCERPT`] characters.
pub(crate) fn excerpt(text: &str) -> Cow<'_, str> {
    truncate(text, EXCERPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_truncated_between_characters() {
        assert_eq!(excerpt("short"), "short");
        assert_eq!(excerpt(&"é".repeat(200)), "é".repeat(200));
        assert_eq!(excerpt(&"é".repeat(201)), format!("{}…", "é".repeat(200)));
    }
}
