//! A text that arrives in pieces, and how far the judges have decided on it.

use std::{borrow::Cow, ops::Range, sync::Arc};

use futures::future::join_all;

use crate::{
    AuditMode, Passage, Span,
    json::{Offsets, decode},
    policy::Member,
    protocol::Rule,
    text::{Edit, Source},
    values::Values,
    verdict::{Denial, Outcome, Panel},
};

/// Length from which a word may be cut at the beginning of a window.
const LONG_WORD: usize = 64;

/// Surplus of old text from which it is dropped.
const SURPLUS: usize = 4 << 10;

/// One text of a stream. Positions count bytes from its beginning.
#[derive(Debug)]
pub(crate) struct Track {
    /// Describes the text; without the text itself.
    passage: Passage<'static>,
    rule: &'static Rule,
    /// The last part of the text.
    tail: String,
    /// Position of the tail.
    base: usize,
    seats: Vec<(Arc<Member>, Seat)>,
    /// Parts to replace. In nested JSON, the replacements are encoded.
    masks: Vec<Span>,
    /// Length of the longest of them so far.
    longest: usize,
    /// Strings and scalars of nested JSON.
    values: Values,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seat {
    /// The judge has seen the text up to here.
    judged: usize,
    /// Its verdict on the text up to here is final.
    decided: usize,
    /// Windows begin here at the earliest.
    from: usize,
}

struct Window<'a> {
    start: usize,
    passage: Passage<'a>,
    /// Way back to the escaped text.
    offsets: Offsets,
    /// The end of the text is an incomplete escape.
    is_cut: bool,
}

impl Track {
    pub(crate) fn new(passage: Passage<'static>, rule: &'static Rule, panel: &Panel) -> Self {
        let concerned = panel.judges.iter().filter(|member| member.concerns(&passage));
        let seats = concerned.map(|member| (Arc::clone(member), Seat::default())).collect();
        Self {
            passage,
            rule,
            tail: String::new(),
            base: 0,
            seats,
            masks: Vec::new(),
            longest: 0,
            values: Values::default(),
        }
    }

    /// Appends a piece and returns its place.
    pub(crate) fn push(&mut self, piece: &str) -> Range<usize> {
        let start = self.end();
        if self.rule.is_nested() {
            self.values.pass(start, piece);
        }
        self.tail.push_str(piece);
        start..self.end()
    }

