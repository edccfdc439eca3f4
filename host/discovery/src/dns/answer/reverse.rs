//! From addresses back to names. With reverse lookups on, all of `in-addr.arpa` and `ip6.arpa` is answered for, as ever.

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::PTR;
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::{Answer, Terms};
use crate::labels::wire_name;
use crate::zone::Zone;

/// The zones, and the length of a whole address in them.
const ZONES: [&str; 2] = ["in-addr.arpa.", "ip6.arpa."];

/// The answer to a question in a reverse zone; none where the name is in none, or they are not ours.
pub(super) fn answer(zone: &Zone, terms: &Terms, key: &str, name: &Name, kind: RecordType) -> Option<Answer> {
    let apex = ZONES.into_iter().filter(|_| terms.reverse).find(|apex| {
        let above = key.strip_suffix(apex);
        above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
    })?;
    let mut answer = Answer::of(Vec::new());
    if let Some(soa) = soa(zone, terms, apex) {
        if key == apex && kind == RecordType::SOA {
            answer.answers.push(soa);
            return Some(answer);
        }
        answer.authority.push(soa);
    }
    // Names between the apex and an address exist, as far as anybody can tell.
    let whole = name
        .parse_arpa_name()
        .ok()
        .filter(|net| net.prefix_len() == net.max_prefix_len());
    let Some(net) = whole else { return Some(answer) };
    match zone.name_of(net.addr()).and_then(wire_name) {
        Some(found) if matches!(kind, RecordType::PTR | RecordType::ANY) => {
            let ttl = zone.made_from().rules.ttl;
            let pointer = Record::from_rdata(name.clone(), ttl, RData::PTR(PTR(found)));
            Some(Answer::of(vec![pointer]))
        }
        Some(_) => Some(answer),
        None => {
            answer.code = ResponseCode::NXDomain;
            Some(answer)
        }
    }
}

/// The reverse zone's SOA record: the domain's under another name.
fn soa(zone: &Zone, terms: &Terms, apex: &str) -> Option<Record> {
    let mut soa = terms.soa(zone);
    soa.name = wire_name(apex)?;
    Some(soa)
}
