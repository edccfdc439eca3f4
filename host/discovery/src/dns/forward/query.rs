//! A client's query: the part that is forwarded, its cache key, and answers without a resolver.

use crate::dns::Transport;
use crate::dns::packet::{Flags, HEADER, Layout, code, has_pointer, kind, word, write_word};

/// The UDP payload without EDNS (RFC 1035), and the maximum that is accepted: larger ones would
/// help amplification attacks.
const UDP_PAYLOAD_RANGE: (u16, u16) = (512, 4096);
/// The EDNS size in our own answers.
const OWN_PAYLOAD_BYTES: u16 = 1232;
/// An EDNS record without options.
const EMPTY_OPT_BYTES: usize = 11;

/// EDNS options that are hop-by-hop and not forwarded: cookies (RFC 7873), keepalive (RFC 7828),
/// padding (RFC 7830).
const HOP_BY_HOP_OPTIONS: &[u16] = &[10, 11, 12];

/// The client's EDNS without hop-by-hop options.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edns {
    size: u16,
    version: u8,
    flags: u16,
    options: Vec<u8>,
}

/// A query that can be forwarded.
#[derive(Clone, Debug)]
pub(super) struct Query {
    id: u16,
    flags: Flags,
    /// Name, type and class in wire form, without pointers.
    question: Vec<u8>,
    edns: Option<Edns>,
}

/// A packet that is not a valid query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It has no header.
    NoHeader,
    /// It has a header, and is malformed after it.
    Broken { id: u16, flags: Flags },
}

impl Query {
    /// Parses any packet.
    pub(super) fn read(packet: &[u8]) -> Result<Self, Unreadable> {
        let (Some(id), Some(flags)) = (word(packet, 0), Flags::of(packet)) else {
            return Err(Unreadable::NoHeader);
        };
        if packet.len() < HEADER {
            return Err(Unreadable::NoHeader);
        }
        let broken = Unreadable::Broken { id, flags };
        if packet.len() > u16::MAX.into() {
            return Err(broken);
        }
        let layout = Layout::read(packet).ok_or(broken)?;
        if layout.questions != 1 || !layout.is_complete {
            return Err(broken);
        }
        let question = packet[HEADER..layout.body].to_vec();
        if has_pointer(&question) {
            return Err(broken);
        }
        // At most one EDNS record, in the right section.
        let opts = layout.records.iter().filter(|record| record.kind == kind::OPT);
        if opts.count() != usize::from(layout.opt().is_some()) {
            return Err(broken);
        }
        let edns = match layout.opt() {
            None => None,
            Some(opt) => {
                let [_, version, flags @ ..] = &packet[opt.ttl_at()] else {
                    return Err(broken);
                };
                Some(Edns {
                    size: opt.class,
                    version: *version,
                    flags: word(flags, 0).unwrap_or_default(),
                    options: without_hop_by_hop(&packet[opt.data()]).ok_or(broken)?,
                })
            }
        };
        Ok(Self {
            id,
            flags,
            question,
            edns,
        })
    }

    /// A query that probes a resolver: the root's name servers, which every resolver knows. A
    /// rejection counts as an answer too.
    pub(super) fn probe() -> Self {
        Self {
            id: 0,
            flags: Flags(Flags::RECURSION_DESIRED),
            question: vec![0, 0, 2, 0, 1],
            edns: None,
        }
    }

    /// The same query with each letter of the name in random case (0x20): a forged reply has to guess
    /// the case too, as replies repeat the question.
    pub(super) fn with_random_case(&self) -> Self {
        let mut query = self.clone();
        let name = query.question.len() - 4;
        // A bit for each byte of the longest name. Label lengths are below the letters.
        let bits: [u8; 32] = rand::random();
        for (at, byte) in query.question[..name].iter_mut().enumerate() {
            if byte.is_ascii_alphabetic() && (bits[at / 8 % bits.len()] >> (at % 8)) & 1 == 1 {
                *byte ^= 0x20;
            }
        }
        query
    }

    /// The same question without the client's EDNS, which may be specific to it.
    pub(super) fn without_edns(&self) -> Self {
        Self {
            edns: None,
            ..self.clone()
        }
    }

    /// The client's id.
    pub(super) fn id(&self) -> u16 {
        self.id
    }

    /// Name, type and class in the client's case.
    pub(super) fn question(&self) -> &[u8] {
        &self.question
    }

    /// The type asked for.
    pub(super) fn kind(&self) -> u16 {
        word(&self.question, self.question.len() - 4).unwrap_or_default()
    }

