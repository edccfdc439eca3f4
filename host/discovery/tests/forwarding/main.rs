//! Queries for external names, forwarded to resolvers that answer, are silent, late, or send forged
//! replies.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

mod bounds;
mod cache;
mod case;
#[path = "../common/mod.rs"]
mod common;
mod port;
mod resolver;
mod resolvers;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::{WAIT_TIMEOUT, query, with_edns};
use futures::future::join_all;
use hickory_proto::op::{Edns, Message, ResponseCode};
use hickory_proto::rr::RecordType;
use prometheus_client::registry::Registry;
use resolver::Resolver;
use transom_discovery::dns::Transport;
use transom_discovery::dns::forward::{Forwarder, Metrics, Settings};

use Transport::{Tcp, Udp};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The timeout of a resolver: long enough for one that answers on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(1);

fn settings(resolvers: &[SocketAddr]) -> Settings {
    Settings {
        resolvers: resolvers.to_vec(),
        timeout: TIMEOUT,
        ..Settings::default()
    }
}

fn forwarder(settings: &Settings) -> Forwarder {
    Forwarder::new(settings, Metrics::default())
}

async fn ask(forwarder: &Forwarder, query: &Message, transport: Transport) -> Message {
    let question = &query.queries[0];
    let packet = query.to_vec().unwrap();
    let forwarding = forwarder.forward(&packet, question.name(), question.query_type(), transport, CLIENT);
    let reply = tokio::time::timeout(WAIT_TIMEOUT, forwarding).await.unwrap();
    let reply = Message::from_vec(&reply).unwrap();
    assert_eq!(reply.metadata.id, query.metadata.id);
    reply
}

async fn a(forwarder: &Forwarder, name: &str) -> Message {
    ask(forwarder, &query(name, RecordType::A), Udp).await
}

fn data(reply: &Message) -> Vec<String> {
    reply
        .answers
        .iter()
        .map(|record| record.data.to_string())
        .collect()
}

fn code(reply: &Message) -> ResponseCode {
    reply.metadata.response_code
}

/// An address without a listener, whose port is free for UDP and TCP.
fn unused_addr() -> SocketAddr {
    loop {
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = udp.local_addr().unwrap();
        if std::net::TcpListener::bind(addr).is_ok() {
            return addr;
        }
    }
}

#[tokio::test]
async fn queries_and_replies_are_forwarded_unchanged() {
    let resolver = Resolver::start(1).await;
    let forwarder = forwarder(&settings(&[resolver.addr]));
    let mut all_flags = with_edns(query("echo.example.", RecordType::TXT), 1400, 0);
    all_flags.metadata.recursion_desired = false;
    all_flags.metadata.checking_disabled = true;
    all_flags.edns.as_mut().unwrap().set_dnssec_ok(true);
    let plain = query("echo.example.", RecordType::TXT);
    for (query, transport, text) in [
        (&plain, Udp, "tcp=false rd=true cd=false payload=None do=false"),
        (&plain, Tcp, "tcp=true rd=true cd=false payload=None do=false"),
        (
            &all_flags,
            Udp,
            "tcp=false rd=false cd=true payload=Some(1400) do=true",
        ),
        (
            &all_flags,
            Tcp,
            "tcp=true rd=false cd=true payload=Some(1400) do=true",
        ),
    ] {
        let reply = ask(&forwarder, query, transport).await;
        assert!(data(&reply)[0].starts_with(text), "{reply}");
        assert_eq!(reply.edns.is_some(), query.edns.is_some());
        assert!(reply.metadata.recursion_available);
    }
    let reply = a(&forwarder, "AA.Example.").await;
    assert!(reply.metadata.authoritative);
    assert_eq!(reply.queries[0].name().to_string(), "AA.Example.");
    assert_eq!(
        data(&a(&forwarder, "cname.example.").await),
        ["target.example.", "192.0.2.1"]
    );
    let nx = a(&forwarder, "nx.example.").await;
    assert_eq!((code(&nx), nx.authorities[0].ttl), (ResponseCode::NXDomain, 300));
    assert_eq!(
        code(&a(&forwarder, "servfail.example.").await),
        ResponseCode::ServFail
    );
    assert_eq!(
        code(&a(&forwarder, "refused.example.").await),
        ResponseCode::Refused
    );
    assert!(a(&forwarder, "nodata.example.").await.answers.is_empty());
    resolver.stop().await;
}

#[tokio::test]
async fn queries_go_to_the_resolvers_of_their_zone() {
    let (default, weave) = (Resolver::start(1).await, Resolver::start(2).await);
    let mut settings = settings(&[default.addr]);
    settings.zone_resolvers.insert("weave".into(), vec![weave.addr]);
    settings
        .zone_resolvers
        .insert("sub.corp".into(), vec![weave.addr]);
    let both = forwarder(&settings);
    for (name, tag) in [
        ("a.weave.", 2),
        ("weave.", 2),
        ("A.WEAVE.", 2),
        ("xweave.", 1),
        ("a.sub.corp.", 2),
        ("corp.", 1),
        ("example.", 1),
    ] {
        assert_eq!(data(&a(&both, name).await), [format!("192.0.2.{tag}")], "{name}");
    }
    settings.resolvers.clear();
    let only = forwarder(&settings);
    assert_eq!(code(&a(&only, "a.weave.").await), ResponseCode::NoError);
    assert_eq!(code(&a(&only, "example.").await), ResponseCode::Refused);
    let transfer = query("weave.", RecordType::AXFR);
    assert_eq!(code(&ask(&only, &transfer, Tcp).await), ResponseCode::Refused);
}

