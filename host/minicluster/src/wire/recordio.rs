//! RecordIO framing: the record's length in decimal, a newline, the record. A stream can also be
//! cut in the middle of a record.

use bytes::Bytes;
use serde_json::Value;

/// An item of a stream: the bytes of one chunk, or a cut connection.
pub(crate) type Event = Result<Bytes, ConnectionCut>;

/// Closes the connection without the terminating chunk, as if the process were killed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("connection cut by an injected fault")]
pub struct ConnectionCut;

/// Frames one JSON record. Each record is sent as its own chunk, as by real masters.
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
