//! What the log and the snapshots contain, and its encoding: a byte with the format, then records,
//! compressed where that makes them shorter. Numbers are in little-endian order.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

const PLAIN: u8 = 1;
const DEFLATED: u8 = 2;
/// Shorter texts are not compressed.
const MIN_COMPRESSED: usize = 256;

/// A change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Put {
        key: Arc<str>,
        version: u64,
        value: Bytes,
    },
    Delete {
        key: Arc<str>,
    },
    /// A lease was granted or renewed.
    Grant {
        name: String,
        holder: String,
        fencing: u64,
        ttl: Duration,
    },
    Release {
        name: String,
    },
    /// The last version and the last fencing number that were assigned.
    Counters {
        version: u64,
        fencing: u64,
    },
}

impl Record {
    /// Bytes of its encoding, and a few more.
    pub(super) fn size(&self) -> usize {
        64 + match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Delete { key } => key.len(),
            Self::Grant { name, holder, .. } => name.len() + holder.len(),
            Self::Release { name } => name.len(),
            Self::Counters { .. } => 0,
        }
    }
}

/// Why bytes are not records.
#[derive(Debug, thiserror::Error)]
pub(super) enum Malformed {
    #[error("format {0:?} is not known to this version")]
    Format(Option<u8>),
    #[error("they end within a record")]
    Short,
    #[error("a text is not UTF-8")]
    Text,
    #[error("a record of kind {0} is not known to this version")]
    Kind(u8),
    #[error("they are larger than {0} bytes")]
    Large(u64),
    #[error("they cannot be decompressed")]
    Compressed(#[from] std::io::Error),
}

pub(super) fn encode<'r>(records: impl IntoIterator<Item = &'r Record>) -> std::io::Result<Vec<u8>> {
    let mut plain = vec![PLAIN];
    for record in records {
        append(&mut plain, record);
    }
    if plain.len() < MIN_COMPRESSED {
        return Ok(plain);
    }
    let mut encoder = DeflateEncoder::new(vec![DEFLATED], Compression::fast());
    encoder.write_all(plain.get(1..).unwrap_or_default())?;
    let compressed = encoder.finish()?;
    Ok(if compressed.len() < plain.len() {
        compressed
    } else {
        plain
    })
}

fn append(to: &mut Vec<u8>, record: &Record) {
    let text = |to: &mut Vec<u8>, bytes: &[u8]| {
        // Keys and values are far shorter than 4 GiB: see the limits of stores.
        to.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        to.extend_from_slice(bytes);
    };
    let number = |to: &mut Vec<u8>, number: u64| to.extend_from_slice(&number.to_le_bytes());
    match record {
        Record::Put { key, version, value } => {
            to.push(1);
            text(to, key.as_bytes());
            number(to, *version);
            text(to, value);
        }
        Record::Delete { key } => {
            to.push(2);
            text(to, key.as_bytes());
        }
        Record::Grant {
            name,
            holder,
            fencing,
            ttl,
        } => {
            to.push(3);
            text(to, name.as_bytes());
            text(to, holder.as_bytes());
            number(to, *fencing);
            number(to, u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX));
        }
        Record::Release { name } => {
            to.push(4);
            text(to, name.as_bytes());
        }
        Record::Counters { version, fencing } => {
            to.push(5);
            number(to, *version);
            number(to, *fencing);
        }
    }
}

/// Decodes at most `limit` bytes of records.
pub(super) fn decode(bytes: &[u8], limit: u64) -> Result<Vec<Record>, Malformed> {
    let (format, body) = bytes.split_first().ok_or(Malformed::Format(None))?;
    match *format {
        PLAIN if body.len() as u64 > limit => Err(Malformed::Large(limit)),
        PLAIN => records(body),
        DEFLATED => {
            let mut plain = Vec::new();
            let mut reader = DeflateDecoder::new(body).take(limit.saturating_add(1));
            reader.read_to_end(&mut plain)?;
            if plain.len() as u64 > limit {
                return Err(Malformed::Large(limit));
            }
            records(&plain)
        }
        other => Err(Malformed::Format(Some(other))),
    }
}

