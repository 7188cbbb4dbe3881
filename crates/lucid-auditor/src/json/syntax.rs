//! The grammar of JSON, token by token.

use std::ops::Range;

use memchr::{memchr, memchr_iter};
use serde::de::IgnoredAny;

/// The grammar of JSON (RFC 8259), apart from depth, duplicate members and lone surrogates.
#[derive(Debug, Default)]
pub(super) struct Syntax {
    /// Open brackets.
    open: Vec<u8>,
    next: Next,
    pub(super) is_wrong: bool,
    pub(super) is_bare: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Next {
    #[default]
    Value,
    ValueOrEnd,
    NameOrEnd,
    Name,
    Colon,
    CommaOrEnd,
}

impl Syntax {
    pub(super) fn mark(&mut self, byte: u8) {
        let is_in_object = self.open.last() == Some(&b'{');
        self.next = match (byte, self.next) {
            (b'{' | b'[', Next::Value | Next::ValueOrEnd) => {
                self.open.push(byte);
                if byte == b'{' { Next::NameOrEnd } else { Next::ValueOrEnd }
            }
            (b'}', Next::NameOrEnd) | (b']', Next::ValueOrEnd) => self.close(),
            (b'}', Next::CommaOrEnd) if is_in_object => self.close(),
            (b']', Next::CommaOrEnd) if !is_in_object && !self.open.is_empty() => self.close(),
            (b',', Next::CommaOrEnd) if !self.open.is_empty() => {
                if is_in_object {
                    Next::Name
                } else {
                    Next::Value
                }
            }
            (b':', Next::Colon) => Next::Value,
            (_, next) => {
                self.is_wrong = true;
                next
            }
        };
    }

    fn close(&mut self) -> Next {
        self.open.pop();
        Next::CommaOrEnd
    }

    pub(super) fn string(&mut self, text: &str, content: &Range<usize>) {
        let raw = &text[content.clone()];
        self.is_wrong |= content.end >= text.len()
            || raw.bytes().fold(false, |is_wrong, byte| is_wrong | (byte < 0x20))
            || !(memchr(b'\\', raw.as_bytes()).is_none() || are_valid_escapes(raw));
        self.next = match self.next {
            Next::Value | Next::ValueOrEnd => Next::CommaOrEnd,
            Next::Name | Next::NameOrEnd => Next::Colon,
            next => {
                self.is_wrong = true;
                next
            }
        };
    }

    pub(super) fn scalar(&mut self, scalar: &str) {
        let is_expected = matches!(self.next, Next::Value | Next::ValueOrEnd);
        let is_bare = serde_json::from_str::<IgnoredAny>(scalar).is_err();
        self.is_bare |= is_bare;
        self.is_wrong |= !is_expected || is_bare;
        self.next = Next::CommaOrEnd;
    }

    pub(super) fn is_complete(&self) -> bool {
        !self.is_wrong && self.open.is_empty() && self.next == Next::CommaOrEnd
    }
}

fn are_valid_escapes(text: &str) -> bool {
    let mut after = 0;
    memchr_iter(b'\\', text.as_bytes()).all(|at| {
        // The second backslash of a pair does not begin an escape.
        if at < after {
            return true;
        }
        after = at + 2;
        match text.as_bytes().get(at + 1) {
            Some(b'u') => {
                let digits = text.as_bytes().get(at + 2..at + 6);
                digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            }
            Some(byte) => b"\"\\/bfnrt".contains(byte),
            None => false,
        }
    })
}
