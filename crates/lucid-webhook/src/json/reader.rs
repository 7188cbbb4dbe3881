//! A serde `Deserializer` that reads of structs only what they have.
//!
//! Structs, and lists of objects, are gone through here; each value in them that is nothing of that kind is read by
//! serde_json. Values read are those that serde_json would read.

use std::ops::Range;
use std::slice;

use serde::Deserialize;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Error;

use super::cursor::Cursor;
use super::outline::{Member, Outline};

/// Reads the object that `outline` is of. None if anything does not fit: serde_json then says what, or reads it after all.
pub(super) fn read<'a, T: Deserialize<'a>>(text: &'a [u8], outline: &'a Outline) -> Option<T> {
    let mut reader = Reader { cursor: Cursor::new(text), outline: Some(outline.members()), known: 0..0 };
    let value = T::deserialize(&mut reader).ok()?;
    reader.cursor.is_at_end().then_some(value)
}

struct Reader<'de> {
    cursor: Cursor<'de>,
    /// The members of the object that the text is, until it is gone through.
    outline: Option<&'de [Member]>,
    /// A value that the outline knows the end of.
    known: Range<usize>,
}

impl<'de> Reader<'de> {
    /// Whether a list of objects comes next.
    fn is_at_objects(&mut self) -> bool {
        let start = self.cursor.at;
        let is_list = self.cursor.pass(b'[').is_some() && self.cursor.peek() == Some(b'{');
        self.cursor.at = start;
        is_list
    }
}

fn usual<T>(found: Option<T>) -> Result<T, Error> {
    found.ok_or_else(|| Error::custom("unusual"))
}

macro_rules! delegate {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
                self.cursor.parse(|parser| parser.$method(visitor))
            }
        )*
    };
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.cursor.peek() != Some(b'{') {
            return self.cursor.parse(|parser| parser.deserialize_struct(name, fields, visitor));
        }
        if let Some(outline) = self.outline.take() {
            let is_field = |member: &Member| {
                fields.iter().any(|field| self.cursor.text.get(member.key.clone()) == Some(field.as_bytes()))
            };
            if outline.iter().all(is_field) {
                // The type has all that there is, so that most of it will be read: serde_json does that faster.
                return self.cursor.parse(|parser| parser.deserialize_struct(name, fields, visitor));
            }
            let value = visitor.visit_map(Outlined { reader: self, members: outline.iter() });
            let last = outline.last().map_or(0, |member| member.value.end);
            let all_read = (self.cursor.at == last).then(|| self.cursor.at = self.cursor.text.len());
            usual(all_read)?;
            return value;
        }
        self.cursor.at += 1;
        let value = visitor.visit_map(Members { reader: self, first: true })?;
        usual(self.cursor.pass(b'}'))?;
        Ok(value)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !self.is_at_objects() {
            return self.cursor.parse(|parser| parser.deserialize_seq(visitor));
        }
        self.cursor.at += 1;
        let value = visitor.visit_seq(Elements { reader: self, first: true })?;
        usual(self.cursor.pass(b']'))?;
        Ok(value)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.cursor.peek() {
            Some(b'n') => self.cursor.parse(|parser| parser.deserialize_option(visitor)),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        // What serde_json has names of its own for, as for RawValue.
        if name.starts_with("$serde_json::") {
            return self.cursor.parse(|parser| parser.deserialize_newtype_struct(name, visitor));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.cursor.at == self.known.start {
            self.cursor.at = self.known.end;
        } else {
            usual(self.cursor.skip())?;
        }
        visitor.visit_unit()
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.cursor.parse(|parser| parser.deserialize_enum(name, variants, visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        self.cursor.parse(|parser| parser.deserialize_tuple(length, visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.cursor.parse(|parser| parser.deserialize_tuple_struct(name, length, visitor))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.cursor.parse(|parser| parser.deserialize_unit_struct(name, visitor))
    }

    delegate! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_unit
        deserialize_map deserialize_identifier
    }
}

/// The members of the object that the text is.
struct Outlined<'r, 'de> {
    reader: &'r mut Reader<'de>,
    members: slice::Iter<'de, Member>,
}

impl<'de> MapAccess<'de> for Outlined<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(member) = self.members.next() else { return Ok(None) };
        let key = self.reader.cursor.text.get(member.key.clone()).and_then(|key| str::from_utf8(key).ok());
        let key = usual(key)?;
        self.reader.cursor.at = member.value.start;
        self.reader.known = member.value.clone();
        read_key(seed, key)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Range { end, .. } = self.reader.known;
        let value = seed.deserialize(&mut *self.reader)?;
        // A type may carry on after an error. serde_json would then read on wherever the error was.
        usual((self.reader.cursor.at == end).then_some(()))?;
        Ok(value)
    }
}

/// The members of another object.
struct Members<'r, 'de> {
    reader: &'r mut Reader<'de>,
    first: bool,
}

impl<'de> MapAccess<'de> for Members<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        match usual(self.reader.cursor.next_key(&mut self.first))? {
            Some(key) => read_key(seed, key),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(&mut *self.reader)
    }
}

fn read_key<'de, K: DeserializeSeed<'de>>(seed: K, key: &'de str) -> Result<Option<K::Value>, Error> {
    seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some)
}

/// The elements of a list.
struct Elements<'r, 'de> {
    reader: &'r mut Reader<'de>,
    first: bool,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Reader { cursor, .. } = &mut *self.reader;
        if cursor.peek() == Some(b']') {
            return Ok(None);
        }
        if !std::mem::take(&mut self.first) {
            usual(cursor.pass(b','))?;
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }
}
