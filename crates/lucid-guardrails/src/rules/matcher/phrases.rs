//! Phrases in folded text.

use std::ops::Range;

use aho_corasick::AhoCorasick;

use super::super::Rule;
use crate::{OptionsError, normalize::Normalized, spans::tail};

/// Maximum length of a folded phrase in bytes.
const MAX_PHRASE: usize = 1024;

pub(super) struct Phrases {
    /// Sorted by text.
    phrases: Vec<Phrase>,
    automaton: Option<AhoCorasick>,
    /// Bytes that phrases begin with.
    first: [bool; 256],
    longest: usize,
    /// All phrases are whole words.
    whole_words: bool,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Phrase {
    text: String,
    rule: usize,
    whole_words: bool,
}

impl Phrases {
    pub(super) fn new(rules: &[Rule]) -> Result<Self, OptionsError> {
        let mut phrases = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            for (i, phrase) in rule.phrases.iter().enumerate() {
                let text = Normalized::new(phrase).text.trim().to_owned();
                if !(1..=MAX_PHRASE).contains(&text.len()) {
                    let key = rule.key(format_args!(".phrases[{i}]"));
                    let expected = format_args!("1 to {MAX_PHRASE} visible bytes");
                    return Err(OptionsError::found(key, text.len(), expected));
                }
                phrases.push(Phrase { text, rule: index, whole_words: rule.whole_words.unwrap_or(true) });
            }
        }
        phrases.sort();
        phrases.dedup();
        let automaton = match phrases.is_empty() {
            true => None,
            false => Some(
                AhoCorasick::new(phrases.iter().map(|phrase| &phrase.text))
                    .map_err(|error| OptionsError::new("rules", error))?,
            ),
        };
        let longest = phrases.iter().map(|phrase| phrase.text.len()).max().unwrap_or(0);
        let mut first = [false; 256];
        phrases
            .iter()
            .filter_map(|phrase| phrase.text.bytes().next())
            .for_each(|byte| first[usize::from(byte)] = true);
        let whole_words = phrases.iter().all(|phrase| phrase.whole_words);
        Ok(Self { phrases, automaton, first, longest, whole_words })
    }

    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Calls `found` until it returns `false`, and returns what it returned last. With `has_more`, a word at the end is not
    /// complete.
    pub(super) fn find(
        &self,
        text: &str,
        has_more: bool,
        mut found: impl FnMut(usize, Range<usize>) -> bool,
    ) -> bool {
        let Some(automaton) = &self.automaton else { return true };
        let ends_word = |at| match has_more && at == text.len() {
            true => !text.chars().next_back().is_some_and(is_word),
            false => is_boundary(text, at),
        };
        automaton.find_overlapping_iter(text).all(|hit| {
            let phrase = &self.phrases[hit.pattern().as_usize()];
            let is_hit = !phrase.whole_words || (is_boundary(text, hit.start()) && ends_word(hit.end()));
            !is_hit || found(phrase.rule, hit.range())
        })
    }

    /// Returns the start of the longest end of `text` that a longer phrase begins with, or that is a phrase whose last word
    /// may go on.
    pub(super) fn unfinished(&self, text: &str) -> Option<usize> {
        let from = text.len() - tail(text, self.longest).len();
        (from..text.len()).filter(|at| self.first[usize::from(text.as_bytes()[*at])]).find(|at| {
            let Some(end) = text.get(*at..) else { return false };
            let is_boundary = is_boundary(text, *at);
            if self.whole_words && !is_boundary {
                return false;
            }
            let from = self.phrases.partition_point(|phrase| phrase.text.as_str() < end);
            let mut longer = self.phrases[from..].iter().take_while(|phrase| phrase.text.starts_with(end));
            longer.any(|phrase| match phrase.whole_words {
                true => is_boundary,
                false => phrase.text.len() > end.len(),
            })
        })
    }
}

/// Returns `true` if no word spans `at`.
fn is_boundary(text: &str, at: usize) -> bool {
    let (before, after) = text.split_at_checked(at).unwrap_or_default();
    !(before.chars().next_back().is_some_and(is_word) && after.chars().next().is_some_and(is_word))
}

/// Returns `true` for letters and digits of scripts that separate words with spaces, and only words.
fn is_word(c: char) -> bool {
    c.is_alphanumeric()
        && !matches!(c,
            // Thai to Tibetan, Khmer, kana, Han, and Hangul, where particles follow words
            '\u{e00}'..='\u{109f}' | '\u{1100}'..='\u{11ff}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}'
            | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}