    pub(crate) fn rule(&self) -> &'static Rule {
        self.rule
    }

    /// Returns `true` if a judge has not decided on the whole text.
    pub(crate) fn is_open(&self) -> bool {
        self.seats.iter().any(|(_, seat)| seat.decided < self.end())
    }

    pub(crate) fn choice(&self) -> Option<u32> {
        self.passage.choice
    }

    fn end(&self) -> usize {
        self.base + self.tail.len()
    }

    /// Returns the position up to which the text may be released.
    pub(crate) fn settled(&self, panel: &Panel) -> usize {
        let seats = self.seats.iter().filter(|(member, _)| panel.enforces(member));
        seats.map(|(_, seat)| seat.decided).min().unwrap_or_else(|| self.end())
    }

    /// Calls the judges that have enough new text, or all of them at the end of the text.
    pub(crate) async fn judge(&mut self, panel: &Panel, is_end: bool) -> Result<(), Denial> {
        let windows = self.seats.iter().enumerate().filter_map(|(index, (member, seat))| {
            Some((index, member, *seat, self.window(panel, member, *seat, is_end)?))
        });
        let windows: Vec<_> = windows.collect();
        let asked = windows.iter().map(|(_, member, _, window)| panel.ask(member, &window.passage, None));
        let outcomes = join_all(asked.collect::<Vec<_>>()).await;
        let end = self.end();
        let mut denied = None;
        let mut progress = Vec::new();
        let mut masks = Vec::new();
        for ((index, member, seat, window), outcome) in windows.iter().zip(outcomes) {
            let mut seat = Seat { judged: end, ..*seat };
            let mut limit = match is_end || panel.observes_aside(member) {
                true => end,
                false => self.values.floor(window.limit(member)),
            };
            let outcome = match outcome {
                Outcome::Mask(spans) => {
                    let accepted = window.accept(spans, &mut limit, seat.decided, end, &self.values);
                    masks.extend(accepted.iter().map(|span| window.in_text(span, seat.decided)));
                    if accepted.is_empty() { Outcome::Allow } else { Outcome::Mask(accepted) }
                }
                Outcome::Deny(denial) => {
                    if panel.enforces(member) {
                        // Nothing more is released.
                        limit = seat.decided;
                        denied = denied.or(Some(denial.clone()));
                    } else {
                        // Do not report it again.
                        (limit, seat.from) = (end, end);
                    }
                    Outcome::Deny(denial)
                }
                Outcome::Allow => Outcome::Allow,
            };
            if !panel.observes_aside(member) {
                panel.report(member, &window.passage, &outcome);
            }
            seat.decided = seat.decided.max(limit);
            progress.push((*index, seat));
        }
        drop(windows);
        for (index, seat) in progress {
            self.seats[index].1 = seat;
        }
        if panel.mode == AuditMode::Enforce {
            if self.rule.is_nested() {
                masks = masks.into_iter().flat_map(|mask| self.encoded(mask)).collect();
            }
            for mask in masks {
                self.longest = self.longest.max(mask.range.len());
                self.masks.push(mask);
            }
            self.masks.sort_by_key(|mask| mask.range.start);
        }
        self.trim();
        denied.map_or(Ok(()), Err)
    }

    /// Returns the window that a judge has to evaluate now, if any.
    fn window(&self, panel: &Panel, member: &Member, seat: Seat, is_end: bool) -> Option<Window<'_>> {
        let end = self.end();
        let stride = match panel.observes_aside(member) {
            // Few windows report a finding twice.
            true => member.judge.stride().max(8 * member.judge.overlap()),
            false => member.judge.stride(),
        };
        let is_due = end - seat.judged >= stride.max(1) || is_end && seat.decided < end;
        is_due.then_some(())?;
        let before = self.tail.get(..seat.decided.saturating_sub(self.base)).unwrap_or_default();
        let context = match self.rule.is_nested() && before.contains('\\') {
            // Escapes are longer than what they stand for.
            true => member.judge.overlap(),
            false => member.judge.context(before),
        };
        let start = seat.decided.saturating_sub(context).max(seat.from).max(self.base);
        let start = (self.base + start_of_word(&self.tail, start - self.base)).max(seat.from);
        let text = &self.tail[start - self.base..];
        let (text, offsets, is_cut) = match self.rule.is_nested() && text.contains('\\') {
            true => {
                let decoded = decode(text);
                (decoded.text, decoded.offsets, decoded.complete < text.len())
            }
            false => (Cow::Borrowed(text), Offsets::default(), false),
        };
        Some(Window {
            start,
            passage: Passage { has_more: !is_end, ..self.passage.describe(text) },
            offsets,
            is_cut,
        })
    }

    fn encoded(&self, mask: Span) -> Vec<Span> {
        let parts = self.values.replace(mask.range.clone(), &mask.replacement).into_iter();
        parts.map(|(range, text)| Span { range, replacement: text.into(), ..mask.clone() }).collect()
    }

    /// Drops text that windows no longer need.
    fn trim(&mut self) {
        let needed = self.seats.iter().map(|(member, seat)| {
            seat.decided.min(seat.judged).saturating_sub(member.judge.overlap() + LONG_WORD).max(seat.from)
        });
        let needed = needed.min().unwrap_or_else(|| self.end()).saturating_sub(self.base);
        if needed > SURPLUS || needed == self.tail.len() {
            let cut = self.tail.floor_char_boundary(needed);
            self.tail.drain(..cut);
            self.base += cut;
            self.values.forget(self.base);
        }
    }

    /// Returns the edits of a piece, which consists of the string `source`.
    pub(crate) fn edits(&self, piece: &Range<usize>, source: &Source) -> Vec<Edit> {
        let first = self.masks.partition_point(|mask| mask.range.start + self.longest <= piece.start);
        let masks = self.masks[first..].iter().take_while(|mask| mask.range.start < piece.end);
        let masks = masks.filter(|mask| piece.start < mask.range.end);
        let edits = masks.flat_map(|mask| {
            let range = &mask.range;
            let part = range.start.max(piece.start) - piece.start..range.end.min(piece.end) - piece.start;
            let replacement = if range.start >= piece.start { &*mask.replacement } else { "" };
            source.edits(part, replacement)
        });
        edits.collect()
    }

    pub(crate) fn masks(&self) -> &[Span] {
        &self.masks
    }

    /// Forgets replacements in text that is released.
    pub(crate) fn release(&mut self, end: usize) {
        self.masks.retain(|mask| mask.range.end > end);
    }
}

impl Window<'_> {
    /// Returns the position of an offset of the judged text.
    fn position(&self, offset: usize) -> usize {
        self.start + self.offsets.escaped(offset)
    }

    fn limit(&self, member: &Member) -> usize {
        let text = &*self.passage.text;
        let undecided = member.judge.undecided(text).min(text.len());
        let limit = self.position(text.floor_char_boundary(text.len() - undecided));
        // Text after an incomplete escape is undecided too.
        if self.is_cut { limit.min(self.position(text.len())) } else { limit }
    }

    /// Returns the spans that are new and end before the limit, which is moved in front of a span that it cuts.
    fn accept(
        &self,
        mut spans: Vec<Span>,
        limit: &mut usize,
        decided: usize,
        end: usize,
        values: &Values,
    ) -> Vec<Span> {
        spans.sort_by_key(|span| std::cmp::Reverse(span.range.start));
        for span in &spans {
            let (from, to) = (self.position(span.range.start), self.position(span.range.end));
            if *limit < end && from < *limit && *limit < to {
                *limit = values.floor(from);
            }
        }
        let is_new = |span: &Span| {
            let to = self.position(span.range.end);
            decided < to && to <= *limit
        };
        spans.retain(is_new);
        spans
    }

    /// Returns the span by positions of the text. What is released already cannot be replaced.
    fn in_text(&self, span: &Span, decided: usize) -> Span {
        let range = self.position(span.range.start).max(decided)..self.position(span.range.end);
        Span { range, ..span.clone() }
    }
}

/// Returns the beginning of the word at an offset: in the middle of one, a window would show another word.
fn start_of_word(text: &str, at: usize) -> usize {
    let at = text.floor_char_boundary(at);
    let from = text.ceil_char_boundary(at.saturating_sub(LONG_WORD));
    match from == 0 {
        _ if at == 0 => 0,
        true => text[..at].rfind(char::is_whitespace).unwrap_or(0),
        false => text[from..at].rfind(char::is_whitespace).map_or(at, |space| from + space),
    }
}
