//! A resolver's reply: validation, lifetime in the cache, and delivery to a client.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use hickory_proto::rr::Name;
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

use super::query::Query;
use crate::dns::packet::{Flags, HEADER, Layout, Record, Section, code, kind, mark_cut, put_word, word};

/// The maximum lifetime of a good reply.
const MAX_TTL: Duration = Duration::from_hours(24);
/// The maximum lifetime of a negative reply (RFC 2308, section 5).
const MAX_NEGATIVE_TTL: Duration = Duration::from_hours(3);
/// The lifetime of a resolver's failure (RFC 9520 requires one second).
const FAILURE: Duration = Duration::from_secs(1);
/// Not cached.
const NONE: Duration = Duration::ZERO;

/// A reply and the offsets in it.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    bytes: Vec<u8>,
    layout: Layout,
}

/// The kind of a packet from a resolver.
#[derive(Debug)]
pub(super) enum ReplyKind {
    /// The reply.
    Reply(Reply),
    /// Another id or question: late or forged. The reply may still come.
    Unrelated,
    /// The reply, but malformed.
    Invalid,
}

/// The client's limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizeLimit {
    /// Bytes, at least 512.
    pub(super) bytes: usize,
    /// Whether a truncated reply has the TC flag.
    pub(super) set_truncate_bit: bool,
}

impl Reply {
    /// Matches a packet with the query that was sent with this id.
    pub(super) fn hear(query: &Query, id: u16, packet: &[u8]) -> ReplyKind {
        let Some(flags) = Flags::of(packet) else {
            return ReplyKind::Unrelated;
        };
        if word(packet, 0) != Some(id) || !flags.has(Flags::RESPONSE) {
            return ReplyKind::Unrelated;
        }
        let Some(layout) = Layout::read(packet) else {
            return ReplyKind::Invalid;
        };
        // A resolver that fails or refuses may omit the question.
        let refuses = !matches!(flags.code(), code::NOERROR | code::NXDOMAIN);
        let asked = match layout.questions {
            0 => refuses,
            _ => packet[HEADER..layout.body].eq_ignore_ascii_case(query.question()),
        };
        if !asked {
            return ReplyKind::Unrelated;
        }
        if flags.has(Flags::OPCODE) || !layout.whole && !flags.has(Flags::TRUNCATED) {
            return ReplyKind::Invalid;
        }
        let mut bytes = packet[..layout.end()].to_vec();
        if !layout.whole {
            count(&mut bytes, &layout.records);
        }
        ReplyKind::Reply(Self { bytes, layout })
    }

    /// Its response code, without the EDNS extension.
    pub(super) fn code(&self) -> u8 {
        Flags::of(&self.bytes).map_or(code::SERVFAIL, Flags::code)
    }

