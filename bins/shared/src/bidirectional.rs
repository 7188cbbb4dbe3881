//! Characters that make text look like another.

/// Returns `true` for characters that change the display order of text (UAX #9, section 2).
#[must_use]
pub const fn is_bidirectional(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