    /// Whether its reply can be shared. EDNS options may be specific to a client, such as its
    /// subnet.
    pub(super) fn is_shareable(&self) -> bool {
        self.edns.as_ref().is_none_or(|edns| edns.options.is_empty())
    }

    /// The maximum size of its reply.
    pub(super) fn max_reply_bytes(&self, transport: Transport) -> usize {
        let size = self.edns.as_ref().map_or(0, |edns| edns.size);
        usize::from(match transport {
            Transport::Udp => size.clamp(UDP_PAYLOAD_RANGE.0, UDP_PAYLOAD_RANGE.1),
            Transport::Tcp => u16::MAX,
        })
    }

    /// The maximum UDP reply of a resolver: the client's EDNS size is forwarded.
    pub(super) fn max_udp_reply_bytes(&self) -> usize {
        let size = self.edns.as_ref().map_or(0, |edns| edns.size);
        usize::from(size.max(UDP_PAYLOAD_RANGE.1))
    }

    /// The packet for a resolver: the client's RD, CD and AD flags and EDNS, and nothing else of
    /// its packet.
    pub(super) fn packet(&self, id: u16) -> Vec<u8> {
        let kept_flags = Flags::RECURSION_DESIRED | Flags::AUTHENTIC | Flags::CHECKING_DISABLED;
        self.encode(id, self.flags.0 & kept_flags, self.edns.as_ref())
    }

    /// The cache key: the packet for a resolver without the id and with the name in lower case. So
    /// queries with and without EDNS do not share replies.
    pub(super) fn key(&self, zone: u16, transport: Transport) -> Box<[u8]> {
        let mut key = self.packet(zone);
        let name = HEADER..HEADER + self.question.len() - 4;
        // Label lengths are below the letters, so they do not change.
        key[name].make_ascii_lowercase();
        key.push(transport as u8);
        key.into()
    }

    /// An answer with only a code.
    pub(super) fn error_answer(&self, code: u8) -> Vec<u8> {
        let flags = Flags::RESPONSE | self.flags.0 & Flags::RECURSION_DESIRED | u16::from(code);
        let edns = self.edns.as_ref().map(|query_edns| Edns {
            size: OWN_PAYLOAD_BYTES,
            version: 0,
            flags: query_edns.flags & 0x8000,
            options: Vec::new(),
        });
        self.encode(self.id, flags, edns.as_ref())
    }

    fn encode(&self, id: u16, flags: u16, edns: Option<&Edns>) -> Vec<u8> {
        let question = &self.question;
        let options = edns.map_or(0, |edns| edns.options.len());
        let mut packet = Vec::with_capacity(HEADER + question.len() + EMPTY_OPT_BYTES + options);
        for word in [id, flags, 1, 0, 0, edns.is_some().into()] {
            packet.extend(word.to_be_bytes());
        }
        packet.extend(question);
        if let Some(edns) = edns {
            packet.push(0);
            packet.extend(kind::OPT.to_be_bytes());
            packet.extend(edns.size.to_be_bytes());
            packet.extend([0, edns.version]);
            packet.extend(edns.flags.to_be_bytes());
            // The options come from a record's data, whose length has 16 bits.
            packet.extend((options as u16).to_be_bytes());
            packet.extend(&edns.options);
        }
        packet
    }
}

impl Unreadable {
    /// The FORMERR answer; empty without a header.
    pub(super) fn answer(self) -> Vec<u8> {
        let Self::Broken { id, flags } = self else {
            return Vec::new();
        };
        let mut packet = vec![0; HEADER];
        write_word(&mut packet, 0, id);
        let kept_flags = Flags::OPCODE | Flags::RECURSION_DESIRED;
        write_word(
            &mut packet,
            2,
            Flags::RESPONSE | flags.0 & kept_flags | u16::from(code::FORMERR),
        );
        packet
    }
}

/// Options without hop-by-hop ones; none if their lengths are invalid.
fn without_hop_by_hop(mut options: &[u8]) -> Option<Vec<u8>> {
    let mut forwarded = Vec::new();
    while !options.is_empty() {
        let (option, length) = (word(options, 0)?, word(options, 2)?);
        let (encoded_option, rest) = options.split_at_checked(4 + usize::from(length))?;
        if !HOP_BY_HOP_OPTIONS.contains(&option) {
            forwarded.extend(encoded_option);
        }
        options = rest;
    }
    Some(forwarded)
}

#[cfg(test)]
mod tests;
