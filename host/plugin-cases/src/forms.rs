//! Forms that the cases of several worlds share: named values, and bytes.

#![allow(missing_docs, reason = "the types say it")]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Named values: a table, or a list of pairs where the order matters or a name occurs twice.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Pairs<T> {
    Table(BTreeMap<String, T>),
    List(Vec<(String, T)>),
}

impl<T> Default for Pairs<T> {
    fn default() -> Self {
        Pairs::List(Vec::new())
    }
}

impl<T> Pairs<T> {
    /// Returns a table if a table keeps the order.
    pub fn of(pairs: Vec<(String, T)>) -> Pairs<T> {
        if pairs.is_sorted_by(|a, b| a.0 < b.0) {
            Pairs::Table(pairs.into_iter().collect())
        } else {
            Pairs::List(pairs)
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Pairs::Table(table) => table.is_empty(),
            Pairs::List(list) => list.is_empty(),
        }
    }

    pub fn into_pairs(self) -> Vec<(String, T)> {
        match self {
            Pairs::Table(table) => table.into_iter().collect(),
            Pairs::List(list) => list,
        }
    }
}

/// Bytes: text, or hexadecimal digits where they are not UTF-8.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Bytes {
    Text(String),
    Hex { hex: HexDigits },
}

impl Default for Bytes {
    fn default() -> Self {
        Bytes::Text(String::new())
    }
}

impl Bytes {
    pub fn of(bytes: &[u8]) -> Bytes {
        match std::str::from_utf8(bytes) {
            Ok(text) => Bytes::Text(text.to_owned()),
            Err(_) => Bytes::Hex {
                hex: HexDigits(bytes.to_vec()),
            },
        }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Bytes::Text(text) => text.into_bytes(),
            Bytes::Hex { hex } => hex.0,
        }
    }
}

/// Bytes as two hexadecimal digits each.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct HexDigits(Vec<u8>);

impl TryFrom<String> for HexDigits {
    type Error = String;

    fn try_from(text: String) -> Result<HexDigits, String> {
        let invalid = || format!("`hex` is {text:?}; expected two hexadecimal digits for each byte");
        let digits = text.as_bytes();
        if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(invalid());
        }
        let byte = |pair: &[u8]| {
            std::str::from_utf8(pair)
                .ok()
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())
        };
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        bytes.map(HexDigits).ok_or_else(invalid)
    }
}

impl From<HexDigits> for String {
    fn from(digits: HexDigits) -> String {
        transom_common::text::hex(&digits.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn bytes_are_read_back_from_text_or_digits() {
        for (bytes, form) in [
            (&b"#!/bin/sh\n"[..], json!("#!/bin/sh\n")),
            (&[0xff, 0, 0x1a], json!({"hex": "ff001a"})),
            (&[], json!("")),
        ] {
            assert_eq!(to_value(Bytes::of(bytes)).unwrap(), form);
            assert_eq!(from_value::<Bytes>(form).unwrap().into_bytes(), bytes);
        }
        assert!(
            from_value::<HexDigits>(json!("f"))
                .unwrap_err()
                .to_string()
                .contains("two hexadecimal digits")
        );
        assert!(from_value::<HexDigits>(json!("é")).is_err());
    }

    #[test]
    fn pairs_keep_their_order_and_repeated_names() {
        let pairs = |names: &[&str]| {
            names
                .iter()
                .map(|name| ((*name).to_owned(), 1))
                .collect::<Vec<_>>()
        };
        for (names, form) in [
            (&["a", "b"][..], json!({"a": 1, "b": 1})),
            (&["b", "a"], json!([["b", 1], ["a", 1]])),
            (&["a", "a"], json!([["a", 1], ["a", 1]])),
        ] {
            let found = to_value(Pairs::of(pairs(names))).unwrap();
            assert_eq!(found, form);
            assert_eq!(
                from_value::<Pairs<u32>>(found).unwrap().into_pairs(),
                pairs(names)
            );
        }
    }
}
