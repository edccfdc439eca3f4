//! Forwarding at the ports of a running discovery, next to its own names.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::process::Command;
use tokio::time::timeout;
use transom_discovery::Settings;

use super::common::{Followed, Master, MasterScript, WAIT_TIMEOUT, query, wait_until};
use super::resolver::Resolver;
use super::{code, data};

/// Starts discovery with a known leader, which forwards to this resolver if the settings allow it.
async fn started(resolver: &Resolver, config: Settings) -> Followed {
    let master = Master::start(MasterScript {
        document: Some(json!({"leader": "master@127.0.0.1:5050", "slaves": [], "frameworks": []})),
        rejection: 403,
        ..MasterScript::default()
    });
    let config = Settings {
        resolvers: vec![resolver.addr.to_string()],
        ..config
    };
    let discovery = master.await.followed(config).await;
    discovery.ready().await;
    discovery
}

#[tokio::test]
async fn dig_gets_forwarded_answers() {
    let resolver = Resolver::start(1).await;
    let discovery = started(&resolver, Settings::default()).await;
    let port = discovery.discovery.dns_addr().unwrap().port().to_string();
    let dig = async |arguments: &[&str]| {
        let run = Command::new("dig")
            .args(["@127.0.0.1", "-p", &port, "+time=5", "+tries=1"])
            .args(arguments)
            .output();
        let output = run
            .await
            .unwrap_or_else(|error| panic!("this test needs dig from the package dnsutils: {error}"));
        String::from_utf8(output.stdout).unwrap()
    };
    // dig retries a truncated answer over TCP and gets all records. Its cookies do not prevent
    // caching.
    let text = dig(&["many.example", "A", "+bufsize=512"]).await;
    assert!(
        text.contains("Truncated, retrying in TCP mode") && text.contains("ANSWER: 60"),
        "{text}"
    );
    for _ in 0..2 {
        let text = dig(&["web.example", "A"]).await;
        assert!(
            text.contains("status: NOERROR") && text.contains("192.0.2.1"),
            "{text}"
        );
        assert!(
            !text.contains("WARNING") && !text.contains(";; Got bad packet"),
            "{text}"
        );
    }
    assert_eq!(resolver.queries("web").len(), 1);
    let text = dig(&["nx.example", "A", "+dnssec", "+cdflag"]).await;
    assert!(
        text.contains("status: NXDOMAIN") && text.contains("flags: do; udp: 1232"),
        "{text}"
    );
    // Names of the zone are not forwarded.
    let text = dig(&["leader.mesos", "A"]).await;
    assert!(
        text.contains("status: NOERROR") && text.contains("127.0.0.1"),
        "{text}"
    );
    assert!(resolver.queries("leader").is_empty());
    discovery.stop().await;
}

#[tokio::test]
async fn recursion_is_rejected_outside_allowed_networks() {
    let resolver = Resolver::start(1).await;
    let off = Settings {
        external_on: false,
        ..Settings::default()
    };
    let for_others = Settings {
        allow_recursion: vec!["192.0.2.0/24".parse().unwrap()],
        ..Settings::default()
    };
    for (config, what) in [(off, "outside"), (for_others, "recursion")] {
        let discovery = started(&resolver, config).await;
        let outside = query("web.example.", RecordType::A);
        assert_eq!(code(&discovery.udp(&outside).await), ResponseCode::Refused);
        for answer in discovery.tcp(&[outside]).await {
            assert_eq!(code(&answer), ResponseCode::Refused);
        }
        assert_eq!(discovery.a("leader.mesos.").await, ["127.0.0.1"]);
        let rejected = format!("transom_discovery_refused_total{{reason=\"{what}\"}} 2\n");
        assert!(discovery.metrics().contains(&rejected), "{}", discovery.metrics());
        discovery.stop().await;
    }
    assert!(resolver.queries("").is_empty());
}

#[tokio::test]
async fn slow_resolver_does_not_delay_other_queries() {
    let resolver = Resolver::start(1).await;
    resolver.set_silent(true);
    let discovery = started(&resolver, Settings::default()).await;
    let addr = discovery.discovery.dns_addr().unwrap();

    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(addr).await.unwrap();
    let forwarded = query("web.example.", RecordType::A).to_vec().unwrap();
    socket.send(&forwarded).await.unwrap();
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let in_zone = query("leader.mesos.", RecordType::A).to_vec().unwrap();
    for query in [&forwarded, &in_zone] {
        stream.write_u16(query.len().try_into().unwrap()).await.unwrap();
        stream.write_all(query).await.unwrap();
    }
    wait_until("two queries", async || resolver.queries("web").len() >= 2).await;
    assert_eq!(discovery.a("leader.mesos.").await, ["127.0.0.1"]);
    let size = timeout(WAIT_TIMEOUT, stream.read_u16()).await.unwrap().unwrap();
    let mut answer = vec![0; size.into()];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(data(&Message::from_vec(&answer).unwrap()), ["127.0.0.1"]);
    discovery.stop().await;
}

#[tokio::test]
async fn rate_limit_drops_and_truncates_udp_answers() {
    const QUERIES: usize = 200;
    let resolver = Resolver::start(1).await;
    let config = Settings {
        responses_per_second: 10,
        ..Settings::default()
    };
    let discovery = started(&resolver, config).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket
        .connect(discovery.discovery.dns_addr().unwrap())
        .await
        .unwrap();
    let in_zone = query("leader.mesos.", RecordType::A);
    let packet = in_zone.to_vec().unwrap();
    for _ in 0..QUERIES {
        socket.send(&packet).await.unwrap();
    }
    let (mut complete, mut cut, mut bytes) = (0, 0, vec![0; 4096]);
    // Half of the answers beyond the limit are sent with the TC flag, the others are dropped. After
    // 300 ms without an answer no more are expected.
    while let Ok(size) = timeout(Duration::from_millis(300), socket.recv(&mut bytes)).await {
        let answer = Message::from_vec(&bytes[..size.unwrap()]).unwrap();
        if answer.metadata.truncation {
            cut += 1;
        } else {
            assert_eq!(data(&answer), ["127.0.0.1"]);
            complete += 1;
        }
    }
    assert!(
        (10..QUERIES / 2).contains(&complete),
        "{complete} whole, {cut} cut"
    );
    assert!(cut > 0 && complete + cut < QUERIES, "{complete} whole, {cut} cut");
    let metrics = discovery.metrics();
    let slipped = format!("transom_discovery_rate_limited_total{{action=\"slip\"}} {cut}\n");
    let dropped = QUERIES - complete - cut;
    let dropped = format!("transom_discovery_rate_limited_total{{action=\"drop\"}} {dropped}\n");
    assert!(
        metrics.contains(&slipped) && metrics.contains(&dropped),
        "{metrics}"
    );
    // Over TCP source addresses cannot be forged, so there is no limit.
    for answer in discovery.tcp(&vec![in_zone; 50]).await {
        assert_eq!(data(&answer), ["127.0.0.1"]);
    }
    discovery.stop().await;
}
