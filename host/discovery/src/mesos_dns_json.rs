//! JSON in mesos-dns's form.

use serde::Serialize;
use serde_json::ser::PrettyFormatter;

/// JSON indented by one space a level, and every line but the first by one more and by `depth`.
pub(crate) fn text<T: Serialize + ?Sized>(value: &T, depth: usize) -> Vec<u8> {
    let mut text = Vec::new();
    let formatter = PrettyFormatter::with_indent(b" ");
    let indented = Indented {
        text: &mut text,
        by: 1 + depth,
    };
    let mut serializer = serde_json::Serializer::with_formatter(indented, formatter);
    // Writing texts, numbers and lists into memory cannot fail.
    if let Err(error) = value.serialize(&mut serializer) {
        tracing::error!(%error, "writing an HTTP response failed");
    }
    text
}

/// Adds spaces after every line feed. Line feeds within JSON strings are escaped.
struct Indented<'t> {
    text: &'t mut Vec<u8>,
    by: usize,
}

impl std::io::Write for Indented<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.text.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.text.resize(self.text.len() + self.by, b' ');
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_indents_like_mesos_dns() {
        let value = serde_json::json!({"a": [1], "b": []});
        assert_eq!(text(&value, 0), b"{\n  \"a\": [\n   1\n  ],\n  \"b\": []\n }");
        assert_eq!(
            text(&value, 2),
            b"{\n    \"a\": [\n     1\n    ],\n    \"b\": []\n   }"
        );
    }
}
