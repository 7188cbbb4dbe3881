//! Folds characters that look alike, with a map back to the original text.

use std::{ops::Range, sync::LazyLock};

use icu_normalizer::DecomposingNormalizerBorrowed;

const NFKD: DecomposingNormalizerBorrowed<'static> = DecomposingNormalizerBorrowed::new_nfkd();

/// A text in which equivalent spellings are equal:
///
/// - Compatibility characters are decomposed (NFKD, UAX #15), and accents removed.
/// - Letters are lower case, and letters that look like Latin letters are Latin (a subset of UTS #39).
/// - Typographic quotes and dashes are ASCII. Each run of white space is one space.
/// - Control characters and default-ignorable characters, such as zero-width spaces, are removed.
#[derive(Debug)]
pub(crate) struct Normalized {
    pub(crate) text: String,
    /// In ascending order. Empty if offsets are equal.
    segments: Vec<Segment>,
    original_len: usize,
}

/// Part of the text from `at` to the next segment.
#[derive(Debug, Clone, Copy)]
struct Segment {
    at: usize,
    /// Bytes of the original text.
    from: usize,
    /// End of the original character. `None` if each byte of the segment stands for one byte.
    until: Option<usize>,
}

impl Normalized {
    pub(crate) fn new(text: &str) -> Self {
        let mut folded = Self::with(text, fold, ' ');
        folded.text.make_ascii_lowercase();
        folded
    }

    /// Returns the text for a search for numbers and codes: only characters that are written instead of ASCII are folded.
    /// White space is a space if it is one, and a line feed otherwise.
    pub(crate) fn codes(text: &str) -> Self {
        Self::with(text, fold_code, '\n')
    }

    fn with(text: &str, fold: fn(char, &mut String), wide_space: char) -> Self {
        let mut folded =
            Self { text: String::with_capacity(text.len()), segments: Vec::new(), original_len: text.len() };
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let plain = plain_run(&bytes[at..], folded.text.ends_with(' '));
            if plain > 0 {
                folded.segment(at, None);
                folded.text.push_str(&text[at..at + plain]);
                at += plain;
                continue;
            }
            let Some(c) = text[at..].chars().next() else { break };
            let len = c.len_utf8();
            if is_space(c) {
                let run = &text[at..];
                let run = run.len() - run.trim_start_matches(|c| is_space(c) || is_ignorable(c)).len();
                if !folded.text.ends_with(' ') {
                    folded.segment(at, (run > 1).then_some(at + run));
                    let mut spaces = text[at..at + run].chars().filter(|c| is_space(*c));
                    let is_wide = is_control_space(c) || spaces.nth(1).is_some();
                    folded.text.push(if is_wide { wide_space } else { ' ' });
                }
                at += run;
                continue;
            }
            let start = folded.text.len();
            fold(c, &mut folded.text);
            let added = &folded.text[start..];
            if !added.is_empty() {
                let is_alike = added.len() == len && added.chars().nth(1).is_none();
                folded.segment_at(start, at, (!is_alike).then_some(at + len));
            } else if is_accent(c) {
                folded.extend_last_char(at + len);
            }
            at += len;
        }
        if let [Segment { at: 0, from: 0, until: None }] = folded.segments[..] {
            folded.segments.clear();
        }
        folded
    }

    /// Returns the text with spaces for what joins or decorates words, such as `-` and `**`, if there is any. Its original is
    /// this text. Punctuation at the end of a sentence, between digits and in contractions, such as `don't`, is kept.
    ///
    /// With `has_more`, a word may follow the end of the text.
    pub(crate) fn words(&self, has_more: bool) -> Option<Self> {
        let text = self.text.as_str();
        let mut words = Self { text: String::new(), segments: Vec::new(), original_len: text.len() };
        let mut copied = 0;
        let mut end = 0;
        while let Some(length) = text[end..].find(|c: char| !c.is_alphanumeric()) {
            let start = end + length;
            end = text[start..].find(char::is_alphanumeric).map_or(text.len(), |length| start + length);
            let joint = &text[start..end];
            let is_split = joint.contains(' ') || start == 0 || (end == text.len() && !has_more);
            if is_split && joint.chars().all(|c| c == ' ' || ends_sentence(c))
                || !is_split && is_inner(text, start, end)
            {
                continue;
            }
            if copied < start {
                words.segment(copied, None);
                words.text.push_str(&text[copied..start]);
            }
            words.segment(start, (joint.len() > 1).then_some(end));
            words.text.extend(joint.chars().filter(|c| is_split && ends_sentence(*c)));
            words.text.push(' ');
            copied = end;
        }
        (copied > 0).then_some(())?;
        words.segment(copied, None);
        words.text.push_str(&text[copied..]);
        Some(words)
    }

    fn segment(&mut self, from: usize, until: Option<usize>) {
        self.segment_at(self.text.len(), from, until);
    }

    fn segment_at(&mut self, at: usize, from: usize, until: Option<usize>) {
        match self.segments.last() {
            Some(last) if until.is_none() && last.until.is_none() && last.from + (at - last.at) == from => {}
            _ => self.segments.push(Segment { at, from, until }),
        }
    }

    /// Adds an accent, which ends at `until`, to the last character.
    fn extend_last_char(&mut self, until: usize) {
        let (Some((at, _)), Some(last)) = (self.text.char_indices().next_back(), self.segments.last_mut())
        else {
            return;
        };
        match last.until {
            None if last.at < at => {
                let from = last.from + (at - last.at);
                self.segments.push(Segment { at, from, until: Some(until) });
            }
            _ => last.until = Some(until),
        }
    }

    /// Returns the bytes of the original text that `range` of the folded text stands for.
    pub(crate) fn original(&self, range: Range<usize>) -> Range<usize> {
        if self.segments.is_empty() {
            return range;
        }
        let start = match self.segment_of(range.start) {
            Some(segment) if segment.until.is_some() => segment.from,
            Some(segment) => segment.from + (range.start - segment.at),
            None => self.original_len,
        };
        let Some(last) = range.end.checked_sub(1).filter(|_| !range.is_empty()) else { return start..start };
        let end = match self.segment_of(last) {
            Some(Segment { until: Some(until), .. }) => *until,
            Some(segment) => segment.from + (last - segment.at) + 1,
            None => self.original_len,
        };
        start..end
    }

    fn segment_of(&self, at: usize) -> Option<&Segment> {
        if at >= self.text.len() {
            return None;
        }
        let after = self.segments.partition_point(|segment| segment.at <= at);
        self.segments.get(after.checked_sub(1)?)
    }
}

