//! Checks and compares JSON texts of components without building their trees. A tree may take a
//! hundred times the memory of its text, and this memory counts against no limit of the component.
//!
//! A text is invalid under the same conditions as for [`serde_json::Value`], and with more than
//! [`MAX_DEPTH`] levels of nesting, because hosts and clients embed it in their own documents, for
//! which the limit of 127 levels of `serde_json` is valid. [`serde::de::IgnoredAny`] would accept any depth and surrogates without a
//! pair.

use std::{
    fmt,
    hash::{BuildHasher, Hash, Hasher, RandomState},
};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Maximum levels of nested objects and lists.
pub const MAX_DEPTH: usize = 32;

/// What a text that is not a JSON object of at most [`MAX_DEPTH`] levels is, for an operator.
pub const NO_OBJECT: &str = "is not a JSON object of at most 32 levels";

/// Whether a text is a JSON object of at most [`MAX_DEPTH`] levels.
pub fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && digest(text, &RandomState::new()).is_some()
}

/// Whether two texts are the same JSON document. The order of members and white space do not count.
/// Texts that are not JSON are never the same.
pub fn is_same_document(first: &str, second: &str) -> bool {
    // Components cannot know the keys of the hash, so they cannot construct documents with equal
    // digests.
    let state = RandomState::new();
    let first = digest(first, &state);
    first.is_some() && first == digest(second, &state)
}

/// Returns the digest of a document. `None` if the text is not JSON.
fn digest(text: &str, state: &RandomState) -> Option<u64> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let digest = Digest {
        state,
        levels: MAX_DEPTH,
    }
    .deserialize(&mut deserializer)
    .ok()?;
    deserializer.end().ok()?;
    Some(digest)
}

/// The kinds of values, so that values of different kinds have different digests.
#[derive(Hash)]
enum Kind {
    Null,
    Bool,
    Negative,
    Integer,
    Float,
    Text,
    List,
    Object,
}

/// Computes the digest of a value while it is parsed.
#[derive(Clone, Copy)]
struct Digest<'a> {
    state: &'a RandomState,
    /// Levels that the value may have.
    levels: usize,
}

impl Digest<'_> {
    fn hash(self, value: impl Hash) -> u64 {
        self.state.hash_one(value)
    }

    /// For the items of an object or list.
    fn inner<E: Error>(self) -> Result<Self, E> {
        let levels = self.levels.checked_sub(1);
        let levels = levels.ok_or_else(|| E::custom(format_args!("more than {MAX_DEPTH} levels")))?;
        Ok(Digest { levels, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Digest<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Digest<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<u64, E> {
        Ok(self.hash(Kind::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<u64, E> {
        Ok(self.hash((Kind::Bool, value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<u64, E> {
        Ok(self.hash((Kind::Negative, value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<u64, E> {
        Ok(self.hash((Kind::Integer, value)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<u64, E> {
        Ok(self.hash((Kind::Float, value.to_bits())))
    }

    fn visit_str<E>(self, value: &str) -> Result<u64, E> {
        Ok(self.hash((Kind::Text, value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<u64, A::Error> {
        let inner = self.inner()?;
        let mut hasher = self.state.build_hasher();
        while let Some(item) = items.next_element_seed(inner)? {
            hasher.write_u64(item);
        }
        Ok(self.hash((Kind::List, hasher.finish())))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<u64, A::Error> {
        // A sum does not depend on the order of the members.
        let inner = self.inner()?;
        let mut sum = 0_u64;
        while let Some(member) = members.next_entry_seed(inner, inner)? {
            sum = sum.wrapping_add(self.state.hash_one(member));
        }
        Ok(self.hash((Kind::Object, sum)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use super::*;

    fn nested(depth: usize) -> String {
        format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn a_text_is_an_object_exactly_if_a_tree_of_32_levels_can_be_built() {
        let (deepest, too_deep, far_too_deep) = (nested(31), nested(32), nested(500_000));
        for (text, expected) in [
            ("{}", true),
            (" \n{\"a\": [1, -1, 1.5, null, true, \"x\\n\", {\"\": 0}]} ", true),
            (&*deepest, true),
            (&*too_deep, false),
            (&*far_too_deep, false),
            ("", false),
            ("[]", false),
            ("\"{}\"", false),
            ("{", false),
            ("{}{}", false),
            ("{not json", false),
            (r#"{"a": 1e999}"#, false),
            (r#"{"a": "\ud800"}"#, false),
            ("\u{feff}{}", false),
            ("\u{a0}{}", false),
        ] {
            let shown: String = text.chars().take(40).collect();
            assert_eq!(is_object(text), expected, "{shown}");
            let tree = serde_json::from_str::<Map<String, Value>>(text);
            assert_eq!(tree.is_ok(), expected || text == too_deep, "{shown}");
        }
    }

    #[test]
    fn documents_are_the_same_exactly_if_their_trees_are_equal() {
        for (first, second) in [
            (r#"{"a":1,"b":[1,2]}"#, "{ \"b\": [1, 2],\n \"a\": 1 }"),
            (r#"{"a":"A"}"#, r#"{"a":"\u0041"}"#),
            (r#"{"a":1.0}"#, r#"{"a":1.00}"#),
            (r#"{"a":1}"#, r#"{"a":1.0}"#),
            (r#"{"a":1}"#, r#"{"a":-1}"#),
            (r#"{"a":1}"#, r#"{"b":1}"#),
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            (r#"{"a":1}"#, r#"{"a":1,"b":1}"#),
            (r#"{"a":"b"}"#, r#"{"b":"a"}"#),
            (r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#),
            (r#"{"a":[1,[2]]}"#, r#"{"a":[[1],2]}"#),
            (r#"{"a":[]}"#, r#"{"a":{}}"#),
            (r#"{"a":null}"#, r#"{"a":false}"#),
            (r#"{"a":null}"#, "{}"),
        ] {
            let tree = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            let expected = tree(first) == tree(second);
            assert_eq!(is_same_document(first, second), expected, "{first} {second}");
            assert!(is_same_document(first, first), "{first}");
        }
        assert!(!is_same_document("{", "{"));
    }
}
