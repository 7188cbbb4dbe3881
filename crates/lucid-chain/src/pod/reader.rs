//! Reads the JSON of a pod from front to back, in one pass. Rare and small parts are read by serde.

use serde::{Deserialize, de::IgnoredAny};

use super::json::{LONGEST_LIST, LazyText, List, Object, PodError, Text};

type Result<T> = std::result::Result<T, PodError>;

/// JSON and the position of the next value.
pub(crate) struct Reader<'a> {
    json: &'a str,
    next: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(json: &'a str) -> Self {
        Self { json, next: 0 }
    }

    /// Fails unless only white space is left.
    pub(super) fn end(mut self) -> Result<()> {
        if self.peek().is_none() { Ok(()) } else { Err(self.syntax_error()) }
    }

    /// Skips white space and returns the next byte.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.json.as_bytes().get(self.next) {
                Some(b' ' | b'\n' | b'\t' | b'\r') => self.next += 1,
                byte => return byte.copied(),
            }
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.next += usize::from(is_next);
        is_next
    }

    fn rest(&self) -> &'a str {
        self.json.get(self.next..).unwrap_or_default()
    }

    /// Reads a value by serde.
    pub(super) fn value<T: Deserialize<'a>>(&mut self) -> Result<T> {
        let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter::<T>();
        if let Some(Ok(value)) = values.next() {
            self.next += values.byte_offset();
            return Ok(value);
        }
        // Tracking the path costs more than reading.
        let mut deserializer = serde_json::Deserializer::from_str(self.rest());
        match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
            Ok(_) => Err(self.syntax_error()),
            Err(error) => Err(PodError::at(error.path().to_string(), error.into_inner())),
        }
    }

    pub(crate) fn skip(&mut self) -> Result<()> {
        self.value::<IgnoredAny>().map(drop)
    }

    /// Reads a value, and returns its text as well.
    pub(super) fn with_text<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<(T, &'a str)> {
        self.peek();
        let rest = self.rest();
        let start = self.next;
        let value = read(self)?;
        Ok((value, rest.get(..self.next - start).unwrap_or_default()))
    }

    /// Reads the value of a member, unless it is `null`. A member may occur only once.
    pub(crate) fn member<T>(
        &mut self,
        member: &mut Option<T>,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<()> {
        if member.is_some() {
            return Err(PodError::new("", "duplicate field"));
        }
        if self.peek() == Some(b'n') {
            return self.skip();
        }
        *member = Some(read(self)?);
        Ok(())
    }

    /// Reads the members of an object. `member` reads the value of the member with this name.
    pub(crate) fn object(&mut self, mut member: impl FnMut(&mut Self, &str) -> Result<()>) -> Result<()> {
        if !self.take(b'{') {
            return Err(self.mismatch::<Object<IgnoredAny>>());
        }
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.syntax_error());
            }
            let key = self.text()?;
            if !self.take(b':') {
                return Err(self.syntax_error());
            }
            member(self, &key).map_err(|error| error.within(&key))?;
            if self.take(b'}') {
                return Ok(());
            }
            if !self.take(b',') {
                return Err(self.syntax_error());
            }
        }
    }

    /// Reads the items of a list. `item` reads the item with this index.
    pub(super) fn items(&mut self, mut item: impl FnMut(&mut Self, usize) -> Result<()>) -> Result<()> {
        if !self.take(b'[') {
            return Err(self.mismatch::<List<IgnoredAny>>());
        }
        if self.take(b']') {
            return Ok(());
        }
        let mut index = 0;
        loop {
            item(self, index).map_err(|error| error.within(&format!("[{index}]")))?;
            if self.take(b']') {
                return Ok(());
            }
            if !self.take(b',') {
                return Err(self.syntax_error());
            }
            index += 1;
        }
    }

    /// Reads a list of at most [`LONGEST_LIST`] items.
    pub(super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let (mut items, mut is_too_long) = (Vec::new(), false);
        self.items(|reader, index| {
            is_too_long = index >= LONGEST_LIST;
            if is_too_long { reader.skip() } else { item(reader).map(|item| items.push(item)) }
        })?;
        match is_too_long {
            false => Ok(items),
            true => Err(PodError::new(
                "",
                format_args!("found more than {LONGEST_LIST} items, accepted at most {LONGEST_LIST}"),
            )),
        }
    }

    /// Reads a string; empty for `null`.
    pub(crate) fn text(&mut self) -> Result<Text<'a>> {
        if self.peek() == Some(b'"') {
            let start = self.next + 1;
            let end = special(self.json.as_bytes(), start);
            if self.json.as_bytes().get(end) == Some(&b'"') {
                self.next = end + 1;
                return Ok(self.json.get(start..end).unwrap_or_default().into());
            }
        }
        self.value()
    }

    /// Reads a string that is decoded later.
    pub(super) fn lazy_text(&mut self) -> Result<LazyText<'a>> {
        let (bytes, start) = (self.json.as_bytes(), self.next);
        if self.peek() != Some(b'"') {
            return self.value();
        }
        let mut end = special(bytes, self.next + 1);
        // Escapes of a single character are valid or not on their own.
        while let [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] =
            bytes.get(end..).unwrap_or_default()
        {
            end = special(bytes, end + 2);
        }
        if bytes.get(end) != Some(&b'"') {
            self.next = start;
            return self.value();
        }
        let json = self.json.get(self.next..=end).unwrap_or_default();
        self.next = end + 1;
        Ok(LazyText::new(json))
    }

    /// Returns the error for a value that is no `T`.
    fn mismatch<T: Deserialize<'a>>(&mut self) -> PodError {
        self.value::<T>().err().unwrap_or_else(|| self.syntax_error())
    }

    fn syntax_error(&self) -> PodError {
        match serde_json::from_str::<IgnoredAny>(self.json) {
            Err(error) => PodError::at(String::new(), error),
            Ok(_) => PodError::new("", "invalid JSON"),
        }
    }
}

/// Returns the position of the first quote, backslash or control character from `start` on.
fn special(bytes: &[u8], start: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = ONES << 7;
    let mut at = start;
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let word = u64::from_le_bytes(*word);
        let (quote, backslash) = (word ^ (ONES * 0x22), word ^ (ONES * 0x5c));
        let zero = |word: u64| word.wrapping_sub(ONES) & !word;
        // The lowest mark is exact.
        let found = (zero(quote) | zero(backslash) | word.wrapping_sub(ONES * 0x20) & !word) & HIGH;
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20);
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(is_special).unwrap_or(rest.len())
}
