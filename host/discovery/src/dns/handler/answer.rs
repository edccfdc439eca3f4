//! Answers a question from the zone: a pure function.

mod reverse;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::{A, AAAA, NS, SOA, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use rand::seq::{IndexedRandom, SliceRandom};

use super::fast_path::AnswerTemplate;
use crate::Settings;
use crate::labels::{wire_name, write_name};
use crate::zone::{Node, Service, Zone, ZoneLookup};

/// Targets with additional addresses; more never fit, as an SRV record has at least 31 bytes and an
/// address 16.
const MAX_ADDITIONAL_TARGETS: usize = 1400;

/// The SOA and NS data of the zone, and options of answers.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a setting")]
pub(in crate::dns) struct ZoneAuthority {
    ttl: u32,
    apex: Name,
    mname: Name,
    mname_text: String,
    rname: Name,
    refresh: i32,
    retry: i32,
    expire: i32,
    /// Whether addresses in the client's own network come first.
    pub(super) subnet_first: bool,
    /// Whether reverse zones are served.
    reverse: bool,
    /// Whether answers have the RA flag.
    pub(super) recursion_available: bool,
    /// Whether truncated answers have the TC flag.
    pub(super) set_truncate_bit: bool,
}

impl ZoneAuthority {
    pub(super) fn new(settings: &Settings) -> Self {
        let seconds = |seconds: u32| i32::try_from(seconds).unwrap_or(i32::MAX);
        let name = |name: &str| wire_name(name).unwrap_or_else(Name::root);
        Self {
            ttl: settings.ttl,
            apex: name(&format!("{}.", settings.domain)),
            mname: name(&settings.soa_mname),
            mname_text: settings.soa_mname.clone(),
            rname: name(&settings.soa_rname),
            refresh: seconds(settings.soa_refresh),
            retry: seconds(settings.soa_retry),
            expire: seconds(settings.soa_expire),
            subnet_first: settings.resolv_subnet_first,
            reverse: settings.reverse_dns_on,
            recursion_available: settings.recurse_on,
            set_truncate_bit: settings.set_truncate_bit,
        }
    }

    /// The same in wire form.
    pub(super) fn template(&self, settings: &Settings) -> AnswerTemplate {
        let mut soa_names = Vec::new();
        for name in [&self.mname_text, &settings.soa_rname] {
            write_name(name, &mut soa_names);
        }
        AnswerTemplate {
            soa_names,
            soa_times: [settings.soa_refresh, settings.soa_retry, settings.soa_expire]
                .map(|seconds| seconds.min(i32::MAX as u32)),
            ttl: self.ttl,
            apex: settings.domain.len() + 2,
            recursion_available: settings.recurse_on,
            set_truncate_bit: settings.set_truncate_bit,
        }
    }

    /// The zone's apex.
    pub(in crate::dns) fn apex(&self) -> &Name {
        &self.apex
    }

    /// The zone's name server.
    pub(super) fn ns(&self) -> Record {
        Record::from_rdata(self.apex.clone(), self.ttl, RData::NS(NS(self.mname.clone())))
    }

    /// The zone's SOA record.
    pub(super) fn soa(&self, zone: &Zone) -> Record {
        self.soa_of(zone.serial())
    }

    /// The zone's SOA record with another serial.
    pub(in crate::dns) fn soa_of(&self, serial: u32) -> Record {
        let (mname, rname) = (self.mname.clone(), self.rname.clone());
        let soa = SOA::new(
            mname,
            rname,
            serial,
            self.refresh,
            self.retry,
            self.expire,
            self.ttl,
        );
        Record::from_rdata(self.apex.clone(), self.ttl, RData::SOA(soa))
    }
}

/// The sections of an answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: ResponseCode,
    pub(super) authoritative: bool,
    pub(super) answers: Vec<Record>,
    pub(super) authority: Vec<Record>,
    pub(super) additional: Vec<Record>,
}

impl Answer {
    pub(super) fn rejection(code: ResponseCode) -> Self {
        let none = Vec::new;
        Self {
            code,
            authoritative: false,
            answers: none(),
            authority: none(),
            additional: none(),
        }
    }

    fn of(answers: Vec<Record>) -> Self {
        Self {
            authoritative: true,
            answers,
            ..Self::rejection(ResponseCode::NoError)
        }
    }
}

/// Whether a name is in the zone or the reverse zones, so that [`answer`] has an answer.
pub(super) fn is_answered(zone: &Zone, zone_authority: &ZoneAuthority, name: &Name) -> bool {
    let key = key(name);
    !matches!(zone.find(&key), ZoneLookup::Outside) || reverse::apex(zone_authority, &key).is_some()
}

/// Answers a question from the zone or the reverse zones; none if the name is in neither. Records
/// are shuffled, so that clients which use the first one are spread out.
pub(super) fn answer(
    zone: &Zone,
    zone_authority: &ZoneAuthority,
    client: IpAddr,
    name: &Name,
    kind: RecordType,
) -> Option<Answer> {
    let key = key(name);
    let found = zone.find(&key);
    let mut answer = match found {
        ZoneLookup::Outside => return reverse::answer(zone, zone_authority, &key, name, kind),
        ZoneLookup::Node(node) => of_node(zone, node, name, kind),
        ZoneLookup::EmptyNonTerminal | ZoneLookup::NoSuchName => Answer::of(Vec::new()),
    };
    if zone_authority.subnet_first {
        sort_near_first(&mut answer.answers, client);
    }
    if key == zone.apex() {
        add_apex_records(&mut answer, zone, zone_authority, name, kind);
    }
    if answer.answers.is_empty() {
        if matches!(found, ZoneLookup::NoSuchName) {
            answer.code = ResponseCode::NXDomain;
        }
        answer.authority.push(zone_authority.soa(zone));
    }
    Some(answer)
}

