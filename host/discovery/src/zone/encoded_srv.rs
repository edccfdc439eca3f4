//! SRV records in wire form with the addresses of their targets: the answer to an SRV query.
//! Encoded at the first query and reused until the records or the targets' addresses change.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::address_epochs::Epoch;
use super::{Node, Zone};
use crate::labels::{wire_length, write_name};

/// Names with more services are not encoded in advance.
pub(crate) const MAX_ENCODED_TARGETS: usize = 64;
/// A pointer to the question's name, after the 12 bytes of the header.
const QUESTION_POINTER: [u8; 2] = [0xc0, 12];
/// Owner, type, class, TTL and length of a record.
const RECORD_HEADER_BYTES: usize = 12;
/// Priority, weight and port, before the target.
const TARGET_OFFSET: usize = RECORD_HEADER_BYTES + 6;
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const TYPE_SRV: u16 = 33;

/// SRV records in wire form, at least one.
#[derive(Debug)]
pub(crate) struct EncodedSrv {
    answers: Box<[u8]>,
    /// Where each answer begins, and where the last one ends.
    offsets: Box<[u16]>,
    /// Address records without their owners.
    addresses: Box<[u8]>,
    /// For each: the answer whose target is its owner, and its length.
    owners: Box<[(u8, u8)]>,
}

impl EncodedSrv {
    /// The number of answers.
    pub(crate) fn answers(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Their length in bytes.
    pub(crate) fn answers_length(&self) -> usize {
        self.answers.len()
    }

    /// The answers in wire form, `first` first.
    pub(crate) fn answers_from(&self, first: usize) -> [&[u8]; 2] {
        let (last, first) = self.answers.split_at(self.offsets[first].into());
        [first, last]
    }

    /// Where an answer's target begins, counted from the first byte of
    /// [`answers_from`](Self::answers_from) with the same `first`.
    pub(crate) fn target_at(&self, answer: usize, first: usize) -> usize {
        let start = usize::from(self.offsets[answer]) + TARGET_OFFSET;
        let rotation = usize::from(self.offsets[first]);
        if answer < first {
            start + self.answers.len() - rotation
        } else {
            start - rotation
        }
    }

    /// Address records, each with the answer whose target is its owner; the caller writes a pointer
    /// to it into the first two bytes.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut rest = &*self.addresses;
        self.owners.iter().map(move |(answer, length)| {
            let (record, tail) = rest.split_at(usize::from(*length));
            rest = tail;
            (usize::from(*answer), record)
        })
    }

    /// None if answers vary because a target has several addresses. For nodes of up to
    /// [`MAX_ENCODED_TARGETS`] services.
    fn of(zone: &Zone, node: &Node) -> Option<Self> {
        let (mut answers, mut offsets) = (Vec::new(), Vec::new());
        let (mut addresses, mut owners) = (Vec::new(), Vec::new());
        let mut targets: Vec<&str> = Vec::new();
        for service in node.srv() {
            let (Ok(port), Some(length)) = (u16::try_from(service.port), wire_length(&service.target)) else {
                continue;
            };
            let answer = u8::try_from(offsets.len()).ok()?;
            offsets.push(u16::try_from(answers.len()).ok()?);
            head(&mut answers, QUESTION_POINTER, TYPE_SRV, node.ttl(), 6 + length);
            answers.extend_from_slice(&[0, 0]);
            answers.extend_from_slice(&service.weight.to_be_bytes());
            answers.extend_from_slice(&port.to_be_bytes());
            write_name(&service.target, &mut answers);
            if targets.contains(&&*service.target) {
                continue;
            }
            targets.push(&service.target);
            let Some(target) = zone.node(&service.target) else {
                continue;
            };
            if target.a().len() > 1 || target.aaaa().len() > 1 {
                return None;
            }
            if let [ip] = target.a() {
                head(&mut addresses, [0; 2], TYPE_A, target.ttl(), 4);
                addresses.extend_from_slice(&ip.octets());
                owners.push((answer, RECORD_HEADER_BYTES as u8 + 4));
            }
            if let [ip] = target.aaaa() {
                head(&mut addresses, [0; 2], TYPE_AAAA, target.ttl(), 16);
                addresses.extend_from_slice(&ip.octets());
                owners.push((answer, RECORD_HEADER_BYTES as u8 + 16));
            }
        }
        if offsets.is_empty() {
            return None;
        }
        offsets.push(u16::try_from(answers.len()).ok()?);
        Some(Self {
            answers: answers.into(),
            offsets: offsets.into(),
            addresses: addresses.into(),
            owners: owners.into(),
        })
    }
}

fn head(out: &mut Vec<u8>, owner: [u8; 2], kind: u16, ttl: u32, length: usize) {
    out.extend_from_slice(&owner);
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&[0, 1]);
    out.extend_from_slice(&ttl.to_be_bytes());
    out.extend_from_slice(&(length as u16).to_be_bytes());
}

/// Encoded records and the epochs of the addresses that they depend on.
#[derive(Debug)]
struct MemoEntry {
    encoded: Option<EncodedSrv>,
    targets: Box<[Epoch]>,
}

/// The last encoding. Clones are empty, as nodes are cloned to be changed.
#[derive(Default)]
pub(super) struct Memo(ArcSwapOption<MemoEntry>);

impl Memo {
    /// Calls `then` with a node's encoded SRV records, encoding them if missing or stale.
    pub(super) fn with<T>(&self, zone: &Zone, node: &Node, then: impl FnOnce(&EncodedSrv) -> T) -> Option<T> {
        let cached = self.0.load();
        if let Some(entry) = &*cached
            && entry
                .targets
                .iter()
                .all(|version| zone.address_epochs.is_current(*version))
        {
            return entry.encoded.as_ref().map(then);
        }
        drop(cached);
        let address_epochs = node
            .srv()
            .iter()
            .map(|service| zone.address_epochs.of(&service.target));
        let entry = Arc::new(MemoEntry {
            targets: address_epochs.collect(),
            encoded: EncodedSrv::of(zone, node),
        });
        self.0.store(Some(Arc::clone(&entry)));
        entry.encoded.as_ref().map(then)
    }
}

impl Clone for Memo {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memo")
    }
}
