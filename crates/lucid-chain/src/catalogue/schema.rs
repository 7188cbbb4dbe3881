//! Parser of an `auditors.yaml`, directed by a description of its values.
//!
//! serde_yaml reports positions only for errors that occur while a value is deserialized. All checks are therefore
//! part of the deserialization, which yields JSON for the `Deserialize` implementations of the described types.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
};

use lucid_text::{Excerpt, names::nearest};
use serde::{
    Deserializer,
    de::{
        self, DeserializeSeed, EnumAccess, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
    },
};
use serde_json::{Map, Value};

use super::{
    Catalogue,
    preceding::Preceding,
    scalars::{self, is_null},
};

/// Maximum size of the keys and values of an entry, in bytes. Aliases can yield the same text many times, so the
/// limit applies to the parsed values, not the text. It also bounds what an auditor adds to a pod.
const ENTRY_BYTES: usize = 16 * 1024;

const TEXT_BYTES: usize = 4 * 1024;

const MEMBERS: usize = 64;

pub(super) type Parse = fn(&str) -> Result<Value, String>;

pub(super) enum Shape {
    /// A scalar. YAML types are not resolved, so `0.80` and `yes` stay as written.
    Scalar(Parse),
    /// A scalar that depends on the preceding entries of the file.
    Unique(fn(&mut Preceding, &str) -> Result<Value, String>),
    /// A value other than null. In other places, null is an empty scalar, list or map.
    NotNull(&'static Shape),
    /// Text, or a map of this shape.
    TextOr(&'static Shape),
    List(&'static Shape),
    Entries(&'static Shape),
    /// A map from names, which the function checks, to values.
    Names(Parse, &'static Shape),
    Map(&'static Fields),
}

pub(super) const TEXT: Shape = Shape::NotNull(&Shape::Scalar(scalars::text));

pub(super) struct Fields {
    pub(super) keys: &'static [(&'static str, Shape)],
    /// Keys that users may expect here, such as those of the Kubernetes API, with the reason why each is rejected.
    pub(super) refused: &'static [(&'static str, &'static str)],
    pub(super) finish: fn(&mut Map<String, Value>, &Context<'_>) -> Result<(), String>,
}

impl Fields {
    fn expected(&self) -> String {
        self.keys.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(", ")
    }

    fn shape(&self, key: &str) -> Result<&'static Shape, String> {
        if let Some((_, shape)) = self.keys.iter().find(|(known, _)| *known == key) {
            return Ok(shape);
        }
        let expected = self.expected();
        let one_of = if self.keys.len() == 1 { "" } else { "one of " };
        Err(match self.refused.iter().find(|(refused, _)| comparable(refused) == comparable(key)) {
            Some((refused, reason)) => {
                format!("unexpected key {refused}, expected {one_of}{expected}: {reason}")
            }
            None => {
                let meant = self.suggestion(key).map(|meant| format!("; did you mean {meant}?"));
                format!(
                    "unknown key {}, expected {one_of}{expected}{}",
                    Excerpt(key),
                    meant.unwrap_or_default()
                )
            }
        })
    }

    /// Returns the key of this map, or of a map within it, that `key` is probably meant to be.
    fn suggestion(&self, key: &str) -> Option<String> {
        let key = comparable(key);
        let known = self.keys.iter().map(|(known, _)| comparable(known)).collect::<Vec<_>>();
        let nearest = nearest(&key, known.iter().map(String::as_str), (key.len() / 3).max(1));
        let nearest = known.iter().position(|known| Some(known.as_str()) == nearest);
        nearest.map(|at| self.keys[at].0.to_owned()).or_else(|| self.nested(&key))
    }

    /// Returns the path of the first key within the values of this map that is [`comparable`] to `key`.
    fn nested(&self, key: &str) -> Option<String> {
        self.keys.iter().find_map(|(parent, shape)| {
            let (fields, index) = shape.fields()?;
            let own = fields.keys.iter().find(|(known, _)| comparable(known) == key);
            let path = own.map(|(known, _)| (*known).to_owned()).or_else(|| fields.nested(key))?;
            Some(format!("{parent}{index}.{path}"))
        })
    }
}

impl Shape {
    /// Returns the keys of a map or of the maps in a list, with the index of a list in paths.
    fn fields(&self) -> Option<(&'static Fields, &'static str)> {
        match self {
            Self::Map(fields) => Some((fields, "")),
            Self::NotNull(shape) => shape.fields(),
            Self::List(item) | Self::Entries(item) => Some((item.fields()?.0, "[]")),
            Self::Scalar(_) | Self::Unique(_) | Self::TextOr(_) | Self::Names(..) => None,
        }
    }
}

/// Returns `key` in the one spelling in which it is compared: `auditMode` and `audit_mode` are `audit-mode`.
fn comparable(key: &str) -> String {
    key.chars().filter(|char| !matches!(char, '-' | '_')).flat_map(char::to_lowercase).collect()
}

pub(super) struct Context<'a> {
    pub(super) base: &'a Catalogue,
    pub(super) preceding: RefCell<Preceding>,
    /// Remaining size of the entry, in bytes. Every scalar is charged to it.
    room: Cell<usize>,
    /// `true` for each value of [`Shape::TextOr`] that is a map, in the order of the document.
    maps: RefCell<VecDeque<bool>>,
    /// `true` in a pass over the document that fills `maps`.
    finds_maps: bool,
}

impl<'a> Context<'a> {
    pub(super) fn new(base: &'a Catalogue) -> Self {
        Self {
            base,
            preceding: RefCell::default(),
            room: Cell::new(ENTRY_BYTES),
            maps: RefCell::default(),
            finds_maps: false,
        }
    }

    /// Returns the context of a pass before that of [`with_maps_of`](Self::with_maps_of). serde_yaml tells the kind of
    /// a value only together with its resolved type, which loses the spelling of a scalar.
    pub(super) fn finding_maps(base: &'a Catalogue) -> Self {
        Self { finds_maps: true, ..Self::new(base) }
    }

    pub(super) fn with_maps_of(self, pass: Self) -> Self {
        Self { maps: pass.maps, ..self }
    }

    fn spend(&self, text: &str) -> Result<(), String> {
        if text.len() > TEXT_BYTES {
            return Err(format!("expected at most {TEXT_BYTES} bytes in one value, found {}", text.len()));
        }
        // The additional byte charges empty texts.
        let room = self.room.get().checked_sub(text.len() + 1);
        self.room.set(
            room.ok_or_else(|| format!("expected at most {ENTRY_BYTES} bytes in one entry, found more"))?,
        );
        Ok(())
    }
}

#[derive(Clone, Copy)]
pub(super) struct Seed<'c> {
    pub(super) shape: &'static Shape,
    pub(super) context: &'c Context<'c>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.shape {
            Shape::Scalar(_) | Shape::Unique(_) => deserializer.deserialize_str(self),
            Shape::NotNull(_) => deserializer.deserialize_option(self),
            Shape::TextOr(_) if self.context.finds_maps => {
                let is_map = deserializer.deserialize_any(IsMap)?;
                self.context.maps.borrow_mut().push_back(is_map);
                Ok(is_map.into())
            }
            Shape::TextOr(map) => {
                static PLAIN: Shape = Shape::Scalar(scalars::text);
                let is_map = self.context.maps.borrow_mut().pop_front().unwrap_or_default();
                Self { shape: if is_map { map } else { &PLAIN }, ..self }.deserialize(deserializer)
            }
            Shape::List(_) | Shape::Entries(_) => deserializer.deserialize_seq(self),
            Shape::Names(..) | Shape::Map(_) => deserializer.deserialize_map(self),
        }
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shape {
            Shape::Scalar(_) | Shape::Unique(_) => f.write_str("a single value"),
            Shape::NotNull(shape) | Shape::TextOr(shape) => Self { shape, ..*self }.expecting(f),
            Shape::List(_) => f.write_str("a list of values"),
            Shape::Entries(_) => f.write_str("a list of auditors"),
            Shape::Names(..) => f.write_str("a map from names to values"),
            Shape::Map(fields) => write!(f, "a map with the keys {}", fields.expected()),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        self.context.spend(text).map_err(E::custom)?;
        match self.shape {
            Shape::Scalar(parse) => parse(text).map_err(E::custom),
            Shape::Unique(parse) => parse(&mut self.context.preceding.borrow_mut(), text).map_err(E::custom),
            _ => Err(E::invalid_type(Unexpected::Str(text), &self)),
        }
    }

    /// Returns null, which [`NotNull`](Shape::NotNull) rejects in the enclosing map: serde_yaml reports no position
    /// for a null.
    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.shape {
            Shape::NotNull(shape) => Self { shape, ..self }.deserialize(deserializer),
            _ => self.deserialize(deserializer),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        static FULL: Shape = Shape::Scalar(|_| Err(format!("expected at most {MEMBERS} items, found more")));
        let mut items = Vec::new();
        loop {
            let shape = match self.shape {
                Shape::List(_) if items.len() == MEMBERS => &FULL,
                Shape::List(item) => item,
                Shape::Entries(entry) => {
                    self.context.room.set(ENTRY_BYTES);
                    entry
                }
                _ => return Err(A::Error::invalid_type(Unexpected::Seq, &self)),
            };
            let Some(item) = list.next_element_seed(Self { shape, ..self })? else { break };
            items.push(item);
        }
        if matches!(self.shape, Shape::Entries(_)) && items.is_empty() {
            return Err(A::Error::custom("expected at least one auditor, found an empty list"));
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some((key, shape)) = map.next_key_seed(Key { of: self, members: &members })? {
            let value = map.next_value_seed(Self { shape, ..self })?;
            if let (Shape::NotNull(shape), Value::Null) = (shape, &value) {
                return Err(A::Error::custom(match shape {
                    // An empty value is ambiguous: it could mean no probe or the default probe.
                    Shape::Map(_) => {
                        format!("`{key}` has no value, expected a map ({{}} for the default probe)")
                    }
                    _ => format!("{} has no value, expected text (\"\" for an empty one)", Excerpt(&key)),
                }));
            }
            members.insert(key, value);
        }
        if let Shape::Map(fields) = self.shape {
            (fields.finish)(&mut members, self.context).map_err(A::Error::custom)?;
        }
        Ok(members.into())
    }
}

struct IsMap;

impl<'de> Visitor<'de> for IsMap {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<bool, A::Error> {
        IgnoredAny.visit_map(map).map(|_| true)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<bool, A::Error> {
        IgnoredAny.visit_seq(list).map(|_| false)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<bool, A::Error> {
        IgnoredAny.visit_enum(tagged).map(|_| false)
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i128<E>(self, _: i128) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u128<E>(self, _: u128) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_str<E>(self, _: &str) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
}

struct Key<'c> {
    of: Seed<'c>,
    members: &'c Map<String, Value>,
}

impl Key<'_> {
    fn shape(&self, key: &str) -> Result<&'static Shape, String> {
        self.of.context.spend(key)?;
        let shape = match self.of.shape {
            Shape::Names(..) if is_null(key) => return Err("expected a name, found nothing".to_owned()),
            Shape::Names(parse, value) => parse(key).map(|_| *value)?,
            Shape::Map(fields) => fields.shape(key)?,
            _ => return Err("found a map".to_owned()),
        };
        if self.members.contains_key(key) {
            return Err(format!("expected each key once, found {} twice", Excerpt(key)));
        }
        if self.members.len() == MEMBERS {
            return Err(format!("expected at most {MEMBERS} names, found more"));
        }
        Ok(shape)
    }
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = (String, &'static Shape);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = (String, &'static Shape);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a single value")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Self::Value, E> {
        self.shape(key).map(|shape| (key.to_owned(), shape)).map_err(E::custom)
    }
}