/// Addresses in the client's own network (/24, /64) before others.
fn sort_near_first(records: &mut [Record], client: IpAddr) {
    records.sort_by_key(|record| match (&record.data, client) {
        (RData::A(A(ip)), IpAddr::V4(client)) => ip.octets()[..3] != client.octets()[..3],
        (RData::AAAA(AAAA(ip)), IpAddr::V6(client)) => ip.octets()[..8] != client.octets()[..8],
        _ => true,
    });
}

/// The name as the zone stores it: lower case, without `.*`, which older clients use for "any".
/// Bytes that occur in no name of a zone become `\\`.
fn key(name: &Name) -> String {
    let mut key = String::with_capacity(name.len() + 1);
    for label in name {
        for byte in label {
            let plain = byte.is_ascii_graphic() && *byte != b'.';
            key.push(if plain {
                char::from(byte.to_ascii_lowercase())
            } else {
                '\\'
            });
        }
        key.push('.');
    }
    if key.contains(".*") {
        key.replace(".*", "")
    } else {
        key
    }
}

fn of_node(zone: &Zone, node: &Node, name: &Name, kind: RecordType) -> Answer {
    let a = |node: &Node| {
        node.a()
            .iter()
            .map(|ip| address(name, (*ip).into(), node.ttl()))
            .collect::<Vec<_>>()
    };
    let aaaa = |node: &Node| {
        node.aaaa()
            .iter()
            .map(|ip| address(name, (*ip).into(), node.ttl()))
            .collect::<Vec<_>>()
    };
    let mut answers = match kind {
        RecordType::A => a(node),
        RecordType::AAAA => aaaa(node),
        // One RRset is sufficient (RFC 8482).
        RecordType::ANY if !node.a().is_empty() => a(node),
        RecordType::ANY if !node.aaaa().is_empty() => aaaa(node),
        RecordType::SRV | RecordType::ANY => return services(zone, node, name),
        _ => Vec::new(),
    };
    answers.shuffle(&mut rand::rng());
    Answer::of(answers)
}

/// SRV records with additional addresses of their targets. Services that DNS cannot represent are
/// skipped.
fn services(zone: &Zone, node: &Node, name: &Name) -> Answer {
    let mut services: Vec<_> = node.srv().iter().filter_map(encodable_service).collect();
    services.shuffle(&mut rand::rng());
    let mut seen: HashSet<&Arc<str>> = HashSet::new();
    let mut answer = Answer::of(Vec::with_capacity(services.len()));
    for (service, target, port) in services {
        let srv = SRV::new(0, service.weight, port, target);
        answer
            .answers
            .push(Record::from_rdata(name.clone(), node.ttl(), RData::SRV(srv)));
        // Further addresses would never fit.
        if seen.len() < MAX_ADDITIONAL_TARGETS && seen.insert(&service.target) {
            answer.additional.extend(random_addresses(zone, &service.target));
        }
    }
    answer
}

/// A service that DNS can represent, with its target and port.
fn encodable_service(service: &Service) -> Option<(&Service, Name, u16)> {
    Some((
        service,
        wire_name(&service.target)?,
        u16::try_from(service.port).ok()?,
    ))
}

/// A random IPv4 and a random IPv6 address of a name.
fn random_addresses(zone: &Zone, target: &str) -> Vec<Record> {
    let (Some(node), Some(name)) = (zone.node(target), wire_name(target)) else {
        return Vec::new();
    };
    let a = node.a().choose(&mut rand::rng()).map(|ip| IpAddr::V4(*ip));
    let aaaa = node.aaaa().choose(&mut rand::rng()).map(|ip| IpAddr::V6(*ip));
    [a, aaaa]
        .into_iter()
        .flatten()
        .map(|ip| address(&name, ip, node.ttl()))
        .collect()
}

fn add_apex_records(
    answer: &mut Answer,
    zone: &Zone,
    zone_authority: &ZoneAuthority,
    name: &Name,
    kind: RecordType,
) {
    match kind {
        RecordType::SOA | RecordType::ANY if answer.answers.is_empty() => {
            let mut soa = zone_authority.soa(zone);
            soa.name = name.clone();
            answer.answers.push(soa);
        }
        RecordType::NS => {
            let ns = RData::NS(NS(zone_authority.mname.clone()));
            answer
                .answers
                .push(Record::from_rdata(name.clone(), zone_authority.ttl, ns));
            answer.additional = random_addresses(zone, &zone_authority.mname_text);
        }
        _ => {}
    }
}

fn address(name: &Name, ip: IpAddr, ttl: u32) -> Record {
    let data = match ip {
        IpAddr::V4(ip) => RData::A(A(ip)),
        IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
    };
    Record::from_rdata(name.clone(), ttl, data)
}

#[cfg(test)]
mod tests;
