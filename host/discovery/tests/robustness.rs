//! Any packet on the DNS port: a request is answered once, within its size limit; a packet that is
//! not a request is not answered; nothing panics.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Followed, Master, MasterScript, WAIT_TIMEOUT, query, with_edns};
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::RecordType;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;
use transom_discovery::Settings;

const UDP_PACKETS: usize = 6000;
const TCP_PACKETS: usize = 1500;
/// Packets in flight: few enough for the smallest socket buffer.
const BATCH: usize = 30;

/// Forty tasks of one name, so that many answers are too large.
async fn started() -> Followed {
    let task = |n: u32| {
        json!({
            "name": "web", "task_id": {"value": format!("web.{n}")}, "framework_id": {"value": "F"},
            "agent_id": {"value": format!("c1d2-S{n}")}, "state": "TASK_RUNNING",
            "resources": [{"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 31000, "end": 31000}]}}],
        })
    };
    let agent = |n: u32| {
        let id = json!({"value": format!("c1d2-S{n}")});
        json!({"agent_info": {"hostname": "a", "id": id}, "pid": format!("slave(1)@10.0.1.{n}:5051")})
    };
    let framework = json!({"framework_info": {"user": "u", "name": "marathon", "id": {"value": "F"}}});
    let snapshot = json!({
        "get_agents": {"agents": (0..40).map(agent).collect::<Vec<Value>>()},
        "get_frameworks": {"frameworks": [framework]},
        "get_tasks": {"tasks": (0..40).map(task).collect::<Vec<Value>>()},
    });
    let master = Master::start(MasterScript {
        document: Some(json!({"leader": "master@127.0.0.1:5050", "slaves": [], "frameworks": []})),
        snapshot: Some(snapshot),
        ..MasterScript::default()
    })
    .await;
    let discovery = master.followed(Settings::default()).await;
    discovery.ready().await;
    discovery
}

/// Valid queries, from which damaged ones are made.
fn valid() -> Vec<Vec<u8>> {
    let mut valid = Vec::new();
    for name in [
        "_web._tcp.marathon.mesos.",
        "web.marathon.mesos.",
        "mesos.",
        "nothing.mesos.",
        "example.com.",
    ] {
        for kind in [
            RecordType::A,
            RecordType::SRV,
            RecordType::ANY,
            RecordType::NS,
            RecordType::AXFR,
        ] {
            valid.push(query(name, kind));
            for payload in [0, 512, 800, 65535] {
                valid.push(with_edns(query(name, kind), payload, 0));
            }
        }
    }
    valid.iter().map(|query| query.to_vec().unwrap()).collect()
}

/// A packet of a faulty or hostile client: noise, or a valid query with some damage.
fn packet(random: &mut StdRng, valid: &[Vec<u8>]) -> Vec<u8> {
    if random.random_ratio(1, 5) {
        let mut noise = vec![0; random.random_range(0..600)];
        random.fill_bytes(&mut noise);
        return noise;
    }
    let mut packet = valid.choose(random).unwrap().clone();
    for _ in 0..random.random_range(0..5) {
        let at = random.random_range(0..=packet.len());
        let other = valid.choose(random).unwrap();
        match random.random_range(0..7) {
            0 => packet.truncate(at),
            1 => packet.insert(at, random.random()),
            2 => packet.extend_from_slice(&other[at.min(other.len())..]),
            // A pointer to anywhere: loops, the header, beyond the end.
            3 => packet
                .splice(at..at, [0xc0 | random.random_range(0..4), random.random()])
                .for_each(drop),
            // A count or a flag.
            4 if packet.len() >= 12 => packet[random.random_range(2..12)] = random.random_range(0..4),
            _ if at < packet.len() => packet[at] ^= 1 << random.random_range(0..8),
            _ => packet.push(random.random()),
        }
    }
    packet
}

/// Whether a packet must be answered: it has a header, and is not a response.
fn is_answerable(packet: &[u8]) -> bool {
    packet.len() >= 12 && packet[2] & 0x80 == 0
}

/// The maximum size of the UDP answer to a packet.
fn max_bytes(packet: &[u8]) -> usize {
    let request = Message::from_vec(packet).ok();
    let edns = request.and_then(|request| request.edns);
    edns.map_or(512, |edns| usize::from(edns.max_payload()).clamp(512, 1232))
}

fn check(packet: &[u8], reply: &[u8]) -> Message {
    let reply =
        Message::from_vec(reply).unwrap_or_else(|error| panic!("{error}: {packet:02x?} {reply:02x?}"));
    assert_eq!(reply.metadata.message_type, MessageType::Response);
    assert_eq!(reply.metadata.id.to_be_bytes(), packet[..2], "{packet:02x?}");
    if Message::from_vec(packet).is_err() {
        assert_eq!(
            reply.metadata.response_code,
            ResponseCode::FormErr,
            "{packet:02x?}"
        );
    }
    reply
}

/// Sends packets with different ids and receives answers until every packet that must be answered
/// has one.
async fn send_over_udp(discovery: &Followed, socket: &UdpSocket, batch: &[Vec<u8>]) {
    let mut pending: HashMap<_, _> = batch
        .iter()
        .filter(|packet| is_answerable(packet))
        .map(|packet| (&packet[..2], packet))
        .collect();
    for packet in batch {
        socket.send(packet).await.unwrap();
    }
    let mut reply = vec![0; 65536];
    while !pending.is_empty() {
        let Ok(size) = timeout(WAIT_TIMEOUT, socket.recv(&mut reply)).await else {
            panic!("no answer to {pending:02x?}");
        };
        let reply = &reply[..size.unwrap()];
        let packet = pending.remove(&reply[..2]).unwrap();
        assert!(
            reply.len() <= max_bytes(packet),
            "{} to {packet:02x?}",
            reply.len()
        );
        check(packet, reply);
    }
    // Discovery still answers, and no further answer has arrived.
    assert_eq!(discovery.a("web.marathon.mesos.").await.len(), 29);
    assert!(socket.try_recv(&mut reply).is_err(), "more than one answer");
}

/// Sends a packet on a connection and checks the answer. A packet that is not a request ends the
/// connection.
async fn send_over_tcp(discovery: &Followed, connection: &mut Option<TcpStream>, packet: &[u8]) {
    let addr = discovery.discovery.dns_addr().unwrap();
    let mut stream = match connection.take() {
        Some(stream) => stream,
        None => TcpStream::connect(addr).await.unwrap(),
    };
    let size = u16::try_from(packet.len()).unwrap();
    stream
        .write_all(&[&size.to_be_bytes()[..], packet].concat())
        .await
        .unwrap();
    let size = timeout(WAIT_TIMEOUT, stream.read_u16()).await.unwrap();
    if packet.len() < 12 {
        let mut reply = [0; 12];
        timeout(WAIT_TIMEOUT, stream.read_exact(&mut reply))
            .await
            .unwrap()
            .unwrap();
        let code = Message::from_vec(&reply).unwrap().metadata.response_code;
        assert_eq!(
            (size.unwrap(), code),
            (12, ResponseCode::FormErr),
            "{packet:02x?}"
        );
        assert_eq!(
            timeout(WAIT_TIMEOUT, stream.read(&mut reply))
                .await
                .unwrap()
                .unwrap(),
            0
        );
        return;
    }
    if !is_answerable(packet) {
        assert!(size.is_err(), "{packet:02x?}");
        return;
    }
    let mut reply = vec![0; size.unwrap().into()];
    timeout(WAIT_TIMEOUT, stream.read_exact(&mut reply))
        .await
        .unwrap()
        .unwrap();
    assert!(!check(packet, &reply).metadata.truncation, "{packet:02x?}");
    *connection = Some(stream);
}

#[tokio::test]
async fn any_packet_is_answered_correctly_or_ignored() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        default_hook(panic);
    }));

    let discovery = started().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket
        .connect(discovery.discovery.dns_addr().unwrap())
        .await
        .unwrap();
    let valid = valid();
    // A new seed in each run tests more packets; the output of a failure has the seed.
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..UDP_PACKETS / BATCH {
        let mut batch: Vec<_> = (0..BATCH).map(|_| packet(&mut random, &valid)).collect();
        for (id, packet) in batch
            .iter_mut()
            .enumerate()
            .filter(|(_, packet)| packet.len() >= 2)
        {
            packet[..2].copy_from_slice(&u16::try_from(id).unwrap().to_be_bytes());
        }
        send_over_udp(&discovery, &socket, &batch).await;
    }
    let mut stream = None;
    for _ in 0..TCP_PACKETS {
        send_over_tcp(&discovery, &mut stream, &packet(&mut random, &valid)).await;
    }
    discovery.stop().await;
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}
