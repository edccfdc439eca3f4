//! Invariants for every packet, valid or not. The fuzz target (`fuzz/`) calls [`any_packet`] with
//! generated packets; a test calls it with the corpus, the packets that fuzzing has found so far.
//!
//! Not part of the daemon: compiled for tests and the feature `fuzzing` only. A violated invariant
//! is a panic.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a violation is a panic")]

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::Record;
use prometheus_client::registry::Registry;

use super::forward;
use super::handler::Handler;
use super::respond::{Client, Reply, Transport};
use crate::Settings;
use crate::metrics::Metrics;
use crate::shared::Shared;
use crate::zone::Zone;
use crate::zone::testing::Builder;

/// More messages than a transfer of the test zone has.
const MESSAGES: usize = 10_000;

static SITE: LazyLock<(Handler, Arc<Zone>)> = LazyLock::new(|| {
    let settings = Settings {
        external_on: false,
        reverse_dns_on: true,
        allow_transfer: vec!["0.0.0.0/0".parse().unwrap()],
        ..Settings::default()
    };
    (handler(settings), zone())
});

/// A packet handler without resolvers.
pub(super) fn handler(settings: Settings) -> Handler {
    let shared = Arc::new(Shared::new());
    let metrics = Metrics::register(&mut Registry::default(), &shared);
    let forwarding = forward::Metrics::register(&mut Registry::default());
    Handler::new(&settings.checked().unwrap(), shared, metrics, forwarding)
}

/// A zone with one or many records for each name, some of which DNS cannot represent.
pub(super) fn zone() -> Arc<Zone> {
    let mut zone = Builder::new();
    for n in 0..200 {
        zone.address("many.fw.mesos.", [10, 1, 0, n].into());
        zone.address("many.fw.mesos.", format!("2001:db8::{n:x}").parse().unwrap());
    }
    for n in 0..8_u32 {
        let target: Arc<str> = format!("web-{n}-s0.fw.slave.mesos.").into();
        zone.address(&target, [10, 0, 0, n as u8].into());
        zone.service("_web._tcp.fw.mesos.", &target, 31000 + n);
        zone.service("_few._tcp.fw.mesos.", &target, if n < 2 { 80 } else { 70000 });
    }
    let dual_stack: Arc<str> = "many.fw.mesos.".into();
    let no_address: Arc<str> = "nobody.fw.mesos.".into();
    let long_name: Arc<str> = format!("{}.mesos.", "x".repeat(64)).into();
    for (target, port) in [
        (&dual_stack, 1),
        (&dual_stack, 2),
        (&no_address, 3),
        (&long_name, 4),
    ] {
        zone.service("_odd._tcp.fw.mesos.", target, port);
    }
    for n in 0..3000 {
        zone.service(
            "_huge._tcp.fw.mesos.",
            &Arc::from(format!("huge-{n}.fw.mesos.")),
            80,
        );
    }
    zone.name("web-1-s0.fw.slave.mesos.", [10, 0, 0, 1].into());
    Arc::new(zone.build(7))
}

/// The maximum size of the answer to a packet.
fn max_bytes(packet: &[u8], transport: Transport) -> usize {
    let request = Message::from_vec(packet).ok();
    let edns = request.and_then(|request| request.edns);
    match transport {
        Transport::Udp => edns.map_or(512, |edns| usize::from(edns.max_payload()).clamp(512, 1232)),
        Transport::Tcp => usize::from(u16::MAX),
    }
}

/// Answers a packet over both transports and checks the invariants: every packet with a header
/// that is not a response gets an answer; each message of it has the packet's id, can be parsed and
/// is within the size limit; and the fast path answers like the handler.
///
/// # Panics
/// If an invariant is violated.
pub fn any_packet(packet: &[u8]) {
    let (handler, zone) = &*SITE;
    for transport in [Transport::Udp, Transport::Tcp] {
        let (ip, mut out) = ([10, 0, 0, 1].into(), Vec::new());
        let client = Client { ip, transport };
        match handler.reply(Some(zone), packet, client, &mut out) {
            Reply::Written | Reply::Last => assert_is_answer(packet, &out, transport),
            Reply::Silence => assert!(
                out.is_empty() && (packet.len() < 12 || packet[2] & 0x80 != 0),
                "an answer is missing"
            ),
            Reply::Messages(mut next) => {
                let count = (0..MESSAGES)
                    .map_while(|_| next())
                    .inspect(|message| assert_is_answer(packet, message, transport))
                    .count();
                assert!((1..MESSAGES).contains(&count), "{count} messages");
            }
            Reply::Later(_) => panic!("the handler has no resolvers to wait for"),
        }
        assert_paths_agree(handler, zone, packet, client);
    }
    forward::fuzzing::any_packet(packet);
}

fn assert_is_answer(packet: &[u8], answer: &[u8], transport: Transport) {
    let max_bytes = max_bytes(packet, transport);
    assert!(answer.len() <= max_bytes, "{} of {max_bytes} bytes", answer.len());
    assert_eq!(answer[..2], packet[..2], "the id");
    let answer = Message::from_vec(answer).unwrap();
    assert_eq!(answer.metadata.message_type, MessageType::Response);
}

fn assert_paths_agree(handler: &Handler, zone: &Arc<Zone>, packet: &[u8], client: Client) {
    let mut fast = Vec::new();
    if !handler.reply_by_fast_path(zone, packet, client, &mut fast) {
        assert!(fast.is_empty());
        return;
    }
    let mut full = Vec::new();
    let reply = handler.reply_without_fast_path(Some(zone), packet, client, &mut full);
    assert!(
        matches!(reply, Reply::Written),
        "the handler does not answer: {reply:?}"
    );
    assert_same_answer(&fast, &full);
}

/// Compares an answer of the fast path (`fast`) with that of the handler (`full`).
pub(super) fn assert_same_answer(fast: &[u8], full: &[u8]) {
    let is_cut = fast.get(2).is_some_and(|flags| flags & 2 != 0);
    let ((fast, fast_count), (full, full_count)) = (outline(fast), outline(full));
    assert_eq!(fast, full);
    // The handler compresses fewer names, so it fits no more records. In a truncated answer each path
    // has other records, whose lengths differ.
    let limit = if is_cut {
        fast_count + fast_count.div_ceil(7)
    } else {
        fast_count
    };
    assert!(limit >= full_count, "{fast_count} and {full_count} records");
}

/// Records as text, without their order.
pub(super) fn record_set(records: &[Record]) -> BTreeSet<String> {
    records
        .iter()
        .map(|record| record.to_string().to_lowercase())
        .collect()
}

/// The parts of an answer that both paths have in common, and the number of records in the section
/// that may be incomplete: the answers if it is truncated, otherwise the additional records.
fn outline(bytes: &[u8]) -> ((String, [BTreeSet<String>; 2]), usize) {
    let answer = Message::from_vec(bytes).unwrap();
    let head = format!(
        "{} {:?} {:?} {:?}",
        answer.metadata, answer.queries, answer.edns, answer.metadata.response_code
    );
    if answer.metadata.truncation {
        return (
            (head, [BTreeSet::new(), record_set(&answer.authorities)]),
            answer.answers.len(),
        );
    }
    let common = (
        head,
        [record_set(&answer.answers), record_set(&answer.authorities)],
    );
    (common, answer.additionals.len())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn corpus_packets_keep_the_invariants() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/packets");
        let mut count = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            let packet = std::fs::read(entry.unwrap().path()).unwrap();
            any_packet(&packet);
            count += 1;
        }
        assert!(count >= 50, "{count} packets");
    }
}
