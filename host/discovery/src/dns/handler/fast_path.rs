//! The fast path: answers the common queries without parsing whole messages. Those are one question
//! for a name of the zone, type A, AAAA or SRV, with or without EDNS. [`Handler`](super::Handler)
//! answers all others; a test compares both.
//!
//! It allocates only what the answer needs and reads only the zone.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use rand::Rng;

use crate::dns::respond::Transport;
use crate::labels::{wire_length, write_name};
use crate::zone::{EncodedSrv, MAX_ENCODED_TARGETS, Node, Zone, ZoneLookup};

const HEADER: usize = 12;
/// The maximum UDP payload in both directions.
const MAX_UDP_PAYLOAD: u16 = 1232;
/// Compression pointers reach offsets below this.
const MAX_POINTER_OFFSET: usize = 0x4000;
const TYPE_A: u16 = 1;
const TYPE_SOA: u16 = 6;
const TYPE_AAAA: u16 = 28;
const TYPE_SRV: u16 = 33;
const TYPE_OPT: u16 = 41;
const CLASS_IN: u16 = 1;
const NXDOMAIN: u8 = 3;
/// An OPT record without options.
const OPT_BYTES: usize = 11;
/// The owner of an answer: a pointer to the question's name, after the header.
const QUESTION_POINTER: [u8; 2] = [0xc0, HEADER as u8];

/// The constant parts of answers in wire form.
#[derive(Clone, Debug)]
pub(super) struct AnswerTemplate {
    /// Primary server and mailbox of the SOA record.
    pub(super) soa_names: Vec<u8>,
    /// Refresh, retry and expire.
    pub(super) soa_times: [u32; 3],
    /// The TTL of the SOA record, and its minimum.
    pub(super) ttl: u32,
    /// The length of the apex in wire form.
    pub(super) apex: usize,
    /// Whether answers have the RA flag.
    pub(super) recursion_available: bool,
    /// Whether truncated answers have the TC flag.
    pub(super) set_truncate_bit: bool,
}

/// A common query.
#[derive(Debug)]
pub(super) struct Question<'p> {
    packet: &'p [u8],
    /// Where the question ends.
    end: usize,
    kind: u16,
    /// Payload size and flags (DO) of EDNS, if any.
    edns: Option<(u16, u16)>,
    name: NameText,
}

/// A name in lower case with its trailing dot.
#[derive(Debug)]
struct NameText {
    bytes: [u8; 256],
    length: usize,
}

impl NameText {
    fn as_str(&self) -> &str {
        // Contains only ASCII.
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

/// Type and response code of an answered query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) kind: u16,
    pub(super) code: u8,
}

impl<'p> Question<'p> {
    /// Parses a packet; none if it is not a common query.
    pub(super) fn read(packet: &'p [u8]) -> Option<Self> {
        let header: &[u8; HEADER] = packet.first_chunk()?;
        // Opcode 0, any RD; one question and nothing else except OPT.
        let plain = header[2] & 0xfe == 0 && header[3] & 0x8f == 0;
        if !plain || header[4..11] != [0, 1, 0, 0, 0, 0, 0] || header[11] > 1 {
            return None;
        }
        let (name, mut at) = read_name(packet)?;
        let kind = u16_at(packet, at)?;
        if !matches!(kind, TYPE_A | TYPE_AAAA | TYPE_SRV) || u16_at(packet, at + 2)? != CLASS_IN {
            return None;
        }
        at += 4;
        let end = at;
        let edns = if header[11] == 1 {
            let opt = packet.get(at..)?;
            let head: &[u8; OPT_BYTES] = opt.first_chunk()?;
            let has_valid_length =
                usize::from(u16::from_be_bytes([head[9], head[10]])) + OPT_BYTES == opt.len();
            // Root name, version 0 and no options; the handler answers others.
            if head[0] != 0
                || u16_at(head, 1)? != TYPE_OPT
                || head[5..7] != [0, 0]
                || !has_valid_length
                || opt.len() > OPT_BYTES
            {
                return None;
            }
            Some((u16_at(head, 3)?, u16_at(head, 7)?))
        } else if packet.len() > end {
            return None;
        } else {
            None
        };
        Some(Self {
            packet,
            end,
            kind,
            edns,
            name,
        })
    }

