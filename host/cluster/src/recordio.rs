//! RecordIO: each record is its length in decimal, a line feed, and that many bytes.
//!
//! A record is complete with its last byte, not only when the next one begins, however the bytes
//! are split. The length is not trusted: above the limit it is an error, and below it memory grows
//! only with received bytes. After an error the stream is unusable, and the decoder returns nothing
//! more.

use crate::error::{Error, Result};
use bytes::{Buf, Bytes, BytesMut};

/// The maximum length of a length line: the digits of `u64::MAX`.
const LENGTH_DIGITS: usize = 20;

/// The size above which a record's memory is not kept for the next ones.
const LARGE_RECORD_BYTES: usize = 64 << 10;

/// Splits a stream of bytes into records.
#[derive(Debug)]
pub struct Decoder {
    limit: u64,
    buffer: BytesMut,
    /// The length of the record that is being received, if known.
    expected: Option<usize>,
    broken: bool,
}

impl Decoder {
    /// A decoder for records of up to `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            buffer: BytesMut::new(),
            expected: None,
            broken: false,
        }
    }

    /// Adds the next bytes of the stream and returns the records that they complete. Records that
    /// remain when the iterator is dropped come first the next time.
    pub fn push(&mut self, bytes: &[u8]) -> Records<'_> {
        self.buffer.extend_from_slice(bytes);
        Records { decoder: self }
    }

    /// Checks the end of the stream: an error if it ended within a record.
    pub fn finish(&self) -> Result<()> {
        if self.buffer.is_empty() && self.expected.is_none() {
            Ok(())
        } else {
            Err(Error::Truncated {
                have: self.buffer.len(),
            })
        }
    }

    fn next_record(&mut self) -> Result<Option<Bytes>> {
        let length = match self.expected {
            Some(length) => length,
            None => match self.take_length()? {
                Some(length) => *self.expected.insert(length),
                None => return Ok(None),
            },
        };
        if self.buffer.len() < length {
            return Ok(None);
        }
        self.expected = None;
        let record = self.buffer.split_to(length).freeze();
        if length > LARGE_RECORD_BYTES {
            // The remaining bytes are copied: otherwise they would keep the record's memory for as
            // long as the stream lives.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        Ok(Some(record))
    }

    /// Removes a length line from the front; none if its line feed has not arrived.
    fn take_length(&mut self) -> Result<Option<usize>> {
        let head = &self.buffer[..self.buffer.len().min(LENGTH_DIGITS + 1)];
        let digits = head.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let invalid_length = || Error::BadRecordLength {
            found: head.escape_ascii().to_string(),
        };
        match head.get(digits) {
            None if digits <= LENGTH_DIGITS => return Ok(None),
            Some(b'\n') if digits > 0 => {}
            _ => return Err(invalid_length()),
        }
        let text = std::str::from_utf8(&head[..digits]).map_err(|_| invalid_length())?;
        let length: u64 = text.parse().map_err(|_| invalid_length())?;
        if length > self.limit {
            return Err(Error::RecordTooLarge {
                length,
                limit: self.limit,
            });
        }
        let length = usize::try_from(length).map_err(|_| Error::RecordTooLarge {
            length,
            limit: self.limit,
        })?;
        self.buffer.advance(digits + 1);
        Ok(Some(length))
    }
}

/// The complete records. None follows an error, not even after the next [`push`](Decoder::push).
#[derive(Debug)]
pub struct Records<'a> {
    decoder: &'a mut Decoder,
}

impl Iterator for Records<'_> {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.decoder.broken {
            return None;
        }
        let outcome = self.decoder.next_record();
        self.decoder.broken = outcome.is_err();
        outcome.transpose()
    }
}

