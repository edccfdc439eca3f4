//! RecordIO framing: the record's length in decimal, a newline, the record. And streams that end in the middle of it.

use bytes::Bytes;
use serde_json::Value;

/// What a stream carries: bytes for one chunk, or the end of the connection without a farewell.
pub(crate) type Event = Result<Bytes, Cut>;

/// The connection ends here, without the terminating chunk, as when the process behind it is killed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the connection is cut, as a fault asked for")]
pub(crate) struct Cut;

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
