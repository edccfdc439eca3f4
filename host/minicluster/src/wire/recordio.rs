//! RecordIO framing: the record's length in decimal, a newline, the record.

use bytes::Bytes;
use serde_json::Value;

/// Frames one JSON record. Each is sent as a chunk of its own, as real masters do.
pub(crate) fn record(value: &Value) -> Bytes {
    let body = value.to_string();
    Bytes::from(format!("{}\n{body}", body.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_length_counts_bytes_not_characters() {
        assert_eq!(&record(&json!({"a": "ü"}))[..], "10\n{\"a\":\"ü\"}".as_bytes());
        assert_eq!(
            &record(&json!({"type": "HEARTBEAT"}))[..],
            b"20\n{\"type\":\"HEARTBEAT\"}"
        );
    }
}
