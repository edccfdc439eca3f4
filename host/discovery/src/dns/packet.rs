//! Offsets in a DNS message, found without parsing its records: replies are passed on unchanged,
//! with record types that are unknown here.
//!
//! Parsing never allocates for counts that a header only announces.

use std::ops::Range;

/// Bytes of a message's header.
pub(super) const HEADER: usize = 12;
/// The fields after a record's name: type, class, TTL, length of its data.
const FIXED_FIELDS_BYTES: usize = 10;
/// Including the root label.
const MAX_NAME_BYTES: usize = 255;

/// Record types used here.
pub(in crate::dns) mod kind {
    pub(in crate::dns) const SOA: u16 = 6;
    pub(in crate::dns) const OPT: u16 = 41;
    pub(in crate::dns) const ANY: u16 = 255;
}

/// Response codes used here.
pub(in crate::dns) mod code {
    pub(in crate::dns) const NOERROR: u8 = 0;
    pub(in crate::dns) const FORMERR: u8 = 1;
    pub(in crate::dns) const SERVFAIL: u8 = 2;
    pub(in crate::dns) const NXDOMAIN: u8 = 3;
    pub(in crate::dns) const REFUSED: u8 = 5;
}

/// The section of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Section {
    Answer,
    Authority,
    Additional,
}

/// The offsets of a record.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) section: Section,
    /// From its name to the end of its data.
    pub(super) span: Range<usize>,
    /// The offset of its type; class, TTL and length follow.
    pub(super) fixed: usize,
    pub(super) kind: u16,
    pub(super) class: u16,
    /// In seconds; 0 where the wire has a negative number (RFC 2181, section 8).
    pub(super) ttl: u32,
}

impl Record {
    /// The range of its TTL.
    pub(super) fn ttl_at(&self) -> Range<usize> {
        self.fixed + 4..self.fixed + 8
    }

    /// Whether it is the EDNS record, which is owned by the root (RFC 6891, section 6.1.2) and has
    /// no TTL.
    pub(super) fn is_edns(&self) -> bool {
        self.section == Section::Additional && self.kind == kind::OPT && self.fixed == self.span.start + 1
    }

    /// Its data.
    pub(super) fn data(&self) -> Range<usize> {
        self.fixed + FIXED_FIELDS_BYTES..self.span.end
    }
}

/// The offsets of a message.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Questions; 0 or 1.
    pub(super) questions: u16,
    /// The offset of the records, after the question.
    pub(super) body: usize,
    pub(super) records: Vec<Record>,
    /// Whether the message has all records that the header announces.
    pub(super) is_complete: bool,
}

impl Layout {
    /// Parses a message with at most one question. None if the header is incomplete or the question
    /// invalid; records are listed up to the first invalid one.
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let questions = word(message, 4)?;
        let mut body = HEADER;
        message.get(..HEADER)?;
        match questions {
            0 => {}
            1 => {
                body = skip_name(message, HEADER)? + 4;
                message.get(..body)?;
            }
            _ => return None,
        }
        let (mut records, mut at, mut is_complete) = (Vec::new(), body, true);
        'all: for (section, count_at) in [
            (Section::Answer, 6),
            (Section::Authority, 8),
            (Section::Additional, 10),
        ] {
            for _ in 0..word(message, count_at)? {
                let Some(record) = record(message, at, section) else {
                    is_complete = false;
                    break 'all;
                };
                at = record.span.end;
                records.push(record);
            }
        }
        Some(Self {
            questions,
            body,
            records,
            is_complete,
        })
    }

    /// The offset after the last record.
    pub(super) fn end(&self) -> usize {
        self.records.last().map_or(self.body, |record| record.span.end)
    }

    /// The EDNS record (RFC 6891).
    pub(super) fn opt(&self) -> Option<&Record> {
        self.records.iter().find(|record| record.is_edns())
    }
}

fn record(message: &[u8], at: usize, section: Section) -> Option<Record> {
    let fixed = skip_name(message, at)?;
    let length = usize::from(word(message, fixed + 8)?);
    let span = at..fixed + FIXED_FIELDS_BYTES + length;
    message.get(span.clone())?;
    let ttl = u32::from(word(message, fixed + 4)?) << 16 | u32::from(word(message, fixed + 6)?);
    Some(Record {
        section,
        span,
        fixed,
        kind: word(message, fixed)?,
        class: word(message, fixed + 2)?,
        ttl: if ttl > i32::MAX as u32 { 0 } else { ttl },
    })
}

/// The offset after the name at `at`. Pointers are not followed.
fn skip_name(message: &[u8], at: usize) -> Option<usize> {
    let mut next = at;
    loop {
        match *message.get(next)? {
            0 => return Some(next + 1),
            length @ 1..=63 => next += 1 + usize::from(length),
            0xc0.. => {
                message.get(next + 1)?;
                return Some(next + 2);
            }
            _ => return None,
        }
        if next - at >= MAX_NAME_BYTES {
            return None;
        }
    }
}

/// Whether a question's name contains a pointer, which has no valid target before it.
pub(super) fn has_pointer(question: &[u8]) -> bool {
    let mut at = 0;
    while let Some(length @ 1..) = question.get(at) {
        if *length >= 0xc0 {
            return true;
        }
        at += 1 + usize::from(*length);
    }
    false
}

