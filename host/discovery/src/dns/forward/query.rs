//! A client's query: what of it is sent on, what makes two of them the same, and answers that need no resolver.

use super::Transport;
use crate::dns::packet::{Flags, HEADER, Layout, code, kind, put_word, word};

/// What a reply over UDP may have when nobody says more (RFC 1035), and the most that is believed of anybody: larger ones
/// would be a gift to those who send queries in other people's names.
const UDP_SIZES: (u16, u16) = (512, 4096);
/// The size that answers of our own tell.
const OWN_SIZE: u16 = 1232;
/// An EDNS record without options.
const BARE_OPT: usize = 11;

/// EDNS options that are between two neighbours and never passed on: cookies (RFC 7873), keepalive (RFC 7828), padding
/// (RFC 7830).
const NEIGHBOURLY: [u16; 3] = [10, 11, 12];

/// EDNS as the client has it, without what is between it and us.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edns {
    size: u16,
    version: u8,
    flags: u16,
    options: Vec<u8>,
}

/// A query that can be sent on.
#[derive(Clone, Debug)]
pub(super) struct Query {
    id: u16,
    flags: Flags,
    /// Name, type and class as they lie in the packet, without pointers.
    question: Vec<u8>,
    edns: Option<Edns>,
}

/// A packet that is no query, and how much of one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// Not even a header.
    Nothing,
    /// A header with these flags, and something behind it that makes no sense.
    Broken { id: u16, flags: Flags },
}

impl Query {
    /// Reads a packet, whatever is in it.
    pub(super) fn read(packet: &[u8]) -> Result<Self, Unreadable> {
        let (Some(id), Some(flags)) = (word(packet, 0), Flags::of(packet)) else {
            return Err(Unreadable::Nothing);
        };
        if packet.len() < HEADER {
            return Err(Unreadable::Nothing);
        }
        let broken = Unreadable::Broken { id, flags };
        if packet.len() > u16::MAX.into() {
            return Err(broken);
        }
        let layout = Layout::read(packet).ok_or(broken)?;
        if layout.questions != 1 || !layout.whole {
            return Err(broken);
        }
        let question = packet[HEADER..layout.body].to_vec();
        if has_pointer(&question) {
            return Err(broken);
        }
        // EDNS stands where it belongs, once.
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
                    options: for_resolvers(&packet[opt.data()]).ok_or(broken)?,
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

    /// Asks a resolver whether it is there. The root's name servers are known to everyone, and a refusal is an answer too.
    pub(super) fn probe() -> Self {
        Self {
            id: 0,
            flags: Flags(Flags::RECURSION_DESIRED),
            question: vec![0, 0, 2, 0, 1],
            edns: None,
        }
    }

    /// The client's id.
    pub(super) fn id(&self) -> u16 {
        self.id
    }

    /// Name, type and class as the client wrote them.
    pub(super) fn question(&self) -> &[u8] {
        &self.question
    }

    /// The type asked for.
    pub(super) fn kind(&self) -> u16 {
        word(&self.question, self.question.len() - 4).unwrap_or_default()
    }

    /// Whether a reply to this is a reply to everyone who asks the same. What options say may be about one client, such as
    /// the network it is in.
    pub(super) fn is_common(&self) -> bool {
        self.edns.as_ref().is_none_or(|edns| edns.options.is_empty())
    }

    /// The bytes that its reply may have.
    pub(super) fn limit(&self, over: Transport) -> usize {
        let size = self.edns.as_ref().map_or(0, |edns| edns.size);
        usize::from(match over {
            Transport::Udp => size.clamp(UDP_SIZES.0, UDP_SIZES.1),
            Transport::Tcp => u16::MAX,
        })
    }

    /// The bytes that a resolver may send over UDP: it is told what the client told.
    pub(super) fn expected(&self) -> usize {
        let size = self.edns.as_ref().map_or(0, |edns| edns.size);
        usize::from(size.max(UDP_SIZES.1))
    }

    /// What a resolver is sent: recursion desired, checking disabled, authentic data wanted and EDNS as the client has
    /// them, and nothing else of the packet.
    pub(super) fn packet(&self, id: u16) -> Vec<u8> {
        let kept = Flags::RECURSION_DESIRED | Flags::AUTHENTIC | Flags::CHECKING_DISABLED;
        self.written(id, self.flags.0 & kept, self.edns.as_ref())
    }

    /// What makes two queries the same: all that a resolver is sent but the id, without regard to the name's case. So
    /// nobody is given a reply to another question, and what was asked without EDNS is not answered with it.
    pub(super) fn key(&self, zone: u16, over: Transport) -> Box<[u8]> {
        let mut key = self.packet(zone);
        let name = HEADER..HEADER + self.question.len() - 4;
        // Lengths of labels are below the letters.
        key[name].make_ascii_lowercase();
        key.push(over as u8);
        key.into()
    }

    /// An answer with a code and nothing else.
    pub(super) fn coded(&self, code: u8) -> Vec<u8> {
        let flags = Flags::RESPONSE | self.flags.0 & Flags::RECURSION_DESIRED | u16::from(code);
        let edns = self.edns.as_ref().map(|asked| Edns {
            size: OWN_SIZE,
            version: 0,
            flags: asked.flags & 0x8000,
            options: Vec::new(),
        });
        self.written(self.id, flags, edns.as_ref())
    }

    fn written(&self, id: u16, flags: u16, edns: Option<&Edns>) -> Vec<u8> {
        let question = &self.question;
        let options = edns.map_or(0, |edns| edns.options.len());
        let mut packet = Vec::with_capacity(HEADER + question.len() + BARE_OPT + options);
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
            // They came in a record's data, whose length has 16 bits.
            packet.extend((options as u16).to_be_bytes());
            packet.extend(&edns.options);
        }
        packet
    }
}

impl Unreadable {
    /// What is answered: nothing to what has no id.
    pub(super) fn answer(self) -> Vec<u8> {
        let Self::Broken { id, flags } = self else {
            return Vec::new();
        };
        let mut packet = vec![0; HEADER];
        put_word(&mut packet, 0, id);
        let kept = Flags::OPCODE | Flags::RECURSION_DESIRED;
        put_word(
            &mut packet,
            2,
            Flags::RESPONSE | flags.0 & kept | u16::from(code::FORMERR),
        );
        packet
    }
}

/// Whether a question's name has a pointer in it: there is nothing before it that it could point to.
fn has_pointer(question: &[u8]) -> bool {
    let mut at = 0;
    while let Some(length @ 1..) = question.get(at) {
        if *length >= 0xc0 {
            return true;
        }
        at += 1 + usize::from(*length);
    }
    false
}

/// Options without those that are between neighbours. None when they are not what their lengths say.
fn for_resolvers(mut options: &[u8]) -> Option<Vec<u8>> {
    let mut kept = Vec::new();
    while !options.is_empty() {
        let (option, length) = (word(options, 0)?, word(options, 2)?);
        let (this, rest) = options.split_at_checked(4 + usize::from(length))?;
        if !NEIGHBOURLY.contains(&option) {
            kept.extend(this);
        }
        options = rest;
    }
    Some(kept)
}

#[cfg(test)]
mod tests;