    /// Its memory in bytes.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.layout.records.len() * size_of::<Record>()
    }

    /// How long it may be cached; zero: not at all.
    pub(super) fn lifetime(&self, asked: u16) -> Duration {
        let extended = self
            .layout
            .opt()
            .is_some_and(|opt| self.bytes[opt.ttl_at()][0] != 0);
        let cut = Flags::of(&self.bytes).is_none_or(|flags| flags.has(Flags::TRUNCATED));
        if extended || cut {
            return NONE;
        }
        match self.code() {
            code::NOERROR if self.has_answer(asked) => self.shortest().min(MAX_TTL),
            code::NOERROR | code::NXDOMAIN => self.negative(),
            code::SERVFAIL | code::REFUSED => FAILURE,
            _ => NONE,
        }
    }

    fn has_answer(&self, asked: u16) -> bool {
        let mut answers = self.of(Section::Answer);
        answers.any(|record| record.kind == asked || asked == kind::ANY)
    }

    fn of(&self, section: Section) -> impl Iterator<Item = &Record> {
        let records = self.layout.records.iter();
        records.filter(move |record| record.section == section)
    }

    /// The shortest TTL of its records.
    fn shortest(&self) -> Duration {
        let records = self.layout.records.iter();
        let lifetimes = records.filter(|record| !record.is_edns());
        let shortest = lifetimes.map(|record| record.ttl).min();
        Duration::from_secs(shortest.unwrap_or(0).into())
    }

    /// The lifetime of a negative reply, from its SOA record (RFC 2308, section 5); zero without
    /// one.
    fn negative(&self) -> Duration {
        let Some(soa) = self
            .of(Section::Authority)
            .find(|record| record.kind == kind::SOA)
        else {
            return NONE;
        };
        // The minimum is its last number.
        let data = &self.bytes[soa.data()];
        let Some([a, b, c, d]) = data.last_chunk() else {
            return NONE;
        };
        let minimum = Duration::from_secs(u32::from_be_bytes([*a, *b, *c, *d]).into());
        self.shortest().min(minimum).min(MAX_NEGATIVE_TTL)
    }

    /// The reply for a client: with the query's id and case of the name, TTLs reduced by the age,
    /// and cut to the size limit. `left`: the remaining lifetime in the cache, which bounds the
    /// TTLs.
    pub(super) fn deliver(
        &self,
        query: &Query,
        age: Duration,
        left: Duration,
        size_limit: SizeLimit,
    ) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        put_word(&mut bytes, 0, query.id());
        // The question is equal except for its case, or missing.
        if self.layout.questions == 1 {
            bytes[HEADER..self.layout.body].copy_from_slice(query.question());
        }
        let passed = age.as_secs() as u32;
        if passed > 0 {
            let left = left.as_secs() as u32;
            for record in self.layout.records.iter().filter(|record| !record.is_edns()) {
                let ttl = record.ttl.saturating_sub(passed).min(left);
                bytes[record.ttl_at()].copy_from_slice(&ttl.to_be_bytes());
            }
        }
        if bytes.len() > size_limit.bytes {
            bytes = self.cut(&bytes, size_limit);
        }
        if !size_limit.set_truncate_bit {
            let flags = word(&bytes, 2).unwrap_or_default();
            put_word(&mut bytes, 2, flags & !Flags::TRUNCATED);
        }
        bytes
    }

    /// Keeps the records that fit, from the front, because name pointers only point there. EDNS
    /// always fits. Without room for answers or authority the truncation bit is set; additional
    /// records are omitted silently (RFC 2181, section 9). A client that gets the bit
    /// (`set_truncate_bit`) gets whole sets of records only; one that does not gets every record
    /// that fits, because an empty answer would mean that there are no records.
    fn cut(&self, bytes: &[u8], size_limit: SizeLimit) -> Vec<u8> {
        let records = &self.layout.records;
        let opt = records.iter().position(Record::is_edns);
        let opt_bytes = opt.map_or(Cow::Borrowed(&[][..]), |opt| {
            let whole = &bytes[records[opt].span.clone()];
            if self.layout.body + whole.len() <= size_limit.bytes {
                Cow::Borrowed(whole)
            } else {
                without_options(whole)
            }
        });
        let fits = |kept: usize| {
            let end = kept
                .checked_sub(1)
                .map_or(self.layout.body, |last| records[last].span.end);
            let behind = if opt.is_some_and(|opt| opt >= kept) {
                opt_bytes.len()
            } else {
                0
            };
            end + behind <= size_limit.bytes
        };
        let mut kept = (0..records.len()).rev().find(|kept| fits(*kept)).unwrap_or(0);
        let is_missed = |record: &Record| record.section != Section::Additional;
        let missed = records[kept..].iter().any(is_missed);
        if size_limit.set_truncate_bit {
            kept = self.whole_sets(kept);
        }
        let end = kept
            .checked_sub(1)
            .map_or(self.layout.body, |last| records[last].span.end);
        let mut left = bytes[..end].to_vec();
        let mut listed = records[..kept].to_vec();
        if let Some(opt) = opt.filter(|opt| *opt >= kept) {
            left.extend_from_slice(&opt_bytes);
            listed.push(records[opt].clone());
        }
        count(&mut left, &listed);
        if missed {
            mark_cut(&mut left);
        }
        left
    }

    /// How many of the first `kept` records can stay without splitting an `RRset`; its records may
    /// be apart.
    fn whole_sets(&self, kept: usize) -> usize {
        let sets: Vec<_> = self
            .layout
            .records
            .iter()
            .map(|record| self.set(record))
            .collect();
        let (mut kept, mut known) = (kept, sets.len());
        let mut broken = HashSet::new();
        while kept < known {
            broken.extend(&sets[kept..known]);
            known = kept;
            kept = sets[..kept]
                .iter()
                .position(|set| broken.contains(set))
                .unwrap_or(kept);
        }
        kept
    }

    /// The `RRset` of a record: section, name, type and class.
    fn set(&self, record: &Record) -> (Section, Option<Name>, u16, u16) {
        let at = u16::try_from(record.span.start);
        let name = at
            .ok()
            .and_then(|at| Name::read(&mut BinDecoder::new(&self.bytes).clone(at)).ok());
        (record.section, name, record.kind, record.class)
    }
}

/// Writes the record counts into a header.
fn count(bytes: &mut [u8], records: &[Record]) {
    for (section, at) in [
        (Section::Answer, 6),
        (Section::Authority, 8),
        (Section::Additional, 10),
    ] {
        let count = records.iter().filter(|record| record.section == section).count();
        // At most the original count, which has 16 bits.
        put_word(bytes, at, count as u16);
    }
}

/// An EDNS record without options.
fn without_options(opt: &[u8]) -> Cow<'_, [u8]> {
    let mut bare = opt.iter().copied().take(9).collect::<Vec<_>>();
    bare.extend([0, 0]);
    Cow::Owned(bare)
}

#[cfg(test)]
mod tests;
