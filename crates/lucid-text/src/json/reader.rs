use std::{borrow::Cow, collections::BTreeMap, str::FromStr};

use serde::{
    Deserialize,
    de::{Error as _, IgnoredAny, Unexpected},
};
use serde_json::Value;

use super::{
    Error,
    value::{begins_with_short_escape, end_of_value, peek, special},
};

type Result<T> = std::result::Result<T, Error>;

/// Maximum number of items of a [`Reader::list`]: more than the meaningful items that fit into 1.5 MiB, the size limit of
/// etcd. The limit bounds memory: an empty object takes 3 bytes of JSON and far more when parsed.
pub const LONGEST_LIST: usize = 65_536;

/// A string that borrows from the JSON unless it contains escapes.
pub type Text<'a> = Cow<'a, str>;

/// The JSON of a valid string, which is decoded when it is read. This saves a copy of every string with escapes.
#[derive(Debug, Clone, Copy)]
pub struct LazyText<'a>(&'a str);

impl<'a> LazyText<'a> {
    /// Decodes the string.
    #[must_use]
    pub fn decode(self) -> Text<'a> {
        Reader::new(self.0).text().unwrap_or_default()
    }
}

/// Reads JSON from front to back. Each method reads the next value.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    json: &'a str,
    next: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader of one value.
    #[must_use]
    pub const fn new(json: &'a str) -> Self {
        Self { json, next: 0 }
    }

    /// Fails unless only white space is left.
    ///
    /// # Errors
    ///
    /// An [`Error`] if something follows the value.
    pub fn end(mut self) -> Result<()> {
        if self.peek().is_none() { Ok(()) } else { Err(self.syntax_error()) }
    }

    fn peek(&mut self) -> Option<u8> {
        peek(self.json.as_bytes(), &mut self.next)
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.next += usize::from(is_next);
        is_next
    }

    fn rest(&self) -> &'a str {
        self.json.get(self.next..).unwrap_or_default()
    }

    /// Reads a small value by serde.
    ///
    /// # Errors
    ///
    /// An [`Error`] if the value is invalid or not a `T`.
    pub fn value<T: Deserialize<'a>>(&mut self) -> Result<T> {
        let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter();
        let value = values.next().unwrap_or_else(|| Err(serde_json::Error::custom("expected a value")));
        let value = value.map_err(Error::from)?;
        self.next += values.byte_offset();
        Ok(value)
    }

    /// Reads a value that counts as absent if it is of the wrong type.
    ///
    /// # Errors
    ///
    /// An [`Error`] if the value is not valid JSON.
    pub fn lenient<T: FromStr>(&mut self) -> Result<Option<T>> {
        Ok(self.raw()?.parse().ok())
    }

    /// Skips a value.
    ///
    /// # Errors
    ///
    /// An [`Error`] if the value is not valid JSON.
    pub fn skip(&mut self) -> Result<()> {
        match end_of_value(self.json.as_bytes(), self.next) {
            Some(end) => self.next = end,
            // Reports the problem.
            None => drop(self.value::<IgnoredAny>()?),
        }
        Ok(())
    }

    /// Returns the text of a value.
    ///
    /// # Errors
    ///
    /// An [`Error`] if the value is not valid JSON.
    pub fn raw(&mut self) -> Result<&'a str> {
        let start = self.start();
        self.skip()?;
        Ok(self.since(start))
    }

    /// Returns the position of the next value.
    #[must_use]
    pub fn start(&mut self) -> usize {
        self.peek();
        self.next
    }

    /// Returns the text that was read from a position on.
    #[must_use]
    pub fn since(&self, start: usize) -> &'a str {
        self.json.get(start..self.next).unwrap_or_default()
    }

    /// Reads the value of a member, unless it is `null`. A member may occur only once.
    ///
    /// # Errors
    ///
    /// An [`Error`] of `read`, or if the member is already there.
    pub fn member<T>(
        &mut self,
        member: &mut Option<T>,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<()> {
        if member.is_some() {
            return Err(Error::new("duplicate field"));
        }
        if self.peek() == Some(b'n') {
            return self.skip();
        }
        *member = Some(read(self)?);
        Ok(())
    }

    /// Reads the members of an object. `member` reads the value of the member with this name.
    ///
    /// # Errors
    ///
    /// An [`Error`] of `member`, with the name in its path, or if the value is not an object.
    pub fn object(&mut self, mut member: impl FnMut(&mut Self, &str) -> Result<()>) -> Result<()> {
        self.entries("an object", |reader, key| member(reader, key))
    }

    /// Reads an object of which only this member is needed.
    ///
    /// # Errors
    ///
    /// An [`Error`] of `read`, with the name in its path, or if the value is not an object.
    pub fn only_member<T>(
        &mut self,
        name: &str,
        mut read: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut member = None;
        self.object(|reader, key| match key == name {
            true => reader.member(&mut member, &mut read),
            false => reader.skip(),
        })?;
        Ok(member)
    }

    /// Reads a map of at most [`LONGEST_LIST`] entries, of which the last of several equal keys counts.
    ///
    /// # Errors
    ///
    /// An [`Error`] of `value`, with the key in its path, or if the value is not an object or has more entries.
    pub fn map<T>(&mut self, mut value: impl FnMut(&mut Self) -> Result<T>) -> Result<BTreeMap<Text<'a>, T>> {
        let mut map = BTreeMap::new();
        self.entries("a map", |reader, key| {
            let value = value(reader)?;
            map.insert(key.clone(), value);
            if map.len() > LONGEST_LIST { Err(too_long()) } else { Ok(()) }
        })?;
        Ok(map)
    }

    #[inline(always)]
    fn entries(
        &mut self,
        expected: &str,
        mut entry: impl FnMut(&mut Self, &Text<'a>) -> Result<()>,
    ) -> Result<()> {
        if !self.take(b'{') {
            return Err(self.mismatch(expected));
        }
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.syntax_error());
            }
            let key = self.string()?;
            if !self.take(b':') {
                return Err(self.syntax_error());
            }
            entry(self, &key).map_err(|error| error.within(&key))?;
            if self.ends(b'}')? {
                return Ok(());
            }
        }
    }

    /// Reads what follows an item: returns `true` for `close`, and `false` for a comma.
    #[inline(always)]
    fn ends(&mut self, close: u8) -> Result<bool> {
        let next = self.peek();
        self.next += 1;
        match next {
            Some(b',') => Ok(false),
            Some(byte) if byte == close => Ok(true),
            _ => Err(self.syntax_error()),
        }
    }

    /// Reads the items of a list. `item` reads the item with this index.
    ///
    /// # Errors
    ///
    /// An [`Error`] of `item`, with the index in its path, or if the value is not a list.
    pub fn items(&mut self, mut item: impl FnMut(&mut Self, usize) -> Result<()>) -> Result<()> {
        if !self.take(b'[') {
            return Err(self.mismatch("a list"));
        }
        if self.take(b']') {
            return Ok(());
        }
        let mut index = 0;
        loop {
            item(self, index).map_err(|error| error.within(&format!("[{index}]")))?;
            if self.ends(b']')? {
                return Ok(());
            }
            index += 1;
        }
    }

    /// Reads a list of at most [`LONGEST_LIST`] items.
    ///
    /// # Errors
    ///
    /// An [`Error`] of `item`, with the index in its path, or if the value is not a list or too long.
    pub fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let (mut items, mut is_too_long) = (Vec::new(), false);
        self.items(|reader, index| {
            is_too_long = index >= LONGEST_LIST;
            if is_too_long { reader.skip() } else { item(reader).map(|item| items.push(item)) }
        })?;
        match is_too_long {
            false => Ok(items),
            true => Err(too_long()),
        }
    }

    /// Reads a string; empty for `null`.
    ///
    /// # Errors
    ///
    /// An [`Error`] if the value is not a string, or has an escape of half a surrogate pair.
    #[inline(always)]
    pub fn text(&mut self) -> Result<Text<'a>> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'n') => self.skip().map(|()| Text::default()),
            _ => Err(self.mismatch("a string")),
        }
    }

    #[inline(always)]
    fn string(&mut self) -> Result<Text<'a>> {
        let (start, bytes) = (self.next + 1, self.json.as_bytes());
        let end = special(bytes, start);
        if bytes.get(end) != Some(&b'"') {
            return self.decoded();
        }
        self.next = end + 1;
        Ok(Text::Borrowed(self.json.get(start..end).unwrap_or_default()))
    }

    #[cold]
    fn decoded(&mut self) -> Result<Text<'a>> {
        self.value().map(Text::Owned).map_err(|error| match self.skip() {
            Ok(()) => Error::new("found a lone surrogate in a hex escape"),
            Err(_) => error,
        })
    }

    /// Reads a string that is decoded later.
    ///
    /// # Errors
    ///
    /// An [`Error`] as for [`text`](Self::text).
    pub fn lazy_text(&mut self) -> Result<LazyText<'a>> {
        let (is_text, start) = (self.peek() == Some(b'"'), self.next);
        let bytes = self.json.as_bytes();
        let mut end = special(bytes, start + 1);
        while bytes.get(end..).is_some_and(begins_with_short_escape) {
            end = special(bytes, end + 2);
        }
        match is_text && bytes.get(end) == Some(&b'"') {
            true => self.next = end + 1,
            false => drop(self.text()?),
        }
        Ok(LazyText(self.json.get(start..self.next).unwrap_or_default()))
    }

    /// Reads a number or, if that is next, a string. `expected` names them in the error.
    ///
    /// # Errors
    ///
    /// An [`Error`] if the value is neither.
    pub fn number_or_text(&mut self, expected: &str) -> Result<std::result::Result<i64, Text<'a>>> {
        match self.peek() {
            Some(b'"') => self.text().map(Err),
            _ => self.value().map(Ok).map_err(|_| self.mismatch(expected)),
        }
    }

    fn mismatch(&mut self, expected: &str) -> Error {
        let value = match self.peek() {
            // Not parsed, because they may be large.
            Some(b'[') => Value::Array(Vec::new()),
            Some(b'{') => Value::Object(serde_json::Map::new()),
            _ => match self.value() {
                Ok(value) => value,
                Err(error) => return error,
            },
        };
        let found = match &value {
            Value::Null => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => Unexpected::Unsigned(number),
                (None, Some(number)) => Unexpected::Signed(number),
                (None, None) => Unexpected::Float(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => Unexpected::Str(text),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        };
        serde_json::Error::invalid_type(found, &expected).into()
    }

    fn syntax_error(&self) -> Error {
        match serde_json::from_str::<IgnoredAny>(self.json) {
            Err(error) => error.into(),
            Ok(_) => Error::new("invalid JSON"),
        }
    }
}

/// Returns the error for a list or map of more than [`LONGEST_LIST`] items.
fn too_long() -> Error {
    Error::new(format_args!("expected at most {LONGEST_LIST} items, found more"))
}