#[tokio::test]
async fn forged_replies_are_ignored() {
    let resolver = Resolver::start(1).await;
    let forwarder = forwarder(&settings(&[resolver.addr]));
    assert_eq!(data(&a(&forwarder, "forged.example.").await), ["192.0.2.1"]);
    assert_eq!(
        code(&a(&forwarder, "wrongid.example.").await),
        ResponseCode::ServFail
    );
    // An invalid reply leads to SERVFAIL, like a missing one.
    assert_eq!(
        code(&a(&forwarder, "noise.example.").await),
        ResponseCode::ServFail
    );

    // A forged reply has to guess a port and an id, which differ each time.
    let names: Vec<_> = (0..40).map(|n| format!("name{n}.example.")).collect();
    join_all(names.iter().map(|name| a(&forwarder, name))).await;
    let queries = resolver.queries("name");
    assert_eq!(queries.len(), 40);
    let ports: HashSet<_> = queries.iter().map(|query| query.from.port()).collect();
    let ids: HashSet<_> = queries.iter().map(|query| query.id).collect();
    assert!(
        ports.len() > 20 && ids.len() > 30 && !ids.contains(&4660),
        "{ports:?} {ids:?}"
    );
}

#[tokio::test]
async fn replies_respect_the_clients_size_limit() {
    let resolver = Resolver::start(1).await;
    let marked = forwarder(&settings(&[resolver.addr]));
    let unmarked = forwarder(&Settings {
        set_truncate_bit: false,
        ..settings(&[resolver.addr])
    });
    let sized = |name: &str, size| with_edns(query(name, RecordType::A), size, 0);
    // (query, over, answers, cut): a hundred records have more than 1,600 bytes.
    for (query, transport, answers, cut) in [
        (query("many.example.", RecordType::A), Udp, 30, true),
        (query("many.example.", RecordType::A), Tcp, 60, false),
        (sized("many.example.", 800), Udp, 47, true),
        (sized("many.example.", 1232), Udp, 60, false),
        // The resolver sent more than the limit; a record set is delivered whole or not at all.
        (query("boast.example.", RecordType::A), Udp, 0, true),
        (sized("boast.example.", 1232), Udp, 0, true),
        (sized("boast.example.", 4096), Udp, 100, false),
        (query("boast.example.", RecordType::A), Tcp, 100, false),
        (sized("flood.example.", 1232), Udp, 0, true),
        (query("flood.example.", RecordType::A), Tcp, 255, false),
    ] {
        let reply = ask(&marked, &query, transport).await;
        assert_eq!(
            (reply.answers.len(), reply.metadata.truncation),
            (answers, cut),
            "{reply} {transport:?}"
        );
        // The end of a reply above the size limit was never read.
        let flood = query.queries[0].name().to_string().starts_with("flood");
        assert_eq!(reply.edns.is_some(), query.edns.is_some() && !flood);
        let reply = ask(&unmarked, &query, transport).await;
        assert!(!reply.metadata.truncation);
        assert!(reply.answers.len() >= answers.max(30), "{reply} {transport:?}");
        let size = query.edns.as_ref().map_or(512, Edns::max_payload);
        assert!(transport == Tcp || reply.to_vec().unwrap().len() <= size.into());
    }
}

#[tokio::test]
async fn forwarding_is_counted_in_metrics() {
    let (resolver, unused) = (Resolver::start(1).await, unused_addr());
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let forwarder = Forwarder::new(&settings(&[unused, resolver.addr]), metrics);
    for _ in 0..3 {
        a(&forwarder, "web.example.").await;
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let up = resolver.addr;
    for line in [
        "transom_discovery_forward_requests_total{result=\"hit\"} 2".to_owned(),
        "transom_discovery_forward_requests_total{result=\"miss\"} 1".to_owned(),
        "transom_discovery_forward_inflight 0".to_owned(),
        format!(
            "transom_discovery_upstream_queries_total{{upstream=\"{up}\",transport=\"udp\",outcome=\"answered\"}} 1"
        ),
        format!(
            "transom_discovery_upstream_queries_total{{upstream=\"{unused}\",transport=\"udp\",outcome=\"unreachable\"}} 1"
        ),
        format!("transom_discovery_upstream_latency_seconds_count{{upstream=\"{up}\",transport=\"udp\"}} 1"),
        format!("transom_discovery_upstream_healthy{{upstream=\"{up}\",transport=\"udp\"}} 1"),
        format!("transom_discovery_upstream_healthy{{upstream=\"{unused}\",transport=\"udp\"}} 0"),
    ] {
        assert!(text.lines().any(|it| it == line), "no {line} in\n{text}");
    }
    forwarder.stop().await;
}

#[tokio::test]
async fn any_packet_is_answered_or_ignored() {
    let resolver = Resolver::start(1).await;
    let forwarder = forwarder(&settings(&[resolver.addr]));
    let valid = with_edns(query("web.example.", RecordType::A), 1232, 0);
    let (packet, name) = (valid.to_vec().unwrap(), valid.queries[0].name());
    for size in 0..packet.len() {
        let reply = forwarder
            .forward(&packet[..size], name, RecordType::A, Udp, CLIENT)
            .await;
        if size < 12 {
            assert!(reply.is_empty());
        } else {
            assert_eq!(
                code(&Message::from_vec(&reply).unwrap()),
                ResponseCode::FormErr,
                "{size}"
            );
        }
    }
    assert!(resolver.queries("").is_empty());
}