/// Returns the folded form of `c`, which is lower case. White space becomes a space.
pub(crate) fn fold_char(c: char) -> String {
    let mut folded = String::new();
    match is_space(c) {
        true => folded.push(' '),
        false => fold(c, &mut folded),
    }
    folded.make_ascii_lowercase();
    folded
}

/// Length of the ASCII text at the beginning of `bytes` that only needs lower case.
fn plain_run(bytes: &[u8], mut after_space: bool) -> usize {
    for (i, byte) in bytes.iter().enumerate() {
        match byte {
            b'!'..=b'~' => after_space = false,
            b' ' if !after_space => after_space = true,
            // The space belongs to the run of white space, or may.
            _ => return i.saturating_sub(usize::from(after_space)),
        }
    }
    bytes.len()
}

fn ends_sentence(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | ':' | ';')
}

/// Returns `true` if the punctuation at `start` is part of a number or a contraction.
fn is_inner(text: &str, start: usize, end: usize) -> bool {
    const ENDINGS: [&str; 7] = ["d", "ll", "m", "re", "s", "t", "ve"];
    let (before, after) = (&text[..start], &text[end..]);
    let is_number =
        before.ends_with(|c: char| c.is_ascii_digit()) && after.starts_with(|c: char| c.is_ascii_digit());
    let word = || after.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    is_number || &text[start..end] == "'" && ENDINGS.contains(&word())
}

fn is_space(c: char) -> bool {
    c.is_whitespace()
}

