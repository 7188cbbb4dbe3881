//! Regular expressions in folded or original text.

use std::{
    ops::Range,
    panic::{RefUnwindSafe, UnwindSafe},
    slice,
};

use regex_automata::{
    Anchored, Input, MatchKind, PatternSet,
    hybrid::dfa::{Cache, DFA},
    meta,
    nfa::thompson::{self, WhichCaptures},
    util::pool::Pool,
};
use regex_syntax::hir::Hir;

use super::super::{Rule, pattern};
use crate::{OptionsError, action::Action, spans::tail};

/// Longest finding of a pattern in a stream.
const MAX_FINDING: usize = 256;

/// Limits in bytes: a compiled pattern, all patterns, and the states of a search. Repetitions of large classes need most.
const PATTERN_SIZE: usize = 1 << 20;
const PATTERNS_SIZE: usize = 32 << 20;
const CACHE_SIZE: usize = 8 << 20;

pub(super) struct Patterns {
    /// Finds the patterns that match anywhere.
    set: meta::Regex,
    patterns: Vec<Pattern>,
    longest: usize,
    masks: Option<Beginnings>,
}

struct Pattern {
    rule: usize,
    /// Finds places to mask. `None` if the rule denies.
    mask: Option<meta::Regex>,
}

impl Patterns {
    /// Compiles the patterns that are exact, or those that are not.
    pub(super) fn new(rules: &[Rule], exact: bool) -> Result<Option<Self>, OptionsError> {
        let mut hirs = Vec::new();
        let mut masks = Vec::new();
        let mut patterns = Vec::new();
        let mut longest = 0;
        for (i, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.exact == exact) {
            let Some(text) = &rule.pattern else { continue };
            let invalid = |fault| OptionsError::new(rule.key(".pattern"), fault);
            let hir = pattern::parse(text, exact).map_err(invalid)?;
            let alone =
                regex(slice::from_ref(&hir), MatchKind::LeftmostFirst, PATTERN_SIZE).map_err(invalid)?;
            let is_mask = rule.action.unwrap_or_default() == Action::Mask;
            if is_mask {
                masks.push(hir.clone());
            }
            longest = longest.max(hir.properties().maximum_len().unwrap_or(MAX_FINDING).min(MAX_FINDING));
            hirs.push(hir);
            patterns.push(Pattern { rule: i, mask: is_mask.then_some(alone) });
        }
        if hirs.is_empty() {
            return Ok(None);
        }
        let compile = |fault| OptionsError::new("rules", fault);
        let set = regex(&hirs, MatchKind::All, PATTERNS_SIZE).map_err(compile)?;
        let masks = match masks.is_empty() {
            true => None,
            false => Some(Beginnings::new(&masks).map_err(compile)?),
        };
        Ok(Some(Self { set, patterns, longest, masks }))
    }

    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    pub(super) fn longest_mask(&self) -> usize {
        if self.masks.is_some() { self.longest } else { 0 }
    }

    /// Calls `found` until it returns `false`, and returns what it returned last.
    pub(super) fn find(&self, text: &str, mut found: impl FnMut(usize, Range<usize>) -> bool) -> bool {
        // Much faster than a search for all of them, and mostly enough.
        if !self.set.is_match(text) {
            return true;
        }
        let mut hits = PatternSet::new(self.patterns.len());
        self.set.which_overlapping_matches(&Input::new(text), &mut hits);
        hits.iter().all(|hit| match &self.patterns[hit.as_usize()] {
            Pattern { rule, mask: None } => found(*rule, 0..0),
            Pattern { rule, mask: Some(regex) } => regex.find_iter(text).all(|hit| found(*rule, hit.range())),
        })
    }

    /// Returns the start of the longest end of `text` that may continue to a finding to mask.
    pub(super) fn unfinished(&self, text: &str) -> Option<usize> {
        let tail = tail(text, self.longest);
        self.masks.as_ref()?.unfinished(text, text.len() - tail.len())
    }
}

fn regex(hirs: &[Hir], kind: MatchKind, size: usize) -> Result<meta::Regex, String> {
    let config = meta::Config::new()
        .match_kind(kind)
        // Words that patterns begin with are frequent: a search for them first takes longer.
        .auto_prefilter(false)
        .nfa_size_limit(Some(size))
        .hybrid_cache_capacity(CACHE_SIZE)
        .which_captures(WhichCaptures::Implicit);
    meta::Builder::new().configure(config).build_many_from_hir(hirs).map_err(|error| {
        match error.size_limit() {
            Some(limit) => {
                format!("expected at most {limit} bytes when compiled, found more: shorten the repetitions")
            }
            None => error.to_string(),
        }
    })
}

/// Recognizes beginnings of matches.
struct Beginnings {
    dfa: DFA,
    caches: Pool<Cache, CreateCache>,
}

type CreateCache = Box<dyn Fn() -> Cache + Send + Sync + UnwindSafe + RefUnwindSafe>;

impl Beginnings {
    fn new(hirs: &[Hir]) -> Result<Self, String> {
        let config =
            thompson::Config::new().nfa_size_limit(Some(PATTERNS_SIZE)).which_captures(WhichCaptures::None);
        let nfa = thompson::Compiler::new()
            .configure(config)
            .build_many_from_hir(hirs)
            .map_err(|error| error.to_string())?;
        let config = DFA::config()
            .match_kind(MatchKind::All)
            .cache_capacity(CACHE_SIZE)
            .skip_cache_capacity_check(true);
        let dfa = DFA::builder().configure(config).build_from_nfa(nfa).map_err(|error| error.to_string())?;
        let create = dfa.clone();
        Ok(Self { dfa, caches: Pool::new(Box::new(move || create.create_cache())) })
    }

    /// Returns the start of the longest end of `text` after `from` that is not ruled out.
    fn unfinished(&self, text: &str, from: usize) -> Option<usize> {
        let mut cache = self.caches.get();
        text[from..].char_indices().map(|(at, _)| from + at).find(|at| {
            let input = Input::new(text).range(*at..).anchored(Anchored::Yes);
            let Ok(mut state) = self.dfa.start_state_forward(&mut cache, &input) else { return true };
            for byte in &text.as_bytes()[*at..] {
                match self.dfa.next_state(&mut cache, state, *byte) {
                    Ok(next) if next.is_dead() => return false,
                    Ok(next) if !next.is_quit() => state = next,
                    _ => return true,
                }
            }
            true
        })
    }
}
