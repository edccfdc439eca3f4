//! The JSON of an event as a flat list of values.
//!
//! A tree of maps would need many times the memory of the text. In the flat list each value and key
//! has one entry, strings without escapes are borrowed from the JSON, and a list or map has the
//! index of its end.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::MAX_VALUES;

/// One value or key.
#[derive(Debug)]
pub(super) enum Item<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Cow<'a, str>),
    /// A list. `end` is the index after its last element.
    List {
        length: u32,
        end: u32,
    },
    /// A map: keys and values in turn.
    Map {
        length: u32,
        end: u32,
    },
}

/// A document; the first item is its root value.
#[derive(Debug)]
pub(super) struct Document<'a>(Vec<Item<'a>>);

impl<'a> Document<'a> {
    /// Parses a text; `None` if it is not JSON, or has too many values.
    pub(super) fn parse(json: &'a str) -> Option<Self> {
        let mut items = Vec::with_capacity((json.len() / 16).min(MAX_VALUES));
        let mut deserializer = serde_json::Deserializer::from_str(json);
        Builder(&mut items).deserialize(&mut deserializer).ok()?;
        deserializer.end().ok()?;
        Some(Self(items))
    }

    pub(super) fn item(&self, index: usize) -> Option<&Item<'a>> {
        self.0.get(index)
    }

    /// The index after a value and all values in it.
    pub(super) fn after(&self, index: usize) -> usize {
        match self.item(index) {
            Some(Item::List { end, .. } | Item::Map { end, .. }) => *end as usize,
            _ => index + 1,
        }
    }

    /// The number of elements of a list or entries of a map.
    pub(super) fn length(&self, index: usize) -> usize {
        match self.item(index) {
            Some(Item::List { length, .. } | Item::Map { length, .. }) => *length as usize,
            _ => 0,
        }
    }
}

/// Appends one value.
struct Builder<'b, 'a>(&'b mut Vec<Item<'a>>);

impl<'a> Builder<'_, 'a> {
    fn push<E: serde::de::Error>(self, item: Item<'a>) -> Result<(), E> {
        if self.0.len() >= MAX_VALUES {
            return Err(E::custom("too many values"));
        }
        self.0.push(item);
        Ok(())
    }

    /// Sets the length and the end of the container at an index.
    fn close<E: serde::de::Error>(&mut self, index: usize, length: usize) -> Result<(), E> {
        let number = |it| u32::try_from(it).map_err(E::custom);
        let (last, count) = (number(self.0.len())?, number(length)?);
        if let Some(Item::List { length, end } | Item::Map { length, end }) = self.0.get_mut(index) {
            (*length, *end) = (count, last);
        }
        Ok(())
    }
}

impl<'a> DeserializeSeed<'a> for Builder<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Builder<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.push(Item::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.push(Item::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.push(Item::Int(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.push(i64::try_from(value).map_or(Item::Uint(value), Item::Int))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.push(Item::Double(value))
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, value: &'a str) -> Result<(), E> {
        self.push(Item::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.push(Item::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'a>>(mut self, mut elements: A) -> Result<(), A::Error> {
        let index = self.0.len();
        Builder(self.0).push(Item::List { length: 0, end: 0 })?;
        let mut length = 0;
        while elements.next_element_seed(Builder(self.0))?.is_some() {
            length += 1;
        }
        self.close(index, length)
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut entries: A) -> Result<(), A::Error> {
        let index = self.0.len();
        Builder(self.0).push(Item::Map { length: 0, end: 0 })?;
        let mut length = 0;
        while entries.next_key_seed(Builder(self.0))?.is_some() {
            entries.next_value_seed(Builder(self.0))?;
            length += 1;
        }
        self.close(index, length)
    }
}
