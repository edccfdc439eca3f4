//! Every recorded stream, however it is split, yields the recorded events, each record as soon as its
//! last byte has arrived.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use std::path::{Path, PathBuf};
use support::{document, files};
use transom_cluster::recordio::Decoder;

const LIMIT: u64 = 1 << 20;

/// All recorded streams with their events.
fn streams() -> Vec<(PathBuf, Vec<u8>, Vec<Value>)> {
    let streams: Vec<_> = files(".recordio.bin")
        .into_iter()
        .map(|path| with_events(&path))
        .collect();
    assert!(streams.len() >= 30 && streams.iter().any(|(_, _, events)| events.len() > 40));
    streams
}

fn with_events(path: &Path) -> (PathBuf, Vec<u8>, Vec<Value>) {
    let events = document(Path::new(
        &path.to_str().unwrap().replace(".recordio.bin", ".events.json"),
    ));
    let events = events
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["event"].clone())
        .collect();
    (path.to_owned(), std::fs::read(path).unwrap(), events)
}

fn decode_all(decoder: &mut Decoder, bytes: &[u8]) -> Vec<Bytes> {
    decoder.push(bytes).collect::<Result<_, _>>().unwrap()
}

/// The offset at which each record of the stream ends.
fn ends(stream: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        let feed = at + stream[at..].iter().position(|byte| *byte == b'\n').unwrap();
        let length: usize = std::str::from_utf8(&stream[at..feed]).unwrap().parse().unwrap();
        at = feed + 1 + length;
        ends.push(at);
    }
    ends
}

/// Whether two values are equal, except for the last bit of numbers, which may have been written with
/// different numbers of digits.
fn json_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, left)| right.get(key).is_some_and(|right| json_equal(left, right)))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| json_equal(left, right))
        }
        (Value::Number(left), Value::Number(right)) if left.is_f64() && right.is_f64() => {
            let (left, right) = (left.as_f64().unwrap(), right.as_f64().unwrap());
            (left - right).abs() <= left.abs() * f64::EPSILON
        }
        (left, right) => left == right,
    }
}

#[test]
fn whole_streams_contain_the_recorded_events() {
    for (path, bytes, events) in streams() {
        let mut decoder = Decoder::new(LIMIT);
        let records = decode_all(&mut decoder, &bytes);
        decoder.finish().unwrap();
        let found: Vec<Value> = records
            .iter()
            .map(|record| serde_json::from_slice(record).unwrap())
            .collect();
        assert_eq!(found.len(), events.len(), "{}", path.display());
        for (at, (found, event)) in found.iter().zip(&events).enumerate() {
            assert!(
                json_equal(found, event),
                "{} event {at}: {found} is not {event}",
                path.display()
            );
        }
    }
}

#[test]
fn each_record_is_returned_with_its_last_byte() {
    for (path, bytes, _) in streams() {
        let mut decoder = Decoder::new(LIMIT);
        let mut offsets = Vec::new();
        for (at, byte) in bytes.iter().enumerate() {
            for _ in decode_all(&mut decoder, &[*byte]) {
                offsets.push(at + 1);
            }
        }
        assert_eq!(offsets, ends(&bytes), "{}", path.display());
    }
}

#[test]
fn split_at_any_byte_returns_the_same_records() {
    for (path, bytes, _) in streams() {
        // The cost is quadratic; the beginning of a long stream has every type of record.
        let end = ends(&bytes)
            .into_iter()
            .take_while(|end| *end < 12_000)
            .last()
            .unwrap_or(bytes.len());
        let bytes = &bytes[..end];
        let expected = decode_all(&mut Decoder::new(LIMIT), bytes);
        for cut in 0..=bytes.len() {
            let mut decoder = Decoder::new(LIMIT);
            let mut records = decode_all(&mut decoder, &bytes[..cut]);
            records.extend(decode_all(&mut decoder, &bytes[cut..]));
            assert_eq!(records, expected, "{} cut at {cut}", path.display());
        }
    }
}

#[test]
fn split_at_random_returns_the_same_records() {
    let mut random = StdRng::seed_from_u64(20_260_101);
    for (path, bytes, events) in streams() {
        for round in 0..20 {
            let mut decoder = Decoder::new(LIMIT);
            let (mut rest, mut count) = (bytes.as_slice(), 0);
            while !rest.is_empty() {
                let (piece, later) = rest.split_at(random.random_range(1..=rest.len().min(3000)));
                count += decode_all(&mut decoder, piece).len();
                rest = later;
            }
            decoder.finish().unwrap();
            assert_eq!(count, events.len(), "{} round {round}", path.display());
        }
    }
}

#[test]
fn truncation_is_detected_except_between_records() {
    for (path, bytes, _) in streams() {
        let ends = ends(&bytes);
        let mut decoder = Decoder::new(LIMIT);
        for (at, byte) in bytes.iter().enumerate() {
            decode_all(&mut decoder, &[*byte]);
            let between = ends.contains(&(at + 1));
            assert_eq!(
                decoder.finish().is_ok(),
                between,
                "{} after {} bytes",
                path.display(),
                at + 1
            );
        }
    }
}
