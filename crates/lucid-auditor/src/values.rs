//! Replacements in JSON that is the content of a string, such as the arguments of a tool: it stays JSON.

use std::ops::Range;

use crate::json::encode;

/// Length up to which text outside of strings counts as a scalar.
const MAX_SCALAR: usize = 128;

/// Strings and scalars of a text, if it is JSON. Positions count bytes from its beginning.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values {
    /// `None` before the first character.
    is_json: Option<bool>,
    /// In order. The last one may be open.
    values: Vec<Value>,
    is_open: bool,
    is_escaped: bool,
}

/// A string without its quotes, or a number, `true`, `false` or `null`.
#[derive(Debug, Clone)]
struct Value {
    range: Range<usize>,
    is_string: bool,
}

impl Value {
    fn is_scalar(&self) -> bool {
        !self.is_string && self.range.len() <= MAX_SCALAR
    }
}

impl Values {
    pub(crate) fn of(text: &str) -> Self {
        let mut values = Self::default();
        values.pass(0, text);
        values
    }

    /// Reads a part of the text, which begins at `start`.
    pub(crate) fn pass(&mut self, start: usize, part: &str) {
        for (at, byte) in (start..).zip(part.bytes()) {
            if self.is_json.is_none() && !byte.is_ascii_whitespace() {
                self.is_json = Some(matches!(byte, b'{' | b'['));
            }
            let open = self.values.last_mut().filter(|_| self.is_open);
            match (open, byte) {
                (Some(value), _) if value.is_string => {
                    self.is_open = byte != b'"' || self.is_escaped;
                    self.is_escaped = byte == b'\\' && !self.is_escaped;
                    value.range.end = if self.is_open { at + 1 } else { at };
                }
                (_, b'"') => {
                    self.values.push(Value { range: at + 1..at + 1, is_string: true });
                    self.is_open = true;
                }
                (_, b'{' | b'}' | b'[' | b']' | b',' | b':') => self.is_open = false,
                (_, byte) if byte.is_ascii_whitespace() => self.is_open = false,
                (Some(scalar), _) => scalar.range.end = at + 1,
                (None, _) => {
                    self.values.push(Value { range: at..at + 1, is_string: false });
                    self.is_open = true;
                }
            }
        }
    }

    pub(crate) fn forget(&mut self, position: usize) {
        let ended = self.values.partition_point(|value| value.range.end < position);
        self.values.drain(..ended.min(self.values.len().saturating_sub(1)));
    }

    /// Rounds `position` down to the start of the scalar that contains it, or that may continue after it: scalars are replaced
    /// as a whole.
    pub(crate) fn floor(&self, position: usize) -> usize {
        let index = self.values.partition_point(|value| value.range.end < position);
        let Some(value) = self.values.get(index).filter(|value| value.is_scalar()) else { return position };
        let is_inside = position < value.range.end || self.is_open && index + 1 == self.values.len();
        match self.is_json {
            Some(true) if is_inside => position.min(value.range.start),
            _ => position,
        }
    }

    /// Returns the parts to replace at `range`, with their encoded replacements: the first string or scalar there gets
    /// `replacement`, the others nothing. Scalars become strings.
    pub(crate) fn replace(&self, range: Range<usize>, replacement: &str) -> Vec<(Range<usize>, String)> {
        if self.is_json != Some(true) {
            return vec![(range, encode(replacement))];
        }
        let first = self.values.partition_point(|value| value.range.end <= range.start);
        let touched = self.values[first..].iter().take_while(|value| value.range.start < range.end);
        let parts = touched.enumerate().map(|(index, value)| {
            let replacement = if index == 0 { encode(replacement) } else { String::new() };
            match value.is_scalar() {
                true => (value.range.clone(), format!("\"{replacement}\"")),
                false => (range.start.max(value.range.start)..range.end.min(value.range.end), replacement),
            }
        });
        parts.collect()
    }
}
