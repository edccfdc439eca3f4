//! How long an HTTP cache may keep an answer (RFC 8484, section 5.1).

use http::HeaderValue;

use crate::dns::packet::{Flags, Layout, Section, code, kind};

/// The shortest TTL of the answer section, or the negative TTL of the SOA record (RFC 2308); other
/// answers are not kept.
pub(super) fn cache_control(answer: &[u8]) -> HeaderValue {
    let seconds =
        max_age(answer).and_then(|seconds| HeaderValue::try_from(format!("max-age={seconds}")).ok());
    seconds.unwrap_or_else(|| HeaderValue::from_static("no-store"))
}

fn max_age(answer: &[u8]) -> Option<u32> {
    let (layout, flags) = (Layout::read(answer)?, Flags::of(answer)?);
    if flags.has(Flags::TRUNCATED) || !matches!(flags.code(), code::NOERROR | code::NXDOMAIN) {
        return None;
    }
    let of = |section| {
        layout
            .records
            .iter()
            .filter(move |record| record.section == section)
    };
    let soa = || {
        let soa = of(Section::Authority).find(|record| record.kind == kind::SOA)?;
        // The minimum is its last number.
        let minimum = u32::from_be_bytes(*answer[soa.data()].last_chunk()?);
        Some(soa.ttl.min(minimum))
    };
    of(Section::Answer).map(|record| record.ttl).min().or_else(soa)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Tests fail by panicking.

    use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
    use hickory_proto::rr::rdata::{A, SOA};
    use hickory_proto::rr::{Name, RData, Record, RecordType};

    use super::*;

    fn answer(code: ResponseCode, ttls: &[u32], soa: Option<(u32, u32)>) -> Vec<u8> {
        let name = Name::from_ascii("web.mesos.").unwrap();
        let mut answer = Message::new(7, MessageType::Response, OpCode::Query);
        answer.metadata.response_code = code;
        answer.add_query(Query::query(name.clone(), RecordType::A));
        for ttl in ttls {
            answer.add_answer(Record::from_rdata(
                name.clone(),
                *ttl,
                RData::A(A([10, 0, 0, 1].into())),
            ));
        }
        answer.authorities.extend(soa.map(|(ttl, minimum)| {
            let soa = SOA::new(name.clone(), name.clone(), 1, 2, 3, 4, minimum);
            Record::from_rdata(name.clone(), ttl, RData::SOA(soa))
        }));
        answer.to_vec().unwrap()
    }

    #[test]
    fn cache_control_has_the_lifetime_of_the_answer() {
        use ResponseCode::{NXDomain, NoError, Refused, ServFail};
        for (code, ttls, soa, expected) in [
            (NoError, &[60, 30, 90][..], None, "max-age=30"),
            (NoError, &[0], None, "max-age=0"),
            (NoError, &[60], Some((5, 5)), "max-age=60"),
            (NoError, &[], Some((60, 20)), "max-age=20"),
            (NXDomain, &[], Some((10, 20)), "max-age=10"),
            (NXDomain, &[], None, "no-store"),
            (ServFail, &[], None, "no-store"),
            (Refused, &[60], None, "no-store"),
        ] {
            let answer = answer(code, ttls, soa);
            assert_eq!(cache_control(&answer), expected, "{code} {ttls:?} {soa:?}");
        }
        let mut cut = answer(NoError, &[60], None);
        cut[2] |= 2;
        assert_eq!(cache_control(&cut), "no-store");
        assert_eq!(cache_control(b"no message"), "no-store");
    }
}