/// Tabulators and line breaks.
fn is_control_space(c: char) -> bool {
    matches!(c, '\t'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Characters that have no effect on the meaning: control characters, and `Default_Ignorable_Code_Point` of
/// DerivedCoreProperties.txt.
fn is_ignorable(c: char) -> bool {
    let is_control = c.is_control() && !is_space(c);
    is_control
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Combining diacritical marks.
fn is_accent(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

/// Characters of alphabets up to Arabic that fold to one character.
static ALPHABETS: LazyLock<Vec<Option<char>>> = LazyLock::new(|| {
    let folded = |c| {
        let mut folded = String::new();
        fold_any(c, &mut folded);
        let mut chars = folded.chars();
        chars.next().filter(|_| chars.next().is_none())
    };
    ('\0'..'\u{600}').map(folded).collect()
});

/// Appends the folded form of `c`, where ASCII letters may be upper case.
fn fold(c: char, folded: &mut String) {
    match ALPHABETS.get(c as usize) {
        Some(Some(c)) => folded.push(*c),
        _ => fold_any(c, folded),
    }
}

fn fold_any(c: char, folded: &mut String) {
    // These neither decompose nor have a case.
    if matches!(c, '\u{3041}'..='\u{304b}' | '\u{4e00}'..='\u{9fff}') {
        return folded.push(c);
    }
    if is_ignorable(c) {
        return;
    }
    for c in NFKD.normalize_iter(std::iter::once(c)) {
        // Accents that stand alone decompose to a space and a mark.
        if is_accent(c) || is_ignorable(c) || is_space(c) {
            continue;
        }
        for c in c.to_lowercase() {
            match lookalike(c) {
                Some(latin) => folded.push_str(latin),
                None if !is_accent(c) => folded.push(c),
                None => {}
            }
        }
    }
}

/// Appends a character of a number or code. Other digits, such as superscripts, are not part of the number before them.
fn fold_code(c: char, folded: &mut String) {
    // Full-width and mathematical forms of ASCII.
    let is_variant =
        matches!(c, '\u{ff01}'..='\u{ff5e}' | '\u{1d400}'..='\u{1d7ff}' | '\u{1fbf0}'..='\u{1fbf9}');
    if c.is_alphanumeric() && !is_variant && !is_ignorable(c) {
        return folded.push(c);
    }
    let start = folded.len();
    fold(c, folded);
    let part = &folded[start..];
    // Symbols such as `№` contain letters, which would join the number beside them.
    if !part.is_ascii() || !is_variant && part.contains(|c: char| c.is_ascii_alphanumeric()) {
        folded.truncate(start);
        folded.push(c);
    }
}

/// ASCII spelling of a decomposed lower-case character. Facts of confusables.txt (UTS #39), where a letter's cases stay together.
fn lookalike(c: char) -> Option<&'static str> {
    Some(match c {
        c if c.is_ascii() => return None,
        // Cyrillic
        'а' => "a",
        'в' => "b",
        'с' => "c",
        'ԁ' => "d",
        'е' | 'ҽ' => "e",
        'һ' | 'н' => "h",
        'і' => "i",
        'ј' => "j",
        'к' => "k",
        'ӏ' => "l",
        'м' => "m",
        'о' => "o",
        'р' => "p",
        'ԛ' => "q",
        'г' => "r",
        'ѕ' => "s",
        'т' => "t",
        'ѵ' => "v",
        'ԝ' => "w",
        'х' => "x",
        'у' | 'ү' => "y",
        // Greek
        'α' => "a",
        'β' => "b",
        'ϲ' => "c",
        'ε' => "e",
        'η' => "n",
        'ι' => "i",
        'ϳ' => "j",
        'κ' => "k",
        'μ' => "m",
        'ο' | 'σ' | 'ς' => "o",
        'ρ' => "p",
        'τ' => "t",
        'υ' => "u",
        'ν' => "v",
        'ω' => "w",
        'χ' => "x",
        'γ' => "y",
        'ζ' => "z",
        // Armenian
        'ց' => "g",
        'հ' => "h",
        'յ' => "j",
        'ո' => "n",
        'օ' => "o",
        'զ' => "q",
        'ս' => "u",
        // Latin
        'ɑ' | 'ᴀ' => "a",
        'æ' => "ae",
        'ʙ' => "b",
        'ᴄ' => "c",
        'đ' | 'ᴅ' => "d",
        'ᴇ' => "e",
        'ꜰ' => "f",
        'ɡ' | 'ɢ' => "g",
        'ħ' | 'ʜ' => "h",
        'ı' | 'ɩ' | 'ɪ' => "i",
        'ȷ' | 'ᴊ' => "j",
        'ᴋ' => "k",
        'ł' | 'ʟ' => "l",
        'ᴍ' => "m",
        'ɴ' => "n",
        'ø' | 'ᴏ' => "o",
        'œ' => "oe",
        'ᴘ' => "p",
        'ʀ' => "r",
        'ꜱ' => "s",
        'ß' => "ss",
        'ŧ' | 'ᴛ' => "t",
        'ᴜ' => "u",
        'ᴠ' => "v",
        'ᴡ' => "w",
        'ʏ' => "y",
        'ᴢ' => "z",
        // Punctuation
        '‘' | '’' | '‚' | '‛' | '′' | 'ʼ' => "'",
        '“' | '”' | '„' | '‟' | '«' | '»' | '″' => "\"",
        '‐'..='―' | '−' => "-",
        '∣' => "|",
        '⁄' | '∕' => "/",
        // White letters on a dark ground, which do not decompose
        '\u{1f150}'..='\u{1f169}' | '\u{1f170}'..='\u{1f189}' => {
            const LATIN: &str = "abcdefghijklmnopqrstuvwxyz";
            let i = (u32::from(c) - 0x1f150) as usize % 32;
            return LATIN.get(i..=i);
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equivalent_spellings_are_equal() {
        for (text, folded) in [
            ("Ignore previous", "ignore previous"),
            ("a  b\r\n\tc\u{a0}\u{3000}d", "a b c d"),
            ("a \u{200b} b", "a b"),
            ("a\u{200b}b\u{ad}c\u{feff}\u{fe0f}", "abc"),
            ("i\0g\u{7}n\u{7f}ore", "ignore"),
            ("ｉｇｎｏｒｅ", "ignore"),
            ("𝐢𝐠𝐧𝐨𝐫𝐞 𝕚𝕘𝕟𝕠𝕣𝕖 𝓘𝓖𝓝𝓞𝓡𝓔", "ignore ignore ignore"),
            ("ⓘⓖⓝⓞⓡⓔ 🅸🅶🅽🅾🆁🅴 🅘🅖🅝🅞🅡🅔", "ignore ignore ignore"),
            ("ɪɢɴᴏʀᴇ", "ignore"),
            ("іgnоrе рrеviоus", "ignore previous"),
            ("ιgηοrε", "ignore"),
            ("i̷g̷n̷o̷r̷e̷", "ignore"),
            ("Ígnôré naïve Straße ﬃ", "ignore naive strasse ffi"),
            ("don’t “say” — so…", "don't \"say\" - so..."),
            ("İI", "ii"),
            ("ΟΔΟΣ οδος", "oδoo oδoo"),
            ("忽略之前的指令", "忽略之前的指令"),
            ("", ""),
        ] {
            assert_eq!(Normalized::new(text).text, folded, "{text}");
        }
    }

    #[test]
    fn offsets_point_at_the_original() {
        for (text, part, original) in [
            ("say SECRET now", "secret", "SECRET"),
            ("a   b", " ", "   "),
            ("x  s\u{200b}e\u{200b}cret\u{200b} y", "secret", "s\u{200b}e\u{200b}cret"),
            ("a ﬃ b", "f", "ﬃ"),
            ("é secret é", "secret", "secret"),
            ("ééé𝐬𝐞𝐜𝐫𝐞𝐭", "secret", "𝐬𝐞𝐜𝐫𝐞𝐭"),
            ("日本 secret", "secret", "secret"),
        ] {
            let normalized = Normalized::new(text);
            let at = normalized.text.find(part).unwrap();
            assert_eq!(&text[normalized.original(at..at + part.len())], original, "{text}");
        }
    }

    #[test]
    fn joined_and_decorated_words_are_separate() {
        for (text, words) in [
            ("**Ignore** _all_ `previous`", Some(" ignore all previous ")),
            ("ignore-all.previous/instructions", Some("ignore all previous instructions")),
            ("# ignore\n> all\n- previous", Some(" ignore all previous")),
            ("ignore, \"all\" (previous)", Some("ignore all previous ")),
            ("**Your task:** go", Some(" your task: go")),
            ("\"Stop.\" He left...", Some(" stop. he left...")),
            ("Don't stop! It's 3.5 at 12:30.", None),
            ("don't-stop'now", Some("don't stop now")),
            ("Plain text. And more: of it?", None),
            ("", None),
        ] {
            let found = Normalized::new(text).words(false).map(|words| words.text);
            assert_eq!(found.as_deref(), words, "{text}");
        }
        assert!(Normalized::new("ignore.").words(false).is_none());
        assert_eq!(Normalized::new("ignore.").words(true).unwrap().text, "ignore ");
    }

    #[test]
    fn ascii_needs_no_map() {
        assert!(Normalized::new("Only ASCII, with single spaces.").segments.is_empty());
        assert!(Normalized::new("and\nlines\tof text").segments.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn each_character_maps_to_its_origin(text in "(\\PC|[a-zA-Z \t\n\u{200b}éﬃа𝐬日\u{301}\u{0}]){0,40}") {
            let normalized = Normalized::new(&text);
            let mut end = 0;
            for (at, c) in normalized.text.char_indices() {
                let range = normalized.original(at..at + c.len_utf8());
                prop_assert!(range.end >= end && range.start < range.end);
                end = range.end;
                let again = Normalized::new(&text[range]).text;
                prop_assert!(again.contains(c), "{again:?} {c:?}");
            }
        }

        #[test]
        fn words_keep_their_place(text in "([a-c1-2 \u{200b}é日.,'*_-]){0,40}", has_more: bool) {
            let normalized = Normalized::new(&text);
            let Some(words) = normalized.words(has_more) else { return Ok(()) };
            let only_words = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
            prop_assert_eq!(only_words(&words.text), only_words(&normalized.text));
            let mut end = 0;
            for (at, c) in words.text.char_indices() {
                let range = words.original(at..at + c.len_utf8());
                prop_assert!(range.end >= end && range.start <= range.end);
                end = range.end;
                prop_assert!(!c.is_alphanumeric() || normalized.text[range].contains(c));
            }
        }

        #[test]
        fn folding_is_idempotent(text in "(\\PC|[a-zA-Z \t\n\u{200b}éﬃа𝐬日\u{301}]){0,40}") {
            let once = Normalized::new(&text).text;
            prop_assert_eq!(&Normalized::new(&once).text, &once);
        }
    }
}
