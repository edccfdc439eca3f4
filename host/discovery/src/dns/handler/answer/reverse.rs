//! Reverse lookups. If they are enabled, all of `in-addr.arpa` and `ip6.arpa` is answered
//! authoritatively, as in mesos-dns.

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::PTR;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use ipnet::IpNet;

use super::{Answer, ZoneAuthority};
use crate::labels::wire_name;
use crate::zone::Zone;

/// The zones, and the length of a whole address in them.
const ZONES: [&str; 2] = ["in-addr.arpa.", "ip6.arpa."];

/// The reverse zone that a name is in, if they are served.
pub(super) fn apex(zone_authority: &ZoneAuthority, key: &str) -> Option<&'static str> {
    ZONES.into_iter().filter(|_| zone_authority.reverse).find(|apex| {
        let above = key.strip_suffix(apex);
        above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
    })
}

/// The answer to a question in a reverse zone; none where the name is in none, or they are not
/// ours.
pub(super) fn answer(
    zone: &Zone,
    zone_authority: &ZoneAuthority,
    key: &str,
    name: &Name,
    kind: RecordType,
) -> Option<Answer> {
    let apex = apex(zone_authority, key)?;
    let mut answer = Answer::of(Vec::new());
    if key == apex && matches!(kind, RecordType::SOA | RecordType::NS | RecordType::ANY) {
        let mut record = match kind {
            RecordType::NS => zone_authority.ns(),
            _ => zone_authority.soa(zone),
        };
        record.name = name.clone();
        answer.answers.push(record);
        return Some(answer);
    }
    answer.authority.extend(soa(zone, zone_authority, apex));
    // Names between the apex and an address exist, as far as anybody can tell; what is part of no
    // address does not.
    let labels = key.strip_suffix(apex).unwrap_or_default();
    let Some(net) = parsed(apex, labels) else {
        answer.code = ResponseCode::NXDomain;
        return Some(answer);
    };
    if net.prefix_len() < net.max_prefix_len() {
        return Some(answer);
    }
    match zone.name_of(net.addr()).and_then(wire_name) {
        Some(found) if matches!(kind, RecordType::PTR | RecordType::ANY) => {
            let ttl = zone.inputs().zone_config.ttl;
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

/// The address, or the beginning of one, that the labels below an apex are; their last one comes
/// first.
fn parsed(apex: &str, labels: &str) -> Option<IpNet> {
    let labels = labels.split_terminator('.').rev();
    let (mut octets, mut length) = ([0_u8; 16], 0);
    if apex == ZONES[0] {
        for label in labels {
            let octet: u8 = label.parse().ok()?;
            // Only the canonical form of a number: `07` and `+7` match no address.
            (octet.to_string() == label && length < 4).then_some(())?;
            octets[length] = octet;
            length += 1;
        }
        let [a, b, c, d, ..] = octets;
        return IpNet::new([a, b, c, d].into(), 8 * length as u8).ok();
    }
    for label in labels {
        let digit = u8::from_str_radix(label, 16).ok()?;
        (label.len() == 1 && length < 32).then_some(())?;
        octets[length / 2] |= digit << (4 * (1 - length % 2));
        length += 1;
    }
    IpNet::new(octets.into(), 4 * length as u8).ok()
}

/// The reverse zone's SOA record: the domain's under another name.
fn soa(zone: &Zone, zone_authority: &ZoneAuthority, apex: &str) -> Option<Record> {
    let mut soa = zone_authority.soa(zone);
    soa.name = wire_name(apex)?;
    Some(soa)
}
