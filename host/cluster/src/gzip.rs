//! Decompression of bodies, with a limit on the result.

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use std::io::{self, Write};

/// Why decoding failed.
#[derive(Debug)]
pub(crate) enum DecodeError {
    /// The body exceeds the limit, compressed or decompressed.
    TooLong,
    /// The body is no gzip, or truncated.
    Corrupt(io::Error),
}

/// The decoder of a body, with the part received so far.
pub(crate) struct BodyDecoder(Encoding);

enum Encoding {
    Plain(Bounded),
    Gzip(Box<MultiGzDecoder<Bounded>>),
}

impl BodyDecoder {
    /// A decoder for a body of up to `limit` bytes.
    pub(crate) fn new(gzip: bool, limit: u64) -> Self {
        let bounded = Bounded {
            bytes: Vec::new(),
            limit,
            full: false,
        };
        Self(if gzip {
            Encoding::Gzip(Box::new(MultiGzDecoder::new(bounded)))
        } else {
            Encoding::Plain(bounded)
        })
    }

    /// Adds the next chunk.
    pub(crate) fn push(&mut self, part: &[u8]) -> Result<(), DecodeError> {
        let result = match &mut self.0 {
            Encoding::Plain(bounded) => bounded.write_all(part),
            Encoding::Gzip(decoder) => decoder.write_all(part),
        };
        result.map_err(|error| self.failed(error))
    }

    /// Returns the whole body.
    pub(crate) fn finish(mut self) -> Result<Bytes, DecodeError> {
        if let Encoding::Gzip(decoder) = &mut self.0
            && let Err(error) = decoder.try_finish()
        {
            return Err(self.failed(error));
        }
        Ok(match self.0 {
            Encoding::Plain(bounded) => bounded.bytes.into(),
            Encoding::Gzip(mut decoder) => std::mem::take(&mut decoder.get_mut().bytes).into(),
        })
    }

    fn failed(&self, error: io::Error) -> DecodeError {
        let bounded = match &self.0 {
            Encoding::Plain(bounded) => bounded,
            Encoding::Gzip(decoder) => decoder.get_ref(),
        };
        if bounded.full {
            DecodeError::TooLong
        } else {
            DecodeError::Corrupt(error)
        }
    }
}

/// Bytes up to a limit; more are rejected.
struct Bounded {
    bytes: Vec<u8>,
    limit: u64,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if (self.bytes.len() + part.len()) as u64 > self.limit {
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn zipped(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Decodes a body that arrives in chunks of this size.
    fn received(gzip: bool, limit: u64, body: &[u8], size: usize) -> Result<Bytes, DecodeError> {
        let mut received = BodyDecoder::new(gzip, limit);
        for part in body.chunks(size) {
            received.push(part)?;
        }
        received.finish()
    }

    #[test]
    fn bodies_are_received_unchanged_with_and_without_gzip() {
        let text = b"a state document ".repeat(1000);
        for size in [1, 7, 1 << 20] {
            assert_eq!(received(false, 17_000, &text, size).unwrap(), text);
            assert_eq!(received(true, 17_000, &zipped(&text), size).unwrap(), text);
        }
        assert!(received(false, 0, b"", 1).unwrap().is_empty());
    }

    #[test]
    fn size_limit_applies_to_the_decompressed_body() {
        let text = b"a".repeat(1_000_000);
        for (gzip, body) in [(false, text.clone()), (true, zipped(&text))] {
            let failed = received(gzip, 999_999, &body, 4096).unwrap_err();
            assert!(matches!(failed, DecodeError::TooLong), "{failed:?}");
        }
    }

    #[test]
    fn truncated_or_invalid_gzip_is_an_error() {
        let complete = zipped(b"a state document");
        for body in [&b"{}"[..], &complete[..complete.len() - 3], &complete[..5], b""] {
            let failed = received(true, 1000, body, 4).unwrap_err();
            assert!(matches!(failed, DecodeError::Corrupt(_)), "{failed:?}");
        }
    }
}