/// Writes one record.
pub fn encode(record: &[u8]) -> Vec<u8> {
    let mut bytes = record.len().to_string().into_bytes();
    bytes.push(b'\n');
    bytes.extend_from_slice(record);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(limit: u64, parts: &[&[u8]]) -> (Vec<Bytes>, Option<Error>, Result<()>) {
        let mut decoder = Decoder::new(limit);
        let mut records = Vec::new();
        for part in parts {
            for record in decoder.push(part) {
                match record {
                    Ok(record) => records.push(record),
                    Err(error) => return (records, Some(error), Ok(())),
                }
            }
        }
        let finished = decoder.finish();
        (records, None, finished)
    }

    #[test]
    fn record_is_complete_with_its_last_byte() {
        let mut decoder = Decoder::new(100);
        assert_eq!(decoder.push(b"5\nhell").count(), 0);
        assert_eq!(
            decoder.push(b"o").map(Result::unwrap).collect::<Vec<_>>(),
            ["hello"]
        );
        assert!(decoder.finish().is_ok());
    }

    #[test]
    fn every_split_returns_the_same_records() {
        let stream = [
            encode(b"one"),
            encode(b""),
            encode(b"3\nxyz"),
            encode("grüße".as_bytes()),
        ]
        .concat();
        let expected = decode(100, &[&stream]);
        assert_eq!(expected.0, ["one", "", "3\nxyz", "grüße"]);
        for cut in 0..=stream.len() {
            let (records, error, finished) = decode(100, &[&stream[..cut], &stream[cut..]]);
            assert_eq!(records, expected.0, "cut at {cut}");
            assert!(error.is_none() && finished.is_ok(), "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(decode(100, &bytes).0, expected.0);
    }

    #[test]
    fn bad_lengths_are_errors() {
        for invalid_stream in [
            &b"x\n"[..],
            b"\n",
            b"-1\nx",
            b"+1\nx",
            b" 1\nx",
            b"1 \nx",
            b"1\r\nx",
            b"0x10\n",
            b"123456789012345678901",
            b"99999999999999999999\n",
        ] {
            let (records, error, _) = decode(100, &[invalid_stream]);
            assert!(records.is_empty());
            assert!(
                matches!(error, Some(Error::BadRecordLength { .. })),
                "{}: {error:?}",
                invalid_stream.escape_ascii()
            );
        }
    }

    #[test]
    fn records_before_a_bad_length_are_returned() {
        let (records, error, _) = decode(100, &[b"2\nokoops"]);
        assert_eq!(records, ["ok"]);
        assert!(matches!(error, Some(Error::BadRecordLength { found }) if found == "oops"));
    }

    #[test]
    fn record_size_is_limited_and_not_allocated_in_advance() {
        assert_eq!(decode(3, &[b"3\nabc"]).0, ["abc"]);
        let (_, error, _) = decode(3, &[b"4\n"]);
        assert!(matches!(
            error,
            Some(Error::RecordTooLarge { length: 4, limit: 3 })
        ));
        let mut decoder = Decoder::new(u64::MAX);
        assert_eq!(decoder.push(b"1000000000000\nx").count(), 0);
        assert!(decoder.buffer.capacity() < 1_000_000);
    }

    #[test]
    fn memory_of_a_large_record_is_released() {
        let mut decoder = Decoder::new(u64::MAX);
        let stream = [encode(&vec![b'x'; 4 << 20]), encode(b"two"), b"5\nthr".to_vec()].concat();
        let records: Vec<_> = decoder.push(&stream).map(Result::unwrap).collect();
        assert_eq!(records[1], "two");
        assert!(
            decoder.buffer.capacity() < LARGE_RECORD_BYTES,
            "{}",
            decoder.buffer.capacity()
        );
        assert_eq!(
            decoder.push(b"ee").map(Result::unwrap).collect::<Vec<_>>(),
            ["three"]
        );
    }

    #[test]
    fn decoder_returns_no_records_after_an_error() {
        let mut decoder = Decoder::new(10);
        assert!(decoder.push(b"x\n").next().unwrap().is_err());
        assert_eq!(decoder.push(b"2\nok").count(), 0);
    }

    #[test]
    fn an_end_within_a_record_is_an_error() {
        for (part, have) in [(&b"5"[..], 1), (b"5\n", 0), (b"5\nhell", 4)] {
            let (_, _, finished) = decode(100, &[part]);
            assert!(matches!(finished, Err(Error::Truncated { have: found }) if found == have));
        }
    }
}