/// The 16 bits at an offset.
pub(super) fn word(message: &[u8], at: usize) -> Option<u16> {
    let bytes = message.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

/// Writes 16 bits at an offset; does nothing beyond the end.
pub(super) fn write_word(message: &mut [u8], at: usize, value: u16) {
    if let Some(bytes) = message.get_mut(at..at + 2) {
        bytes.copy_from_slice(&value.to_be_bytes());
    }
}

/// A message without its records except EDNS, with the TC flag; none if it is invalid.
pub(super) fn emptied(message: &[u8]) -> Option<Vec<u8>> {
    let layout = Layout::read(message)?;
    let mut emptied = message[..layout.body].to_vec();
    emptied[6..HEADER].fill(0);
    if let Some(opt) = layout.opt() {
        emptied.extend_from_slice(&message[opt.span.clone()]);
        write_word(&mut emptied, 10, 1);
    }
    set_truncated(&mut emptied);
    Some(emptied)
}

/// Sets the TC flag.
pub(super) fn set_truncated(message: &mut [u8]) {
    let flags = word(message, 2).unwrap_or_default();
    write_word(message, 2, flags | Flags::TRUNCATED);
}

/// The header's flags and response code, in its third and fourth byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flags(pub(super) u16);

impl Flags {
    pub(super) const RESPONSE: u16 = 0x8000;
    pub(super) const OPCODE: u16 = 0x7800;
    pub(super) const TRUNCATED: u16 = 0x0200;
    pub(super) const RECURSION_DESIRED: u16 = 0x0100;
    pub(super) const AUTHENTIC: u16 = 0x0020;
    pub(super) const CHECKING_DISABLED: u16 = 0x0010;

    pub(super) fn of(message: &[u8]) -> Option<Self> {
        word(message, 2).map(Self)
    }

    pub(super) fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }

    pub(super) fn code(self) -> u8 {
        (self.0 & 0xf) as u8
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Tests fail by panicking.

    use super::*;

    fn message(counts: [u16; 4], body: &[u8]) -> Vec<u8> {
        let mut message = vec![0, 7, 0x81, 0x80];
        message.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
        message.extend(body);
        message
    }

    const QUESTION: &[u8] = b"\x03web\x00\x00\x01\x00\x01";
    const RECORD: &[u8] = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x1e\x00\x04\xc0\x00\x02\x01";

    #[test]
    fn layout_finds_all_records() {
        let body = [
            QUESTION,
            RECORD,
            RECORD,
            b"\x00\x00\x29\x04\xd0\x80\x00\x00\x00\x00\x00rubbish",
        ]
        .concat();
        let message = message([1, 1, 1, 1], &body);
        let layout = Layout::read(&message).unwrap();
        assert!(layout.is_complete);
        let sections: Vec<_> = layout.records.iter().map(|record| record.section).collect();
        assert_eq!(
            sections,
            [Section::Answer, Section::Authority, Section::Additional]
        );
        let first = &layout.records[0];
        assert_eq!((first.kind, first.class, first.ttl), (1, 1, 30));
        assert_eq!(message[first.data()], [192, 0, 2, 1]);
        assert_eq!(message[first.ttl_at()], [0, 0, 0, 30]);
        assert_eq!(layout.opt().unwrap().class, 1232);
        // The rubbish at the end is ignored; a TTL with its highest bit set counts as 0.
        assert_eq!(layout.end(), message.len() - 7);
        assert_eq!(layout.opt().unwrap().ttl, 0);
    }

    #[test]
    fn opt_is_an_additional_record_of_the_root() {
        let opt = b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00";
        let under_a_name = b"\x01a\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00";
        for (counts, opt, edns) in [
            ([1, 0, 0, 1], &opt[..], true),
            ([1, 0, 0, 1], &under_a_name[..], false),
            ([1, 1, 0, 0], &opt[..], false),
            ([1, 0, 1, 0], &opt[..], false),
        ] {
            let layout = Layout::read(&message(counts, &[QUESTION, opt].concat())).unwrap();
            assert!(layout.is_complete);
            assert_eq!(layout.opt().is_some(), edns, "{counts:?} {opt:?}");
        }
    }

    #[test]
    fn emptied_message_has_the_tc_flag() {
        let opt = b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00";
        let complete = message([1, 2, 0, 1], &[QUESTION, RECORD, RECORD, opt].concat());
        let mut expected = message([1, 0, 0, 1], &[QUESTION, opt].concat());
        expected[2] |= 0x02;
        assert_eq!(emptied(&complete).unwrap(), expected);
        // A message that is cut within its records can be emptied; one that is cut within its
        // question cannot.
        assert!(emptied(&complete[..40]).is_some());
        assert!(emptied(&complete[..15]).is_none());
    }

    #[test]
    fn layout_reports_missing_records() {
        let body = [QUESTION, RECORD].concat();
        // (counts, body, whether all records are present or none if invalid, records)
        for (counts, body, is_complete, records) in [
            ([1, 1, 0, 0], &body[..], Some(true), 1),
            ([1, 2, 0, 0], &body[..], Some(false), 1),
            ([1, 65535, 65535, 65535], &body[..], Some(false), 1),
            ([1, 1, 0, 0], &body[..body.len() - 1], Some(false), 0),
            ([0, 0, 0, 0], &[], Some(true), 0),
            ([1, 0, 0, 0], &QUESTION[..6], None, 0),
            ([2, 0, 0, 0], &body[..], None, 0),
            // A label of an undefined type, a pointer without its second byte, a name that does not
            // end.
            ([1, 0, 0, 0], b"\x40web\x00\x00\x01\x00\x01", None, 0),
            ([1, 0, 0, 0], b"\xc0", None, 0),
            ([1, 0, 0, 0], &[1; 400], None, 0),
        ] {
            let layout = Layout::read(&message(counts, body));
            assert_eq!(
                layout.as_ref().map(|it| it.is_complete),
                is_complete,
                "{counts:?} {body:?}"
            );
            assert_eq!(
                layout.map_or(0, |it| it.records.len()),
                records,
                "{counts:?} {body:?}"
            );
        }
        for short in 0..HEADER {
            assert!(Layout::read(&message([0; 4], &[])[..short]).is_none());
        }
    }
}
