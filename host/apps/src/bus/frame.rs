//! Bytes of the stream: frames, keep-alives and the final comment.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::value::RawValue;

use super::resume::EventId;

/// The members of an event's document. Their values stay texts, because the tree of a component's
/// document may take a hundred times the memory of its text.
type Members<'a> = BTreeMap<String, &'a RawValue>;

/// An empty line, sent when the stream is idle.
pub(super) const KEEP_ALIVE: &str = "\r\n";

/// Appends one event, with its id if the stream has ids.
pub(super) fn append(chunk: &mut String, kind: &str, body: &str, id: Option<EventId>) {
    if let Some(id) = id {
        // Writing to a `String` cannot fail.
        let _ = write!(chunk, "id: {id}\r\n");
    }
    chunk.push_str("event: ");
    chunk.push_str(kind);
    chunk.push_str("\r\ndata: ");
    chunk.push_str(body);
    chunk.push_str("\r\n\r\n");
}

/// The events of a chunk: their ids and documents.
pub(crate) fn frames(chunk: &[u8]) -> impl Iterator<Item = (Option<EventId>, &str)> {
    let text = std::str::from_utf8(chunk).unwrap_or_default();
    let mut id = None;
    text.split("\r\n").filter_map(move |line| {
        if let Some(text) = line.strip_prefix("id: ") {
            id = text.parse().ok();
        }
        line.strip_prefix("data: ").map(|body| (id.take(), body))
    })
}

/// A comment, which clients do not parse as an event.
pub(super) fn comment(text: &str) -> String {
    format!(": {}\r\n\r\n", text.replace(['\r', '\n'], " "))
}

/// The component's replacement of an event: one line, with the original kind and time. `None` when
/// it is not a JSON object.
pub(super) fn replacement(original: &str, text: &str) -> Option<String> {
    let mut members: Members<'_> = serde_json::from_str(text).ok()?;
    let original: Members<'_> = serde_json::from_str(original).ok()?;
    for key in ["eventType", "timestamp"] {
        if let Some(value) = original.get(key) {
            members.insert(key.to_owned(), value);
        }
    }
    let body = serde_json::to_string(&members).ok()?;
    // Line breaks are only white space here: within texts, JSON escapes them.
    Some(body.replace(['\r', '\n'], " "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::Value;

    use super::*;

    #[test]
    fn frames_have_the_server_sent_events_format() {
        let mut chunk = String::new();
        append(&mut chunk, "a_event", "{}", None);
        append(
            &mut chunk,
            "b_event",
            r#"{"x":1}"#,
            Some(EventId {
                term: 2,
                sequence: 17,
            }),
        );
        assert_eq!(
            chunk,
            "event: a_event\r\ndata: {}\r\n\r\nid: 2-17\r\nevent: b_event\r\ndata: {\"x\":1}\r\n\r\n"
        );
        let read: Vec<_> = frames(format!("{KEEP_ALIVE}{chunk}{}", comment("bye")).as_bytes())
            .map(|(id, body)| (id, body.to_owned()))
            .collect();
        let id = EventId {
            term: 2,
            sequence: 17,
        };
        assert_eq!(
            read,
            [(None, "{}".to_owned()), (Some(id), r#"{"x":1}"#.to_owned())]
        );
        assert_eq!(comment("a\nb"), ": a b\r\n\r\n");
    }

    #[test]
    fn replacement_keeps_event_type_and_timestamp_of_the_original() {
        let original = r#"{"eventType":"a","timestamp":"t","secret":1}"#;
        let body: Value =
            serde_json::from_str(&replacement(original, "{\"eventType\":\"b\",\n\"x\":2}").unwrap()).unwrap();
        assert_eq!(
            body,
            serde_json::json!({"eventType": "a", "timestamp": "t", "x": 2})
        );
        // Values stay as they are written, on one line.
        assert_eq!(
            replacement(original, "{\n\"z\": [1.00,\r\n {\"\\u0061\": \"\\n\"}] }").unwrap(),
            r#"{"eventType":"a","timestamp":"t","z":[1.00,   {"\u0061": "\n"}]}"#
        );
        assert_eq!(replacement(original, "[]"), None);
        assert_eq!(replacement(original, "{"), None);
    }
}
