//! Questions about names of others, forwarded to resolvers that answer, are silent, late, or lie.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests: a failure is their answer.

mod common;
mod resolver;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{LONG, query, until, with_edns};
use futures::future::join_all;
use hickory_proto::op::{Edns, Message, ResponseCode};
use hickory_proto::rr::RecordType;
use hickory_proto::rr::rdata::opt::EdnsOption;
use prometheus_client::registry::Registry;
use resolver::Resolver;
use tokio::net::{TcpListener, UdpSocket};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_discovery::dns::connection::{Patience, Reply, Respond, serve_connection};
use transom_discovery::dns::forward::{Begun, Forwarder, Metrics, Order, Settings, Transport};

use Transport::{Tcp, Udp};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// What a silent resolver costs; long enough for one that answers, on a busy machine.
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

async fn ask(forwarder: &Forwarder, query: &Message, over: Transport) -> Message {
    let question = &query.queries[0];
    let packet = query.to_vec().unwrap();
    let asking = forwarder.forward(&packet, question.name(), question.query_type(), over, CLIENT);
    let reply = tokio::time::timeout(LONG, asking).await.unwrap();
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

/// A port on which nobody is.
fn nobody() -> SocketAddr {
    std::net::UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

#[tokio::test]
async fn questions_and_replies_pass_as_they_are() {
    let resolver = Resolver::start(1).await;
    let forwarder = forwarder(&settings(&[resolver.addr]));
    let mut odd = with_edns(query("echo.example.", RecordType::TXT), 1400, 0);
    odd.metadata.recursion_desired = false;
    odd.metadata.checking_disabled = true;
    odd.edns.as_mut().unwrap().set_dnssec_ok(true);
    let plain = query("echo.example.", RecordType::TXT);
    for (query, over, text) in [
        (&plain, Udp, "tcp=false rd=true cd=false payload=None do=false"),
        (&plain, Tcp, "tcp=true rd=true cd=false payload=None do=false"),
        (&odd, Udp, "tcp=false rd=false cd=true payload=Some(1400) do=true"),
        (&odd, Tcp, "tcp=true rd=false cd=true payload=Some(1400) do=true"),
    ] {
        let reply = ask(&forwarder, query, over).await;
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
async fn names_go_to_the_resolvers_of_their_zone() {
    let (usual, weave) = (Resolver::start(1).await, Resolver::start(2).await);
    let mut settings = settings(&[usual.addr]);
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
async fn forged_replies_are_nobodys() {
    let resolver = Resolver::start(1).await;
    let forwarder = forwarder(&settings(&[resolver.addr]));
    assert_eq!(data(&a(&forwarder, "forged.example.").await), ["192.0.2.1"]);
    assert_eq!(
        code(&a(&forwarder, "wrongid.example.").await),
        ResponseCode::ServFail
    );
    // A resolver whose reply makes no sense is as good as none.
    assert_eq!(
        code(&a(&forwarder, "noise.example.").await),
        ResponseCode::ServFail
    );

    // Who wants to forge a reply has to guess a port and an id, which are others each time.
    let names: Vec<_> = (0..40).map(|n| format!("name{n}.example.")).collect();
    join_all(names.iter().map(|name| a(&forwarder, name))).await;
    let asked = resolver.asked("name");
    assert_eq!(asked.len(), 40);
    let ports: HashSet<_> = asked.iter().map(|asked| asked.from.port()).collect();
    let ids: HashSet<_> = asked.iter().map(|asked| asked.id).collect();
    assert!(
        ports.len() > 20 && ids.len() > 30 && !ids.contains(&4660),
        "{ports:?} {ids:?}"
    );
}

#[tokio::test]
async fn what_was_lost_is_sent_again() {
    let resolver = Resolver::start(1).await;
    let forwarder = forwarder(&Settings {
        timeout: LONG,
        ..settings(&[resolver.addr])
    });
    assert_eq!(data(&a(&forwarder, "lost.example.").await), ["192.0.2.1"]);
    let asked = resolver.asked("lost");
    // The same question again: whichever of the two is answered, it is the answer.
    assert_eq!(
        (asked.len(), asked[0].id, asked[0].from),
        (2, asked[1].id, asked[1].from)
    );
}

#[tokio::test]
async fn a_silent_resolver_costs_its_timeout_once() {
    let (first, second) = (Resolver::start(1).await, Resolver::start(2).await);
    let forwarder = forwarder(&settings(&[first.addr, second.addr]));
    assert_eq!(data(&a(&forwarder, "before.example.").await), ["192.0.2.1"]);
    first.be_silent(true);
    for over in [Udp, Tcp] {
        let asked = Instant::now();
        let reply = ask(&forwarder, &query("silence.example.", RecordType::A), over).await;
        assert_eq!(data(&reply), ["192.0.2.2"]);
        assert!(asked.elapsed() >= TIMEOUT);
        let asked = first.asked("after").len();
        for n in 0..10 {
            let name = format!("after{n}-{over:?}.example.");
            let reply = ask(&forwarder, &query(&name, RecordType::A), over).await;
            assert_eq!(data(&reply), ["192.0.2.2"]);
        }
        assert_eq!(first.asked("after").len(), asked, "it is asked last");
    }
    // It is asked now and then whether it is there again, which costs no client anything.
    first.be_silent(false);
    for over in [Udp, Tcp] {
        let mut n = 0;
        until("the first to be asked first again", async || {
            n += 1;
            let name = format!("again{n}.example.");
            let reply = ask(&forwarder, &query(&name, RecordType::A), over).await;
            data(&reply) == ["192.0.2.1"]
        })
        .await;
    }
    forwarder.stop().await;
}

#[tokio::test]
async fn resolvers_that_are_not_there() {
    let resolver = Resolver::start(1).await;
    let both = forwarder(&settings(&[nobody(), resolver.addr]));
    for over in [Udp, Tcp] {
        let reply = ask(&both, &query("example.", RecordType::A), over).await;
        assert_eq!(data(&reply), ["192.0.2.1"]);
    }
    // Nonsense from one is no reason not to ask the other.
    let liar = Resolver::start(2).await;
    let both = forwarder(&settings(&[liar.addr, nobody(), resolver.addr]));
    assert_eq!(code(&a(&both, "noise.example.").await), ResponseCode::ServFail);
    assert_eq!(resolver.asked("noise").len(), 1);

    let none = forwarder(&settings(&[nobody(), nobody()]));
    for over in [Udp, Tcp] {
        let asked = with_edns(query("Example.", RecordType::A), 4096, 0);
        let reply = ask(&none, &asked, over).await;
        assert_eq!(
            (code(&reply), reply.edns.is_some()),
            (ResponseCode::ServFail, true)
        );
        assert_eq!(reply.queries, asked.queries);
    }
    // As soon as one is there again, it is asked, though all of them have failed.
    let addr = nobody();
    let one = forwarder(&settings(&[addr]));
    assert_eq!(code(&a(&one, "example.").await), ResponseCode::ServFail);
    let late = Resolver::start_at(addr, 9).await;
    assert_eq!(data(&a(&one, "example.").await), ["192.0.2.9"]);
    late.stop().await;
}

#[tokio::test]
async fn replies_are_given_again_while_they_live() {
    let resolver = Resolver::start(1).await;
    let forwarder = forwarder(&settings(&[resolver.addr]));
    for name in ["kept.example.", "nx.example.", "cname.example."] {
        for n in 0..20 {
            let mut query = query(name, RecordType::A);
            query.metadata.id = n;
            ask(&forwarder, &query, Udp).await;
        }
        assert_eq!(resolver.asked(name).len(), 1, "{name}");
    }
    let reply = a(&forwarder, "KEPT.Example.").await;
    assert_eq!(reply.queries[0].name().to_string(), "KEPT.Example.");
    assert_eq!(resolver.asked("kept").len() + resolver.asked("KEPT").len(), 1);

    // For as long as they say, which is less and less.
    a(&forwarder, "kept.example.").await;
    until("a second to have passed", async || {
        let reply = a(&forwarder, "kept.example.").await;
        assert!(reply.answers[0].ttl >= 10);
        reply.answers[0].ttl < 30
    })
    .await;
    assert_eq!(resolver.asked("kept").len(), 1);
    for (name, what) in [
        ("brief.example.", "an answer"),
        ("nodata.example.", "nothing"),
        ("servfail.example.", "a failure"),
    ] {
        a(&forwarder, name).await;
        let asked = resolver.asked(name).len();
        assert_eq!(asked, 1, "{name}");
        until(what, async || {
            a(&forwarder, name).await;
            resolver.asked(name).len() > asked
        })
        .await;
    }
    // Not at all: no lifetime, or cut.
    for name in ["never.example.", "many.example."] {
        for asked in 1..4 {
            a(&forwarder, name).await;
            assert_eq!(resolver.asked(name).len(), asked);
        }
    }
}

#[tokio::test]
async fn what_is_asked_in_another_way_is_another_question() {
    let resolver = Resolver::start(1).await;
    let mut settings = settings(&[resolver.addr]);
    settings
        .zone_resolvers
        .insert("sub.example".into(), vec![resolver.addr]);
    let forwarder = forwarder(&settings);
    let plain = query("web.example.", RecordType::A);
    let mut odd = [
        plain.clone(),
        plain.clone(),
        with_edns(plain.clone(), 1232, 0),
        with_edns(plain.clone(), 1232, 0),
    ];
    odd[0].metadata.checking_disabled = true;
    odd[1].metadata.recursion_desired = false;
    odd[3].edns.as_mut().unwrap().set_dnssec_ok(true);
    for (asked, query) in std::iter::once(&plain).chain(&odd).enumerate() {
        for _ in 0..2 {
            ask(&forwarder, query, Udp).await;
            assert_eq!(resolver.asked("web").len(), asked + 1, "{query}");
        }
    }
    // A cookie is between neighbours: it makes no difference, and does not go further.
    let with = |code, data: &[u8]| {
        let mut query = odd[2].clone();
        let options = query.edns.as_mut().unwrap().options_mut();
        options.insert(EdnsOption::Unknown(code, data.to_vec()));
        query
    };
    ask(&forwarder, &with(10, &[1; 8]), Udp).await;
    assert_eq!(resolver.asked("web").len(), 5);
    // What is about one client is passed on, and kept for nobody.
    for asked in 6..8 {
        ask(&forwarder, &with(8, &[0, 1, 24, 0, 192, 0, 2]), Udp).await;
        let all = resolver.asked("web");
        assert_eq!(all.len(), asked);
        let edns = all[asked - 1].query.edns.as_ref().unwrap();
        assert!(!edns.options().as_ref().is_empty());
    }
    settings.cache_bytes = 0;
    let forgetful = self::forwarder(&settings);
    for asked in 8..10 {
        ask(&forgetful, &plain, Udp).await;
        assert_eq!(resolver.asked("web").len(), asked);
    }
}

#[tokio::test]
async fn the_cache_has_its_bound() {
    let resolver = Resolver::start(1).await;
    let forwarder = forwarder(&Settings {
        cache_bytes: 64 << 10,
        ..settings(&[resolver.addr])
    });
    for n in 0..2000 {
        a(&forwarder, &format!("n{n}.example.")).await;
    }
    assert_eq!(resolver.asked("n").len(), 2000);
    for n in 0..2000 {
        a(&forwarder, &format!("n{n}.example.")).await;
    }
    // An entry has more than a hundred bytes, so most must have been forgotten, and not all.
    let again = resolver.asked("n").len() - 2000;
    assert!((1400..2000).contains(&again), "{again}");
}

#[tokio::test]
async fn equal_questions_at_a_time_are_asked_once() {
    let resolver = Resolver::start(1).await;
    resolver.delay(Duration::from_millis(200));
    let forwarder = forwarder(&settings(&[resolver.addr]));
    // Kept or not, and with the case that each of them has.
    for name in ["web.example.", "never.example.", "servfail.example."] {
        let asking = (0..20).map(|n| {
            let mut query = query(
                &if n % 2 == 0 {
                    name.to_ascii_uppercase()
                } else {
                    name.into()
                },
                RecordType::A,
            );
            query.metadata.id = n;
            let forwarder = &forwarder;
            async move {
                let reply = ask(forwarder, &query, Udp).await;
                assert!(reply.queries[0].name().eq_case(query.queries[0].name()));
            }
        });
        join_all(asking).await;
        let asked = resolver.asked(name).len() + resolver.asked(&name.to_ascii_uppercase()).len();
        assert_eq!(asked, 1, "{name}");
    }
}

#[tokio::test]
async fn work_is_bounded() {
    let resolver = Resolver::start(1).await;
    let patient = |max_questions, max_sockets| Settings {
        timeout: LONG,
        max_questions,
        max_sockets,
        ..settings(&[resolver.addr])
    };
    for settings in [patient(2, 100), patient(100, 2)] {
        resolver.be_silent(true);
        let forwarder = Arc::new(forwarder(&settings));
        let waiting: Vec<_> = (0..2)
            .map(|n| {
                let forwarder = Arc::clone(&forwarder);
                tokio::spawn(async move { a(&forwarder, &format!("wait{n}.example.")).await })
            })
            .collect();
        let before = resolver.asked("wait").len();
        until("both to be asked", async || {
            resolver.asked("wait").len() >= before + 2
        })
        .await;
        let asked = Instant::now();
        assert_eq!(
            code(&a(&forwarder, "third.example.").await),
            ResponseCode::ServFail
        );
        assert!(asked.elapsed() < LONG / 2);
        assert!(resolver.asked("third").is_empty());
        // Sent again, they are answered, and there is room again.
        resolver.be_silent(false);
        for waiting in waiting {
            assert_eq!(code(&waiting.await.unwrap()), ResponseCode::NoError);
        }
        assert_eq!(code(&a(&forwarder, "room.example.").await), ResponseCode::NoError);
        resolver.says.log.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn a_silent_zone_leaves_room_for_others() {
    let (silent, usual) = (Resolver::start(1).await, Resolver::start(2).await);
    silent.be_silent(true);
    let mut settings = Settings {
        max_sockets: 100,
        ..settings(&[usual.addr])
    };
    settings.zone_resolvers.insert("weave".into(), vec![silent.addr]);
    let forwarder = Arc::new(forwarder(&settings));
    assert_eq!(code(&a(&forwarder, "first.weave.").await), ResponseCode::ServFail);
    // It has been asked whether it is there, in two packets, and has not answered when it is asked anew.
    until("it to be given up", async || silent.asked(".").len() >= 3).await;
    let before = silent.asked("n").len();
    let waiting: Vec<_> = (0..200)
        .map(|n| {
            let forwarder = Arc::clone(&forwarder);
            tokio::spawn(async move { code(&a(&forwarder, &format!("n{n}.weave.")).await) })
        })
        .collect();
    until("some of them to be asked", async || silent.asked("n").len() >= 32).await;
    for n in 0..50 {
        assert_eq!(
            data(&a(&forwarder, &format!("n{n}.example.")).await),
            ["192.0.2.2"]
        );
    }
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), ResponseCode::ServFail);
    }
    // Not all of them, but as many as may wait for a resolver that is gone.
    assert_eq!(silent.asked("n").len() - before, 32);
    forwarder.stop().await;
}

#[tokio::test]
async fn who_waits_is_answered_when_it_stops() {
    let resolver = Resolver::start(1).await;
    resolver.be_silent(true);
    let patient = Settings {
        timeout: LONG,
        ..settings(&[resolver.addr])
    };
    let forwarder = forwarder(&patient);
    let stopping = async {
        until("it to be asked", async || !resolver.asked("web").is_empty()).await;
        let stopped = Instant::now();
        forwarder.stop().await;
        stopped
    };
    let (answer, stopped) = tokio::join!(a(&forwarder, "web.example."), stopping);
    assert_eq!(code(&answer), ResponseCode::ServFail);
    assert!(stopped.elapsed() < LONG / 2);
    assert_eq!(
        code(&a(&forwarder, "late.example.").await),
        ResponseCode::ServFail
    );
    assert!(resolver.asked("late").is_empty());
}

#[tokio::test]
async fn what_is_known_is_answered_at_once() {
    let resolver = Resolver::start(1).await;
    let forwarder = forwarder(&settings(&[resolver.addr]));
    let query = query("web.example.", RecordType::A);
    let (packet, name) = (query.to_vec().unwrap(), query.queries[0].name());
    let begin = || forwarder.begin(&packet, name, RecordType::A, Udp, CLIENT);
    let Begun::Waiting(answer) = begin() else {
        panic!("nobody knows yet");
    };
    let waited = answer.await;
    let Begun::Answered(answer) = begin() else {
        panic!("it is known");
    };
    assert_eq!(answer, waited);
}

#[tokio::test]
async fn replies_have_the_size_that_the_client_takes() {
    let resolver = Resolver::start(1).await;
    let usual = forwarder(&settings(&[resolver.addr]));
    let unmarked = forwarder(&Settings {
        set_truncate_bit: false,
        ..settings(&[resolver.addr])
    });
    let sized = |name: &str, size| with_edns(query(name, RecordType::A), size, 0);
    // (query, over, answers, cut): a hundred records have more than 1,600 bytes.
    for (query, over, answers, cut) in [
        (query("many.example.", RecordType::A), Udp, 30, true),
        (query("many.example.", RecordType::A), Tcp, 60, false),
        (sized("many.example.", 800), Udp, 47, true),
        (sized("many.example.", 1232), Udp, 60, false),
        // The resolver said more than it should; of a set it is all or nothing.
        (query("boast.example.", RecordType::A), Udp, 0, true),
        (sized("boast.example.", 1232), Udp, 0, true),
        (sized("boast.example.", 4096), Udp, 100, false),
        (query("boast.example.", RecordType::A), Tcp, 100, false),
        (sized("flood.example.", 1232), Udp, 0, true),
        (query("flood.example.", RecordType::A), Tcp, 255, false),
    ] {
        let reply = ask(&usual, &query, over).await;
        assert_eq!(
            (reply.answers.len(), reply.metadata.truncation),
            (answers, cut),
            "{reply} {over:?}"
        );
        // What comes last in a reply that is longer than anybody takes was never read.
        let flood = query.queries[0].name().to_string().starts_with("flood");
        assert_eq!(reply.edns.is_some(), query.edns.is_some() && !flood);
        let reply = ask(&unmarked, &query, over).await;
        assert!(!reply.metadata.truncation);
        assert!(reply.answers.len() >= answers.max(30), "{reply} {over:?}");
        let size = query.edns.as_ref().map_or(512, Edns::max_payload);
        assert!(over == Tcp || reply.to_vec().unwrap().len() <= size.into());
    }
}

#[tokio::test]
async fn in_parallel_the_first_good_reply_counts() {
    let (silent, failing, good) = (
        Resolver::start(1).await,
        Resolver::start(2).await,
        Resolver::start(3).await,
    );
    silent.be_silent(true);
    good.delay(Duration::from_millis(100));
    let parallel = |resolvers: &[SocketAddr]| {
        forwarder(&Settings {
            order: Order::Parallel,
            timeout: LONG,
            ..settings(resolvers)
        })
    };
    let all = parallel(&[silent.addr, nobody(), good.addr]);
    let asked = Instant::now();
    assert_eq!(data(&a(&all, "web.example.").await), ["192.0.2.3"]);
    assert!(asked.elapsed() < LONG / 2);
    // A refusal is the reply when there is no better one.
    let refusing = parallel(&[failing.addr, nobody()]);
    assert_eq!(
        code(&a(&refusing, "refused.example.").await),
        ResponseCode::Refused
    );
    let none = parallel(&[nobody(), nobody()]);
    assert_eq!(code(&a(&none, "web.example.").await), ResponseCode::ServFail);
    // Beyond four, the others are asked when those have failed.
    let many = parallel(&[nobody(), nobody(), nobody(), nobody(), nobody(), good.addr]);
    assert_eq!(data(&a(&many, "web.example.").await), ["192.0.2.3"]);
}

#[tokio::test]
async fn it_is_counted() {
    let (resolver, gone) = (Resolver::start(1).await, nobody());
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let forwarder = Forwarder::new(&settings(&[gone, resolver.addr]), metrics);
    for _ in 0..3 {
        a(&forwarder, "web.example.").await;
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let up = resolver.addr;
    for line in [
        "transom_discovery_forwarded_total{result=\"hit\"} 2".to_owned(),
        "transom_discovery_forwarded_total{result=\"miss\"} 1".to_owned(),
        "transom_discovery_forwarding 0".to_owned(),
        format!(
            "transom_discovery_upstream_queries_total{{upstream=\"{up}\",transport=\"udp\",outcome=\"answered\"}} 1"
        ),
        format!(
            "transom_discovery_upstream_queries_total{{upstream=\"{gone}\",transport=\"udp\",outcome=\"unreachable\"}} 1"
        ),
        format!("transom_discovery_upstream_latency_seconds_count{{upstream=\"{up}\",transport=\"udp\"}} 1"),
        format!("transom_discovery_upstream_healthy{{upstream=\"{up}\",transport=\"udp\"}} 1"),
        format!("transom_discovery_upstream_healthy{{upstream=\"{gone}\",transport=\"udp\"}} 0"),
    ] {
        assert!(text.lines().any(|it| it == line), "no {line} in\n{text}");
    }
    forwarder.stop().await;
}

#[tokio::test]
async fn any_bytes_are_answered_or_not_at_all() {
    let resolver = Resolver::start(1).await;
    let forwarder = forwarder(&settings(&[resolver.addr]));
    let good = with_edns(query("web.example.", RecordType::A), 1232, 0);
    let (packet, name) = (good.to_vec().unwrap(), good.queries[0].name());
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
    assert!(resolver.asked("").is_empty());
}

/// A port in front of a forwarder.
#[derive(Clone)]
struct Front(Arc<Forwarder>);

impl Respond for Front {
    fn respond(&self, packet: &[u8], client: SocketAddr, _: &mut Vec<u8>) -> Reply {
        let (front, packet) = (self.clone(), packet.to_vec());
        Reply::Later(Box::pin(async move { front.over(&packet, Tcp, client).await }))
    }
}

impl Front {
    async fn over(&self, packet: &[u8], over: Transport, client: SocketAddr) -> Vec<u8> {
        let query = Message::from_vec(packet).unwrap();
        let question = &query.queries[0];
        self.0
            .forward(packet, question.name(), question.query_type(), over, client.ip())
            .await
    }
}

#[tokio::test]
async fn dig_is_served() {
    let resolver = Resolver::start(1).await;
    let front = Arc::new(Front(Arc::new(forwarder(&settings(&[resolver.addr])))));
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let udp = UdpSocket::bind(tcp.local_addr().unwrap()).await.unwrap();
    let port = tcp.local_addr().unwrap().port().to_string();
    let (token, tasks) = (CancellationToken::new(), TaskTracker::new());
    tasks.spawn({
        let (front, token) = (Arc::clone(&front), token.clone());
        async move {
            let answering = async {
                let mut packet = vec![0; 4096];
                loop {
                    let (size, client) = udp.recv_from(&mut packet).await.unwrap();
                    let reply = front.over(&packet[..size], Udp, client).await;
                    udp.send_to(&reply, client).await.unwrap();
                }
            };
            token.run_until_cancelled(answering).await;
        }
    });
    tasks.spawn({
        let (front, token) = (Arc::clone(&front), token.clone());
        async move {
            while let Some(Ok((stream, client))) = token.run_until_cancelled(tcp.accept()).await {
                serve_connection(stream, client, &*front, Patience::default(), &token).await;
            }
        }
    });
    let dig = async |arguments: &[&str]| {
        let run = Command::new("dig")
            .args(["@127.0.0.1", "-p", &port, "+time=5", "+tries=1"])
            .args(arguments)
            .output();
        let output = run
            .await
            .unwrap_or_else(|error| panic!("this test runs dig, of the package dnsutils: {error}"));
        String::from_utf8(output.stdout).unwrap()
    };
    // Told to ask over TCP it does, and gets everything. Its cookies are no obstacle to the cache.
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
    assert_eq!(resolver.asked("web").len(), 1);
    let text = dig(&["nx.example", "A", "+dnssec", "+cdflag"]).await;
    assert!(
        text.contains("status: NXDOMAIN") && text.contains("flags: do; udp: 1232"),
        "{text}"
    );
    token.cancel();
    tasks.close();
    tasks.wait().await;
    front.0.stop().await;
}
