//! Forwarding under load: coalesced queries, rejected queries, and queries that end when the
//! forwarder stops.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use transom_discovery::dns::forward::Settings;

use super::Transport::Udp;
use super::common::{WAIT_TIMEOUT, query, wait_until};
use super::resolver::Resolver;
use super::{a, ask, code, data, forwarder, settings};

#[tokio::test]
async fn equal_queries_in_flight_are_sent_once() {
    let resolver = Resolver::start(1).await;
    resolver.delay(Duration::from_millis(200));
    let forwarder = forwarder(&settings(&[resolver.addr]));
    // Whether or not the reply can be cached, and whatever the case of the name in each query.
    for name in ["web.example.", "never.example.", "servfail.example."] {
        let queries = (0..20).map(|n| {
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
        join_all(queries).await;
        assert_eq!(resolver.queries(name).len(), 1, "{name}");
    }
}

#[tokio::test]
async fn queries_beyond_the_limit_get_servfail() {
    let resolver = Resolver::start(1).await;
    let long_timeout = |max_inflight, max_sockets| Settings {
        timeout: WAIT_TIMEOUT,
        max_inflight,
        max_sockets,
        ..settings(&[resolver.addr])
    };
    for settings in [long_timeout(2, 100), long_timeout(100, 2)] {
        resolver.set_silent(true);
        let forwarder = Arc::new(forwarder(&settings));
        let waiting: Vec<_> = (0..2)
            .map(|n| {
                let forwarder = Arc::clone(&forwarder);
                tokio::spawn(async move { a(&forwarder, &format!("wait{n}.example.")).await })
            })
            .collect();
        let before = resolver.queries("wait").len();
        wait_until("both queries", async || {
            resolver.queries("wait").len() >= before + 2
        })
        .await;
        let started = Instant::now();
        assert_eq!(
            code(&a(&forwarder, "third.example.").await),
            ResponseCode::ServFail
        );
        assert!(started.elapsed() < WAIT_TIMEOUT / 2);
        assert!(resolver.queries("third").is_empty());
        // The waiting queries are resent and answered; then further ones are accepted again.
        resolver.set_silent(false);
        for waiting in waiting {
            assert_eq!(code(&waiting.await.unwrap()), ResponseCode::NoError);
        }
        assert_eq!(code(&a(&forwarder, "room.example.").await), ResponseCode::NoError);
        resolver.script.log.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn silent_zone_does_not_block_other_zones() {
    let (silent, answering) = (Resolver::start(1).await, Resolver::start(2).await);
    silent.set_silent(true);
    let mut settings = Settings {
        max_sockets: 100,
        ..settings(&[answering.addr])
    };
    settings.zone_resolvers.insert("weave".into(), vec![silent.addr]);
    let forwarder = Arc::new(forwarder(&settings));
    assert_eq!(code(&a(&forwarder, "first.weave.").await), ResponseCode::ServFail);
    // The first probe takes two packets. The third one belongs to the second probe, so the first has
    // failed.
    wait_until("the second probe", async || silent.queries(".").len() >= 3).await;
    let before = silent.queries("n").len();
    let waiting: Vec<_> = (0..200)
        .map(|n| {
            let forwarder = Arc::clone(&forwarder);
            tokio::spawn(async move { code(&a(&forwarder, &format!("n{n}.weave.")).await) })
        })
        .collect();
    wait_until("32 queries", async || silent.queries("n").len() >= 32).await;
    for n in 0..50 {
        assert_eq!(
            data(&a(&forwarder, &format!("n{n}.example.")).await),
            ["192.0.2.2"]
        );
    }
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), ResponseCode::ServFail);
    }
    // Only as many queries are sent as may wait for an unavailable resolver.
    assert_eq!(silent.queries("n").len() - before, 32);
    forwarder.stop().await;
}

#[tokio::test]
async fn waiting_queries_get_servfail_on_stop() {
    let resolver = Resolver::start(1).await;
    resolver.set_silent(true);
    let long_timeout = Settings {
        timeout: WAIT_TIMEOUT,
        ..settings(&[resolver.addr])
    };
    let forwarder = forwarder(&long_timeout);
    let stopping = async {
        wait_until("the query", async || !resolver.queries("web").is_empty()).await;
        let stopped = Instant::now();
        forwarder.stop().await;
        stopped
    };
    let (answer, stopped) = tokio::join!(a(&forwarder, "web.example."), stopping);
    assert_eq!(code(&answer), ResponseCode::ServFail);
    assert!(stopped.elapsed() < WAIT_TIMEOUT / 2);
    assert_eq!(
        code(&a(&forwarder, "late.example.").await),
        ResponseCode::ServFail
    );
    assert!(resolver.queries("late").is_empty());
}