    /// Appends the answer to `out`, within the client's size limit; none, with nothing written, if
    /// the name is not below the zone's apex.
    pub(super) fn answer(
        &self,
        zone: &Zone,
        template: &AnswerTemplate,
        transport: Transport,
        out: &mut Vec<u8>,
    ) -> Option<Answered> {
        let name = self.name.as_str();
        if name.len() <= zone.apex().len() {
            return None;
        }
        let found = zone.find(name);
        if matches!(found, ZoneLookup::Outside) {
            return None;
        }
        let limit = match transport {
            Transport::Udp => self
                .edns
                .map_or(512, |(size, _)| usize::from(size.clamp(512, MAX_UDP_PAYLOAD))),
            Transport::Tcp => usize::from(u16::MAX),
        };
        let start = out.len();
        out.extend_from_slice(&self.packet[..self.end]);
        let mut writer = Writer {
            room: limit - if self.edns.is_some() { OPT_BYTES } else { 0 },
            start,
            out,
            answers: 0,
            authority: 0,
            additional: 0,
            truncated: false,
        };
        let mut code = 0;
        match found {
            ZoneLookup::Node(node) => match self.kind {
                TYPE_A => writer.addresses(node.a(), node.ttl(), Ipv4Addr::octets, TYPE_A),
                TYPE_AAAA => writer.addresses(node.aaaa(), node.ttl(), Ipv6Addr::octets, TYPE_AAAA),
                _ => writer.services(zone, node),
            },
            ZoneLookup::EmptyNonTerminal => {}
            ZoneLookup::NoSuchName | ZoneLookup::Outside => code = NXDOMAIN,
        }
        if writer.answers == 0 && !writer.truncated {
            // The apex is the end of the question's name, before type and class.
            writer.soa(zone, template, self.end - 4 - template.apex);
        }
        let Writer {
            answers,
            authority,
            mut additional,
            truncated,
            ..
        } = writer;
        if let Some((_, flags)) = self.edns {
            out.push(0);
            out.extend_from_slice(&TYPE_OPT.to_be_bytes());
            out.extend_from_slice(&MAX_UDP_PAYLOAD.to_be_bytes());
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&(flags & 0x8000).to_be_bytes());
            out.extend_from_slice(&[0, 0]);
            additional += 1;
        }
        let header = &mut out[start..start + HEADER];
        let tc_flag = if truncated && template.set_truncate_bit {
            2
        } else {
            0
        };
        // A response, authoritative, with the query's RD.
        header[2] = 0x84 | tc_flag | (self.packet[2] & 1);
        header[3] = if template.recursion_available { 0x80 } else { 0 } | code;
        header[6..8].copy_from_slice(&answers.to_be_bytes());
        header[8..10].copy_from_slice(&authority.to_be_bytes());
        header[10..12].copy_from_slice(&additional.to_be_bytes());
        Some(Answered {
            kind: self.kind,
            code,
        })
    }
}

struct Writer<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    /// The maximum length of the message.
    room: usize,
    answers: u16,
    authority: u16,
    additional: u16,
    /// Whether answers were left out.
    truncated: bool,
}

