//! Search for phrases and patterns.

mod patterns;
mod phrases;

use std::ops::Range;

use self::{patterns::Patterns, phrases::Phrases};
use super::Rule;
use crate::{OptionsError, normalize::Normalized, spans::tail};

/// Folded text is at most this many times shorter, except for white space, punctuation and invisible characters.
const MAX_SHRINKAGE: usize = 4;

pub(super) struct Finding {
    pub(super) rule: usize,
    /// Bytes of the text. Empty for patterns that deny.
    pub(super) range: Range<usize>,
}

pub(super) struct Matcher {
    phrases: Phrases,
    folded: Option<Patterns>,
    exact: Option<Patterns>,
    all: Longest,
    /// Lengths of findings whose beginning is undecided: phrases, and patterns to mask.
    withheld: Longest,
}

/// Lengths of the longest findings in folded text, and of exact patterns.
struct Longest {
    folded: usize,
    exact: usize,
}

impl Longest {
    /// Length of the end of `text` that may contain the beginning of a finding: few letters and digits become shorter or
    /// disappear when they are folded; others may.
    fn reach(&self, text: &str) -> usize {
        let bytes = tail(text, self.overlap()).bytes().rev();
        let mut kept = 0;
        let folded = bytes.take_while(|byte| {
            kept += usize::from(byte.is_ascii_alphanumeric());
            kept <= self.folded
        });
        folded.count().max(self.exact) + char::MAX.len_utf8()
    }

    /// Length of the longest finding before it is folded, and of the character before it, which decides whether it is a
    /// whole word.
    fn overlap(&self) -> usize {
        (self.folded * MAX_SHRINKAGE).max(self.exact) + char::MAX.len_utf8()
    }
}

impl Matcher {
    pub(super) fn new(rules: &[Rule]) -> Result<Self, OptionsError> {
        let phrases = Phrases::new(rules)?;
        let folded = Patterns::new(rules, false)?;
        let exact = Patterns::new(rules, true)?;
        let longest = |of: fn(&Patterns) -> usize| Longest {
            folded: phrases.longest().max(folded.as_ref().map_or(0, of)),
            exact: exact.as_ref().map_or(0, of),
        };
        let (all, withheld) = (longest(Patterns::longest), longest(Patterns::longest_mask));
        Ok(Self { phrases, folded, exact, all, withheld })
    }

    pub(super) fn overlap(&self) -> usize {
        self.all.overlap()
    }

    /// Length of the end of `before` that may contain the beginning of a finding.
    pub(super) fn context(&self, before: &str) -> usize {
        self.all.reach(before)
    }

    /// Calls `found` for findings until it returns `false`. With `has_more`, other text may follow.
    pub(super) fn find(&self, text: &str, has_more: bool, mut found: impl FnMut(Finding) -> bool) {
        let normalized = Normalized::new(text);
        let mut in_folded = |rule, range| found(Finding { rule, range: normalized.original(range) });
        let mut more = self.find_folded(&normalized.text, has_more, &mut in_folded);
        if more && let Some(words) = normalized.words(has_more) {
            let in_words = |rule, range| in_folded(rule, words.original(range));
            more = self.find_folded(&words.text, has_more, in_words);
        }
        if let Some(patterns) = self.exact.as_ref().filter(|_| more) {
            patterns.find(text, |rule, range| found(Finding { rule, range }));
        }
    }

    /// Calls `found` until it returns `false`, and returns what it returned last.
    fn find_folded(
        &self,
        text: &str,
        has_more: bool,
        mut found: impl FnMut(usize, Range<usize>) -> bool,
    ) -> bool {
        self.phrases.find(text, has_more, &mut found)
            && self.folded.as_ref().is_none_or(|patterns| patterns.find(text, &mut found))
    }

    /// Length of the longest end of `text` that may be the beginning of a phrase, or of a pattern to mask.
    pub(super) fn undecided(&self, text: &str) -> usize {
        let tail = tail(text, self.withheld.reach(text));
        let normalized = Normalized::new(tail);
        let unfinished = |text: &str| {
            let in_patterns = self.folded.as_ref().and_then(|patterns| patterns.unfinished(text));
            self.phrases.unfinished(text).into_iter().chain(in_patterns).min()
        };
        let words = normalized.words(true);
        let in_words = words
            .as_ref()
            .and_then(|words| Some(words.original(unfinished(&words.text)?..words.text.len()).start));
        let in_folded = unfinished(&normalized.text).into_iter().chain(in_words).min();
        let in_folded = in_folded.map(|at| normalized.original(at..at + 1).start);
        let in_exact = self.exact.as_ref().and_then(|patterns| patterns.unfinished(tail));
        in_folded.into_iter().chain(in_exact).min().map_or(0, |at| tail.len() - at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_contains_what_folding_shortens() {
        let matcher = Matcher::new(&[Rule::phrases("a", ["bluebird"])]).unwrap();
        for (before, context) in [
            ("the project is called blue", 13),
            ("the project  is  called  b", 16),
            (&*"b\u{200b}".repeat(80), 39),
            (&*"\u{1d41b}".repeat(80), 40),
        ] {
            assert_eq!(matcher.context(before), context, "{before}");
        }
    }
}
