#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use prometheus_client::registry::Registry;
use tokio::time::timeout;

use super::*;
use crate::Settings;
use crate::dns::{forward, fuzzing};
use crate::metrics::Metrics;
use crate::shared::Shared;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves a port at `addr` with a zone and with a resolver that does not answer.
fn serving(addr: &str, token: &CancellationToken) -> (u16, tokio::task::JoinHandle<()>) {
    let settings = Settings {
        resolvers: vec!["127.0.0.1:1".into()],
        timeout: 1,
        ..Settings::default()
    };
    let shared = Arc::new(Shared::new());
    shared.zone.store(Some(fuzzing::zone()));
    let forwarding = forward::Metrics::register(&mut Registry::default());
    let handler = Handler::new(
        &settings.checked().unwrap(),
        shared,
        Metrics::default(),
        forwarding,
    );
    let sockets = bind(addr.parse().unwrap()).unwrap();
    let port = sockets[0].local_addr().unwrap().port();
    (
        port,
        tokio::spawn(serve(sockets, Arc::new(handler), token.clone())),
    )
}

/// Queries one address; an answer from another address is not received.
async fn ask(ip: IpAddr, port: u16, name: &str) -> ResponseCode {
    let here: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
    };
    let socket = UdpSocket::bind((here, 0)).await.unwrap();
    socket.connect((ip, port)).await.unwrap();
    let mut query = Message::new(7, MessageType::Query, OpCode::Query);
    query.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    socket.send(&query.to_vec().unwrap()).await.unwrap();
    let mut answer = [0; 512];
    let size = timeout(WAIT_TIMEOUT, socket.recv(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let answer = Message::from_vec(&answer[..size]).unwrap();
    answer.metadata.response_code
}

#[tokio::test]
async fn wildcard_listener_has_sockets_for_each_address() {
    let ips = |addr: &str| -> Vec<IpAddr> {
        let sockets = bind(addr.parse().unwrap()).unwrap();
        let port = sockets[0].local_addr().unwrap().port();
        let addrs = sockets.iter().map(|socket| socket.local_addr().unwrap());
        addrs
            .inspect(|addr| assert_eq!(addr.port(), port))
            .map(|addr| addr.ip())
            .collect()
    };
    let (wildcard, loopback) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST);
    let sockets = ips("0.0.0.0:0");
    assert!(sockets.contains(&wildcard.into()) && sockets.contains(&loopback.into()));
    assert!(sockets.iter().all(IpAddr::is_ipv4), "{sockets:?}");
    assert!(
        ips("[::]:0").contains(&loopback.into()),
        "the listener also serves IPv4"
    );
    assert_eq!(ips("127.0.0.1:0"), [IpAddr::from(loopback)]);
}

#[tokio::test]
async fn answers_are_sent_from_the_queried_address() {
    for (wildcard, destinations) in [
        ("0.0.0.0:0", &["127.0.0.1", "127.0.0.2", "127.9.9.9"][..]),
        ("[::]:0", &["::1", "127.0.0.1", "127.0.0.2"]),
        ("127.0.0.2:0", &["127.0.0.2"]),
    ] {
        let token = CancellationToken::new();
        let (port, serving) = serving(wildcard, &token);
        for ip in destinations {
            let ip = ip.parse().unwrap();
            // One answer comes from the zone, the other one after forwarding has failed.
            assert_eq!(
                ask(ip, port, "web-1-s0.fw.slave.mesos.").await,
                ResponseCode::NoError
            );
            assert_eq!(
                ask(ip, port, "example.").await,
                ResponseCode::ServFail,
                "{wildcard} {ip}"
            );
        }
        token.cancel();
        timeout(WAIT_TIMEOUT, serving).await.unwrap().unwrap();
    }
}

/// Echoes packets; `x` causes a panic after its answer has been written.
struct Echo;

impl RespondToPackets for Echo {
    type Snapshot = ();

    fn snapshot(&self) {}

    fn respond(&self, (): &(), packet: &[u8], _: Client, out: &mut Vec<u8>) -> Reply {
        out.extend_from_slice(packet);
        assert_ne!(packet, b"x");
        Reply::Written
    }

    fn limited(&self, _: IpAddr, _: usize, _: &mut Vec<u8>) -> bool {
        true
    }
}

#[tokio::test]
async fn panic_while_answering_drops_one_packet_of_the_batch() {
    let local: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let port = UdpSocket::bind(local).await.unwrap();
    let client = UdpSocket::bind(local).await.unwrap();
    client.connect(port.local_addr().unwrap()).await.unwrap();
    // Sent before the port is served, so that they are one batch.
    for packet in ["a", "x", "b", "x", "x", "c"] {
        client.send(packet.as_bytes()).await.unwrap();
    }
    let token = CancellationToken::new();
    let serving = tokio::spawn(serve(vec![port], Arc::new(Echo), token.clone()));
    for expected in ["a", "b", "c"] {
        let mut answer = [0; 8];
        let size = timeout(WAIT_TIMEOUT, client.recv(&mut answer))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&answer[..size], expected.as_bytes());
    }
    token.cancel();
    timeout(WAIT_TIMEOUT, serving).await.unwrap().unwrap();
}
