//! A resolver's reply: validation, lifetime in the cache, and delivery to a client.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use hickory_proto::rr::Name;
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

use super::query::Query;
use crate::dns::packet::{
    Flags, HEADER, Layout, Record, Section, code, kind, set_truncated, word, write_word,
};

/// The maximum lifetime of a good reply.
const MAX_TTL: Duration = Duration::from_hours(24);
/// The maximum lifetime of a negative reply (RFC 2308, section 5).
const MAX_NEGATIVE_TTL: Duration = Duration::from_hours(3);
/// The lifetime of a resolver's failure (RFC 9520 requires one second).
const FAILURE_TTL: Duration = Duration::from_secs(1);
/// Not cached.
const DO_NOT_CACHE: Duration = Duration::ZERO;

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
    pub(super) fn classify(query: &Query, id: u16, packet: &[u8]) -> ReplyKind {
        let Some(flags) = Flags::of(packet) else {
            return ReplyKind::Unrelated;
        };
        if word(packet, 0) != Some(id) || !flags.has(Flags::RESPONSE) {
            return ReplyKind::Unrelated;
        }
        let Some(layout) = Layout::read(packet) else {
            return ReplyKind::Invalid;
        };
        // A resolver that fails or rejects may omit the question.
        let rejects = !matches!(flags.code(), code::NOERROR | code::NXDOMAIN);
        let matches_question = match layout.questions {
            0 => rejects,
            _ => packet[HEADER..layout.body].eq_ignore_ascii_case(query.question()),
        };
        if !matches_question {
            return ReplyKind::Unrelated;
        }
        if flags.has(Flags::OPCODE) || !layout.is_complete && !flags.has(Flags::TRUNCATED) {
            return ReplyKind::Invalid;
        }
        let mut bytes = packet[..layout.end()].to_vec();
        if !layout.is_complete {
            write_counts(&mut bytes, &layout.records);
        }
        ReplyKind::Reply(Self { bytes, layout })
    }

    /// Whether it repeats the question of `query` byte for byte. A failure without a question, which
    /// has no records that could be forged, does too.
    pub(super) fn repeats_case(&self, query: &Query) -> bool {
        self.layout.questions == 0 || &self.bytes[HEADER..self.layout.body] == query.question()
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
    pub(super) fn lifetime(&self, query_kind: u16) -> Duration {
        let extended = self
            .layout
            .opt()
            .is_some_and(|opt| self.bytes[opt.ttl_at()][0] != 0);
        let is_truncated = Flags::of(&self.bytes).is_none_or(|flags| flags.has(Flags::TRUNCATED));
        if extended || is_truncated {
            return DO_NOT_CACHE;
        }
        match self.code() {
            code::NOERROR if self.has_answer(query_kind) => self.min_ttl().min(MAX_TTL),
            code::NOERROR | code::NXDOMAIN => self.negative_ttl(),
            code::SERVFAIL | code::REFUSED => FAILURE_TTL,
            _ => DO_NOT_CACHE,
        }
    }

    fn has_answer(&self, query_kind: u16) -> bool {
        let mut answers = self.records_in(Section::Answer);
        answers.any(|record| record.kind == query_kind || query_kind == kind::ANY)
    }

    fn records_in(&self, section: Section) -> impl Iterator<Item = &Record> {
        let records = self.layout.records.iter();
        records.filter(move |record| record.section == section)
    }

    /// The shortest TTL of its records.
    fn min_ttl(&self) -> Duration {
        let records = self.layout.records.iter();
        let lifetimes = records.filter(|record| !record.is_edns());
        let shortest = lifetimes.map(|record| record.ttl).min();
        Duration::from_secs(shortest.unwrap_or(0).into())
    }

    /// The lifetime of a negative reply, from its SOA record (RFC 2308, section 5); zero without
    /// one.
    fn negative_ttl(&self) -> Duration {
        let Some(soa) = self
            .records_in(Section::Authority)
            .find(|record| record.kind == kind::SOA)
        else {
            return DO_NOT_CACHE;
        };
        // The minimum is its last number.
        let data = &self.bytes[soa.data()];
        let Some([a, b, c, d]) = data.last_chunk() else {
            return DO_NOT_CACHE;
        };
        let minimum = Duration::from_secs(u32::from_be_bytes([*a, *b, *c, *d]).into());
        self.min_ttl().min(minimum).min(MAX_NEGATIVE_TTL)
    }

    /// The reply for a client: with the query's id and case of the name, TTLs reduced by the age,
    /// and cut to the size limit. `remaining`: the remaining lifetime in the cache, which bounds the
    /// TTLs.
    pub(super) fn encode_for(
        &self,
        query: &Query,
        age: Duration,
        remaining: Duration,
        size_limit: SizeLimit,
    ) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        write_word(&mut bytes, 0, query.id());
        // The question is equal except for its case, or missing.
        if self.layout.questions == 1 {
            bytes[HEADER..self.layout.body].copy_from_slice(query.question());
            for record in &self.layout.records {
                restore_case(&mut bytes[record.span.start..record.fixed], query.question());
            }
        }
        let passed = age.as_secs() as u32;
        if passed > 0 {
            let remaining = remaining.as_secs() as u32;
            for record in self.layout.records.iter().filter(|record| !record.is_edns()) {
                let ttl = record.ttl.saturating_sub(passed).min(remaining);
                bytes[record.ttl_at()].copy_from_slice(&ttl.to_be_bytes());
            }
        }
        if bytes.len() > size_limit.bytes {
            bytes = self.truncated(&bytes, size_limit);
        }
        if !size_limit.set_truncate_bit {
            let flags = word(&bytes, 2).unwrap_or_default();
            write_word(&mut bytes, 2, flags & !Flags::TRUNCATED);
        }
        bytes
    }

    /// Keeps the records that fit, from the front, because name pointers only point there. EDNS
    /// always fits. Without room for answers or authority the truncation bit is set; additional
    /// records are omitted silently (RFC 2181, section 9). A client that gets the bit
    /// (`set_truncate_bit`) gets whole sets of records only; one that does not gets every record
    /// that fits, because an empty answer would mean that there are no records.
    fn truncated(&self, bytes: &[u8], size_limit: SizeLimit) -> Vec<u8> {
        let records = &self.layout.records;
        let opt = records.iter().position(Record::is_edns);
        let opt_bytes = opt.map_or(Cow::Borrowed(&[][..]), |opt| {
            let opt_record = &bytes[records[opt].span.clone()];
            if self.layout.body + opt_record.len() <= size_limit.bytes {
                Cow::Borrowed(opt_record)
            } else {
                without_options(opt_record)
            }
        });
        let fits = |kept_count: usize| {
            let end = kept_count
                .checked_sub(1)
                .map_or(self.layout.body, |last| records[last].span.end);
            let opt_length = if opt.is_some_and(|opt| opt >= kept_count) {
                opt_bytes.len()
            } else {
                0
            };
            end + opt_length <= size_limit.bytes
        };
        let mut kept_count = (0..records.len())
            .rev()
            .find(|kept_count| fits(*kept_count))
            .unwrap_or(0);
        let is_required = |record: &Record| record.section != Section::Additional;
        let drops_required = records[kept_count..].iter().any(is_required);
        if size_limit.set_truncate_bit {
            kept_count = self.whole_rrsets(kept_count);
        }
        let end = kept_count
            .checked_sub(1)
            .map_or(self.layout.body, |last| records[last].span.end);
        let mut packet = bytes[..end].to_vec();
        let mut kept_records = records[..kept_count].to_vec();
        if let Some(opt) = opt.filter(|opt| *opt >= kept_count) {
            packet.extend_from_slice(&opt_bytes);
            kept_records.push(records[opt].clone());
        }
        write_counts(&mut packet, &kept_records);
        if drops_required {
            set_truncated(&mut packet);
        }
        packet
    }

    /// How many of the first `kept_count` records can stay without splitting an `RRset`; its records may
    /// be apart.
    fn whole_rrsets(&self, kept_count: usize) -> usize {
        let sets: Vec<_> = self
            .layout
            .records
            .iter()
            .map(|record| self.rrset(record))
            .collect();
        let (mut kept_count, mut checked) = (kept_count, sets.len());
        let mut split_sets = HashSet::new();
        while kept_count < checked {
            split_sets.extend(&sets[kept_count..checked]);
            checked = kept_count;
            kept_count = sets[..kept_count]
                .iter()
                .position(|set| split_sets.contains(set))
                .unwrap_or(kept_count);
        }
        kept_count
    }

    /// The `RRset` of a record: section, name, type and class.
    fn rrset(&self, record: &Record) -> (Section, Option<Name>, u16, u16) {
        let at = u16::try_from(record.span.start);
        let name = at
            .ok()
            .and_then(|at| Name::read(&mut BinDecoder::new(&self.bytes).clone(at)).ok());
        (record.section, name, record.kind, record.class)
    }
}

