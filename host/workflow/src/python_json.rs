//! JSON with spaces after commas and colons, as upstream writes it. Some clients compare bytes.

use std::io;

use bytes::Bytes;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// Encodes a value with string keys, which cannot fail.
pub(crate) fn to_bytes<T: Serialize>(value: &T) -> Bytes {
    let mut text = Vec::new();
    match value.serialize(&mut Serializer::with_formatter(&mut text, Spaced)) {
        Ok(()) => text.into(),
        Err(_) => Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn output_has_spaces_like_upstream() {
        let value = json!({"hostname": "h1", "list": [1, {"a": null}, []]});
        assert_eq!(
            to_bytes(&value),
            r#"{"hostname": "h1", "list": [1, {"a": null}, []]}"#
        );
    }
}
