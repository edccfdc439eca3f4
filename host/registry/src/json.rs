//! Reads parts of JSON documents without building their trees. A registry controls the documents, of
//! up to 16 MiB, and a tree may take a hundred times the memory of its text.

use std::{fmt, marker::PhantomData};

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Parses a part of a document. `None` if it is missing or has another form.
pub(crate) fn part<'a, T: Deserialize<'a>>(json: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(json?.get()).ok()
}

/// The length of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Length(pub(crate) u64);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Length, D::Error> {
        struct Count;

        impl<'de> Visitor<'de> for Count {
            type Value = u64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<u64, A::Error> {
                let mut count = 0;
                while items.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(count)
            }
        }

        deserializer.deserialize_seq(Count).map(Length)
    }
}

/// The first element of a list; `None` if the list is empty.
#[derive(Debug)]
pub(crate) struct First<T>(pub(crate) Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for First<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<First<T>, D::Error> {
        struct Take<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Take<T> {
            type Value = Option<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Option<T>, A::Error> {
                let first = items.next_element()?;
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(first)
            }
        }

        deserializer.deserialize_seq(Take(PhantomData)).map(First)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted_and_their_first_element_is_read() {
        for (text, length, first) in [
            ("[]", Some(0), None),
            ("[7]", Some(1), Some(7)),
            (r#"[7, {"": [1]}, "x"]"#, Some(3), Some(7)),
            ("{}", None, None),
            ("null", None, None),
            ("7", None, None),
        ] {
            let json: &RawValue = serde_json::from_str(text).unwrap();
            assert_eq!(part::<Length>(Some(json)), length.map(Length), "{text}");
            let found = part::<First<u8>>(Some(json)).and_then(|it| it.0);
            assert_eq!(found, first, "{text}");
        }
        assert_eq!(part::<Length>(None), None);
    }
}
