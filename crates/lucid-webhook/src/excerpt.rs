//! Truncates text sent by callers for logs and messages.

/// Truncates `text` to 200 bytes for a log line.
pub(crate) fn excerpt(text: &str) -> &str {
    const LONGEST: usize = 200;
    &text[..text.floor_char_boundary(LONGEST)]
}

/// Truncates `text` to `longest` characters, appending `…`.
pub(crate) fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::excerpt;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(excerpt("short"), "short");
        assert_eq!(excerpt(&"é".repeat(101)), "é".repeat(100));
        assert_eq!(excerpt(&format!("a{}", "é".repeat(101))).len(), 199);
    }
}