fn records(mut rest: &[u8]) -> Result<Vec<Record>, Malformed> {
    let mut records = Vec::new();
    while let Some((kind, after)) = rest.split_first() {
        rest = after;
        records.push(match kind {
            1 => Record::Put {
                key: text(&mut rest)?.into(),
                version: number(&mut rest)?,
                // A copy, so that one value does not keep all others in memory.
                value: Bytes::copy_from_slice(bytes(&mut rest)?),
            },
            2 => Record::Delete {
                key: text(&mut rest)?.into(),
            },
            3 => Record::Grant {
                name: text(&mut rest)?.to_owned(),
                holder: text(&mut rest)?.to_owned(),
                fencing: number(&mut rest)?,
                ttl: Duration::from_nanos(number(&mut rest)?),
            },
            4 => Record::Release {
                name: text(&mut rest)?.to_owned(),
            },
            5 => Record::Counters {
                version: number(&mut rest)?,
                fencing: number(&mut rest)?,
            },
            kind => return Err(Malformed::Kind(*kind)),
        });
    }
    Ok(records)
}

fn number(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let (first, after) = rest.split_first_chunk().ok_or(Malformed::Short)?;
    *rest = after;
    Ok(u64::from_le_bytes(*first))
}

fn bytes<'b>(rest: &mut &'b [u8]) -> Result<&'b [u8], Malformed> {
    let (length, after) = rest.split_first_chunk().ok_or(Malformed::Short)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (found, after) = after.split_at_checked(length).ok_or(Malformed::Short)?;
    *rest = after;
    Ok(found)
}

fn text<'b>(rest: &mut &'b [u8]) -> Result<&'b str, Malformed> {
    std::str::from_utf8(bytes(rest)?).map_err(|_| Malformed::Text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)] // Tests may panic.
mod tests {
    use super::*;

    const LIMIT: u64 = 1 << 20;

    fn all() -> Vec<Record> {
        vec![
            Record::Put {
                key: "a/ü".into(),
                version: u64::MAX,
                value: Bytes::from_static(b"\0\xFF"),
            },
            Record::Delete { key: "".into() },
            Record::Grant {
                name: "l".to_owned(),
                holder: "h".to_owned(),
                fencing: 7,
                ttl: Duration::from_millis(1500),
            },
            Record::Release { name: "l".to_owned() },
            Record::Counters {
                version: 1,
                fencing: 2,
            },
        ]
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let encoded = encode(&all()).unwrap();
        assert_eq!(encoded[0], PLAIN);
        assert_eq!(decode(&encoded, LIMIT).unwrap(), all());
        let many: Vec<Record> = std::iter::repeat_n(all(), 1000).flatten().collect();
        let encoded = encode(&many).unwrap();
        assert_eq!(encoded[0], DEFLATED);
        assert!(encoded.len() < 10_000, "{}", encoded.len());
        assert_eq!(decode(&encoded, LIMIT).unwrap(), many);
    }

    #[test]
    fn damaged_bytes_are_errors() {
        for bytes in [
            &b""[..],
            b"\0",
            b"\x03abc",
            b"\x01\x09",
            b"\x01\x02\x01\0\0\0\xFF",
            b"\x02\xFF\xFF",
        ] {
            assert!(decode(bytes, LIMIT).is_err(), "{bytes:?}");
        }
        let encoded = encode(&all()).unwrap();
        for end in 1..encoded.len() {
            // A cut between two records is noticed by the length in the state, not here.
            let _ = decode(&encoded[..end], LIMIT);
        }
        let many: Vec<Record> = std::iter::repeat_n(all(), 1000).flatten().collect();
        let bomb = encode(&many).unwrap();
        assert!(matches!(decode(&bomb, 1000), Err(Malformed::Large(1000))));
        let plain = encode(&all()).unwrap();
        assert!(matches!(decode(&plain, 10), Err(Malformed::Large(10))));
    }
}