/// Writes the client's case of the question's name into a record's owner that is the same name, in
/// full or up to a pointer into the question: the resolver may have copied it from a query with
/// another case.
fn restore_case(owner: &mut [u8], question: &[u8]) {
    let name = &question[..question.len() - 4];
    let labels = owner.len().saturating_sub(2);
    let pointer = 0xc000 | (HEADER + labels) as u16;
    let copied = if owner.len() == name.len() {
        owner.len()
    } else if labels < name.len() && owner[labels..] == pointer.to_be_bytes() {
        labels
    } else {
        return;
    };
    if owner[..copied].eq_ignore_ascii_case(&name[..copied]) {
        owner[..copied].copy_from_slice(&name[..copied]);
    }
}

/// Writes the record counts into a header.
fn write_counts(bytes: &mut [u8], records: &[Record]) {
    for (section, at) in [
        (Section::Answer, 6),
        (Section::Authority, 8),
        (Section::Additional, 10),
    ] {
        let count = records.iter().filter(|record| record.section == section).count();
        // At most the original count, which has 16 bits.
        write_word(bytes, at, count as u16);
    }
}

/// An EDNS record without options.
fn without_options(opt: &[u8]) -> Cow<'_, [u8]> {
    let mut empty_opt = opt.iter().copied().take(9).collect::<Vec<_>>();
    empty_opt.extend([0, 0]);
    Cow::Owned(empty_opt)
}

#[cfg(test)]
mod tests;
