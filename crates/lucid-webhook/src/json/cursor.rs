//! A way through the members of an object.

use std::ops::Range;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Error;
use serde_json::de::SliceRead;

use super::scan::{skip_space, special, value_end};

pub(super) type Parser<'a> = serde_json::Deserializer<SliceRead<'a>>;

/// A place in JSON text. Every method but `peek` gives none where the text goes on in another way than it says, or in an
/// unusual one; the place is of no use then.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Goes to the next byte that is no space, and tells it.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        self.at = skip_space(self.text, self.at);
        self.text.get(self.at).copied()
    }

    /// Passes spaces and `byte`.
    pub(crate) fn pass(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Whether nothing but spaces is left.
    pub(crate) fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Goes to the value of the next member of an object and tells where its key is, without the quotes; `Some(None)`
    /// before the closing brace. `first` is whether it is the one behind the opening brace.
    ///
    /// A key with escapes counts as unusual.
    pub(super) fn next_key_range(&mut self, first: &mut bool) -> Option<Option<Range<usize>>> {
        let first = std::mem::take(first);
        if self.peek()? == b'}' {
            return Some(None);
        }
        if !first {
            self.pass(b',')?;
        }
        self.pass(b'"')?;
        let start = self.at;
        let end = special(self.text, start)?;
        if self.text.get(end) != Some(&b'"') {
            return None;
        }
        self.at = end + 1;
        self.pass(b':')?;
        self.peek()?;
        Some(Some(start..end))
    }

    /// Goes to the value of the next member of an object, as [`Self::next_key_range`] does, and tells its key.
    pub(crate) fn next_key(&mut self, first: &mut bool) -> Option<Option<&'a str>> {
        match self.next_key_range(first)? {
            Some(range) => str::from_utf8(&self.text[range]).ok().map(Some),
            None => Some(None),
        }
    }

    /// Passes a value. What is in an object or a list is not looked at.
    pub(crate) fn skip(&mut self) -> Option<Range<usize>> {
        self.peek()?;
        let start = self.at;
        self.at = value_end(self.text, start)?;
        Some(start..self.at)
    }

    /// Has serde_json read a value.
    pub(super) fn parse<T>(
        &mut self,
        read: impl FnOnce(&mut Parser<'a>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut parser = Parser::from_slice(self.text.get(self.at..).unwrap_or_default());
        let value = read(&mut parser);
        self.at += parser.into_iter::<IgnoredAny>().byte_offset();
        value
    }

    /// Reads a value.
    pub(crate) fn read<T: Deserialize<'a>>(&mut self) -> Option<T> {
        self.parse(|parser| T::deserialize(parser)).ok()
    }
}
