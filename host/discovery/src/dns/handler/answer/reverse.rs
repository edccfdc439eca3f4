//! Reverse lookups. If they are enabled, all of `in-addr.arpa` and `ip6.arpa` is answered
//! authoritatively, as in mesos-dns.

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::PTR;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use ipnet::IpNet;

use super::{Answer, ZoneAuthority};
use crate::labels::wire_name;
use crate::zone::Zone;

/// The apexes of the reverse zones for IPv4 and IPv6.
const ZONES: [&str; 2] = ["in-addr.arpa.", "ip6.arpa."];

/// The apex of the reverse zone that contains a name, if reverse zones are served.
pub(super) fn apex(zone_authority: &ZoneAuthority, key: &str) -> Option<&'static str> {
    ZONES.into_iter().filter(|_| zone_authority.reverse).find(|apex| {
        let prefix = key.strip_suffix(apex);
        prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('.'))
    })
}

/// Answers a question in a reverse zone; none if no reverse zone contains the name, or reverse zones
/// are not served.
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
    // Every prefix of an address exists as an empty non-terminal, whether or not the zone has an
    // address below it. A name that cannot belong to an address does not exist.
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

/// Parses the labels below an apex, the last one first, as an address or the prefix of one.
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

/// The reverse zone's SOA record: that of the domain with another owner.
fn soa(zone: &Zone, zone_authority: &ZoneAuthority, apex: &str) -> Option<Record> {
    let mut soa = zone_authority.soa(zone);
    soa.name = wire_name(apex)?;
    Some(soa)
}
