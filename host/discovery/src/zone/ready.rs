//! Services in wire form, with the addresses of their targets: all that an answer for SRV has behind its question. Made when
//! it is first asked for and kept beside the records, until these or the addresses change.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::versions::Version;
use super::{Node, Zone};
use crate::labels::{wire_length, write_name};

/// Services of one name that are kept in wire form, at most.
pub(crate) const MOST_TARGETS: usize = 64;
/// The question's name, right behind the header of 12 bytes.
const QUESTION: [u8; 2] = [0xc0, 12];
/// Owner, type, class, lifetime and length of a record.
const HEAD: usize = 12;
/// Priority, weight and port, before the target.
const BEFORE_TARGET: usize = HEAD + 6;
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const TYPE_SRV: u16 = 33;

/// Services in wire form. There is at least one answer.
#[derive(Debug)]
pub(crate) struct Ready {
    answers: Box<[u8]>,
    /// Where each answer begins; last, where the last one ends.
    begins: Box<[u16]>,
    /// Records of addresses, their owners left open.
    addresses: Box<[u8]>,
    /// For each: the answer that has its target's name, and its length.
    owners: Box<[(u8, u8)]>,
}

impl Ready {
    /// How many answers there are.
    pub(crate) fn answers(&self) -> usize {
        self.begins.len() - 1
    }

    /// How long they are.
    pub(crate) fn answers_length(&self) -> usize {
        self.answers.len()
    }

    /// The answers in wire form, `first` first.
    pub(crate) fn answers_from(&self, first: usize) -> [&[u8]; 2] {
        let (last, first) = self.answers.split_at(self.begins[first].into());
        [first, last]
    }

    /// Where an answer's target begins, counted from the first byte of [`answers_from`](Self::answers_from) with the same
    /// `first`.
    pub(crate) fn target_at(&self, answer: usize, first: usize) -> usize {
        let begins = usize::from(self.begins[answer]) + BEFORE_TARGET;
        let turned = usize::from(self.begins[first]);
        if answer < first {
            begins + self.answers.len() - turned
        } else {
            begins - turned
        }
    }

    /// Records of addresses, each with the answer whose target is its owner; the owner is to be written to its first two
    /// bytes.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut rest = &*self.addresses;
        self.owners.iter().map(move |(answer, length)| {
            let (record, behind) = rest.split_at(usize::from(*length));
            rest = behind;
            (usize::from(*answer), record)
        })
    }

    /// None where an answer is not always made of the same records. For nodes of up to [`MOST_TARGETS`] services.
    fn of(zone: &Zone, node: &Node) -> Option<Self> {
        let (mut answers, mut begins) = (Vec::new(), Vec::new());
        let (mut addresses, mut owners) = (Vec::new(), Vec::new());
        let mut targets: Vec<&str> = Vec::new();
        for service in node.srv() {
            let (Ok(port), Some(length)) = (u16::try_from(service.port), wire_length(&service.target)) else {
                continue;
            };
            let answer = u8::try_from(begins.len()).ok()?;
            begins.push(u16::try_from(answers.len()).ok()?);
            head(&mut answers, QUESTION, TYPE_SRV, node.ttl(), 6 + length);
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
                owners.push((answer, HEAD as u8 + 4));
            }
            if let [ip] = target.aaaa() {
                head(&mut addresses, [0; 2], TYPE_AAAA, target.ttl(), 16);
                addresses.extend_from_slice(&ip.octets());
                owners.push((answer, HEAD as u8 + 16));
            }
        }
        if begins.is_empty() {
            return None;
        }
        begins.push(u16::try_from(answers.len()).ok()?);
        Some(Self {
            answers: answers.into(),
            begins: begins.into(),
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

/// What was made last, and what it depends on.
#[derive(Debug)]
struct Made {
    ready: Option<Ready>,
    targets: Box<[Version]>,
}

/// A place for what was made last. A copy is empty: copies are made to be changed.
#[derive(Default)]
pub(super) struct Kept(ArcSwapOption<Made>);

impl Kept {
    /// Does something with a node's services in wire form, which are made where they are not there or not right any more.
    pub(super) fn with<T>(&self, zone: &Zone, node: &Node, then: impl FnOnce(&Ready) -> T) -> Option<T> {
        let kept = self.0.load();
        if let Some(made) = &*kept
            && made
                .targets
                .iter()
                .all(|version| zone.versions.is_still(*version))
        {
            return made.ready.as_ref().map(then);
        }
        drop(kept);
        let versions = node.srv().iter().map(|service| zone.versions.of(&service.target));
        let made = Arc::new(Made {
            targets: versions.collect(),
            ready: Ready::of(zone, node),
        });
        self.0.store(Some(Arc::clone(&made)));
        made.ready.as_ref().map(then)
    }
}

impl Clone for Kept {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}