impl Writer<'_> {
    fn fits(&self, more: usize) -> bool {
        self.out.len() - self.start + more <= self.room
    }

    fn head(&mut self, owner: [u8; 2], kind: u16, ttl: u32, length: u16) {
        self.out.extend_from_slice(&owner);
        self.fixed(kind, ttl, length);
    }

    /// The fields of a record after its name.
    fn fixed(&mut self, kind: u16, ttl: u32, length: u16) {
        let mut fixed = [0; 10];
        fixed[..2].copy_from_slice(&kind.to_be_bytes());
        fixed[2..4].copy_from_slice(&CLASS_IN.to_be_bytes());
        fixed[4..8].copy_from_slice(&ttl.to_be_bytes());
        fixed[8..10].copy_from_slice(&length.to_be_bytes());
        self.out.extend_from_slice(&fixed);
    }

    /// Appends addresses, rotated randomly.
    fn addresses<T, const N: usize>(&mut self, ips: &[T], ttl: u32, octets: fn(&T) -> [u8; N], kind: u16) {
        for ip in rotated(ips) {
            if !self.fits(12 + N) {
                self.truncated = true;
                return;
            }
            self.head(QUESTION_POINTER, kind, ttl, N as u16);
            self.out.extend_from_slice(&octets(ip));
            self.answers += 1;
        }
    }

    /// Appends SRV records, rotated randomly, with additional addresses of their targets. Services
    /// with ports or names that DNS cannot represent are skipped.
    fn services(&mut self, zone: &Zone, node: &Node) {
        let written = node.with_encoded_srv(zone, |encoded| self.push_encoded(encoded));
        if written != Some(true) {
            self.push_services(zone, node);
        }
    }

    /// Appends encoded SRV records. Writes nothing if they do not all fit or exceed the reach of
    /// pointers.
    fn push_encoded(&mut self, encoded: &EncodedSrv) -> bool {
        let answers_at = self.out.len() - self.start;
        if !self.fits(encoded.answers_length()) || answers_at + encoded.answers_length() > MAX_POINTER_OFFSET
        {
            return false;
        }
        let first = rand::rng().random_range(0..encoded.answers());
        for part in encoded.answers_from(first) {
            self.out.extend_from_slice(part);
        }
        self.answers += encoded.answers() as u16;
        for (target, record) in encoded.addresses() {
            let at = answers_at + encoded.target_at(target, first);
            if self.fits(record.len()) {
                let owner = self.out.len();
                self.out.extend_from_slice(record);
                self.out[owner..owner + 2].copy_from_slice(&(0xc000 | at as u16).to_be_bytes());
                self.additional += 1;
            }
        }
        true
    }

    fn push_services(&mut self, zone: &Zone, node: &Node) {
        let mut targets = Targets::default();
        for service in rotated(node.srv()) {
            let Ok(port) = u16::try_from(service.port) else {
                continue;
            };
            let Some(length) = wire_length(&service.target) else {
                continue;
            };
            let data = 6 + length;
            if !self.fits(12 + data) {
                self.truncated = true;
                return;
            }
            self.head(QUESTION_POINTER, TYPE_SRV, node.ttl(), data as u16);
            self.out.extend_from_slice(&[0, 0]);
            self.out.extend_from_slice(&service.weight.to_be_bytes());
            self.out.extend_from_slice(&port.to_be_bytes());
            let at = self.out.len() - self.start;
            write_name(&service.target, self.out);
            self.answers += 1;
            targets.add(&service.target, at);
        }
        for (target, at) in targets.iter() {
            let Some(node) = zone.node(target) else { continue };
            if let Some(ip) = random_one(node.a()) {
                self.push_additional(target, *at, TYPE_A, node.ttl(), &ip.octets());
            }
            if let Some(ip) = random_one(node.aaaa()) {
                self.push_additional(target, *at, TYPE_AAAA, node.ttl(), &ip.octets());
            }
        }
    }

    /// Appends an address of the target whose name is at `at`, if it fits.
    fn push_additional(&mut self, target: &str, at: usize, kind: u16, ttl: u32, octets: &[u8]) {
        let pointer = u16::try_from(at).ok().filter(|_| at < MAX_POINTER_OFFSET);
        let owner = pointer.map_or_else(|| wire_length(target).unwrap_or_default(), |_| 2);
        if !self.fits(owner + 10 + octets.len()) {
            return;
        }
        if let Some(at) = pointer {
            self.out.extend_from_slice(&(0xc000 | at).to_be_bytes());
        } else {
            write_name(target, self.out);
        }
        self.fixed(kind, ttl, octets.len() as u16);
        self.out.extend_from_slice(octets);
        self.additional += 1;
    }

    /// Appends the SOA record of a negative answer. `apex`: the offset of the apex in the question.
    fn soa(&mut self, zone: &Zone, template: &AnswerTemplate, apex: usize) {
        let length = template.soa_names.len() + 20;
        if !self.fits(12 + length) {
            return;
        }
        let owner = (0xc000 | apex as u16).to_be_bytes();
        self.head(owner, TYPE_SOA, template.ttl, length as u16);
        self.out.extend_from_slice(&template.soa_names);
        let [refresh, retry, expire] = template.soa_times;
        for number in [zone.serial(), refresh, retry, expire, template.ttl] {
            self.out.extend_from_slice(&number.to_be_bytes());
        }
        self.authority += 1;
    }
}

/// Targets of SRV records with the offset of their names, in order of appearance.
struct Targets<'z> {
    inline: [(&'z str, usize); MAX_ENCODED_TARGETS],
    count: usize,
    /// Targets beyond `inline`, which occur on connections only; `seen` has all of them then.
    overflow: Vec<(&'z str, usize)>,
    seen: BTreeSet<&'z str>,
}

impl Default for Targets<'_> {
    fn default() -> Self {
        Self {
            inline: [("", 0); MAX_ENCODED_TARGETS],
            count: 0,
            overflow: Vec::new(),
            seen: BTreeSet::new(),
        }
    }
}

impl<'z> Targets<'z> {
    fn add(&mut self, target: &'z str, at: usize) {
        if self.seen.is_empty() {
            let mut inline = self.inline[..self.count].iter();
            if inline.any(|(seen, _)| *seen == target) {
                return;
            }
            if let Some(free) = self.inline.get_mut(self.count) {
                *free = (target, at);
                self.count += 1;
                return;
            }
            self.seen = self.inline.iter().map(|(seen, _)| *seen).collect();
        }
        if self.seen.insert(target) {
            self.overflow.push((target, at));
        }
    }

    fn iter(&self) -> impl Iterator<Item = &(&'z str, usize)> {
        self.inline[..self.count].iter().chain(&self.overflow)
    }
}

/// All values, starting at a random one.
fn rotated<T>(values: &[T]) -> impl Iterator<Item = &T> {
    let (first, rest) = match values.len() {
        0 | 1 => values.split_at(0),
        count => values.split_at(rand::rng().random_range(0..count)),
    };
    rest.iter().chain(first)
}

fn random_one<T>(values: &[T]) -> Option<&T> {
    match values {
        [] => None,
        [one] => Some(one),
        values => values.get(rand::rng().random_range(0..values.len())),
    }
}

/// The name after the header, and the offset after it; none if it has special characters, or `.*`,
/// which older clients use for "any".
fn read_name(packet: &[u8]) -> Option<(NameText, usize)> {
    let mut text = NameText {
        bytes: [0; 256],
        length: 0,
    };
    let mut at = HEADER;
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        let label = packet.get(at..at + length).filter(|_| length < 64)?;
        let room = text.bytes.get_mut(text.length..=text.length + length)?;
        for (to, from) in room.iter_mut().zip(label) {
            if !from.is_ascii_graphic() || matches!(from, b'.' | b'*' | b'\\') {
                return None;
            }
            *to = from.to_ascii_lowercase();
        }
        room[length] = b'.';
        text.length += length + 1;
        at += length;
    }
    // The root's own length octet counts too.
    (text.length < 255).then_some((text, at))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
