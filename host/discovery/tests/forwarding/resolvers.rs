//! The choice between resolvers of which some are silent, unreachable, available again, or reject.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use transom_discovery::ForwardPolicy;
use transom_discovery::dns::forward::Settings;

use super::Transport::{Tcp, Udp};
use super::common::{WAIT_TIMEOUT, query, wait_until, with_edns};
use super::resolver::Resolver;
use super::{TIMEOUT, a, ask, code, data, forwarder, settings, unused_addr};

#[tokio::test]
async fn lost_udp_query_is_resent() {
    let resolver = Resolver::start(1).await;
    let forwarder = forwarder(&Settings {
        timeout: WAIT_TIMEOUT,
        ..settings(&[resolver.addr])
    });
    assert_eq!(data(&a(&forwarder, "lost.example.").await), ["192.0.2.1"]);
    let queries = resolver.queries("lost");
    // The same packet is sent again from the same port, so a reply to either one is accepted.
    assert_eq!(
        (queries.len(), queries[0].id, queries[0].from),
        (2, queries[1].id, queries[1].from)
    );
}

#[tokio::test]
async fn silent_resolver_costs_its_timeout_once() {
    let (first, second) = (Resolver::start(1).await, Resolver::start(2).await);
    let forwarder = forwarder(&settings(&[first.addr, second.addr]));
    assert_eq!(data(&a(&forwarder, "before.example.").await), ["192.0.2.1"]);
    first.set_silent(true);
    for transport in [Udp, Tcp] {
        let started = Instant::now();
        let reply = ask(&forwarder, &query("silence.example.", RecordType::A), transport).await;
        assert_eq!(data(&reply), ["192.0.2.2"]);
        assert!(started.elapsed() >= TIMEOUT);
        let before = first.queries("after").len();
        for n in 0..10 {
            let name = format!("after{n}-{transport:?}.example.");
            let reply = ask(&forwarder, &query(&name, RecordType::A), transport).await;
            assert_eq!(data(&reply), ["192.0.2.2"]);
        }
        assert_eq!(first.queries("after").len(), before, "it is not queried last");
    }
    // Background probes find that it answers again, without a delay for clients.
    first.set_silent(false);
    for transport in [Udp, Tcp] {
        let mut n = 0;
        wait_until("an answer of the first resolver", async || {
            n += 1;
            let name = format!("again{n}.example.");
            let reply = ask(&forwarder, &query(&name, RecordType::A), transport).await;
            data(&reply) == ["192.0.2.1"]
        })
        .await;
    }
    forwarder.stop().await;
}

#[tokio::test]
async fn unreachable_resolvers_are_skipped() {
    let resolver = Resolver::start(1).await;
    let both = forwarder(&settings(&[unused_addr(), resolver.addr]));
    for transport in [Udp, Tcp] {
        let reply = ask(&both, &query("example.", RecordType::A), transport).await;
        assert_eq!(data(&reply), ["192.0.2.1"]);
    }
    // After an invalid reply the other resolvers are queried.
    let rejecting_first = Resolver::start(2).await;
    let both = forwarder(&settings(&[rejecting_first.addr, unused_addr(), resolver.addr]));
    assert_eq!(code(&a(&both, "noise.example.").await), ResponseCode::ServFail);
    assert_eq!(resolver.queries("noise").len(), 1);

    let all_closed = forwarder(&settings(&[unused_addr(), unused_addr()]));
    for transport in [Udp, Tcp] {
        let query = with_edns(query("Example.", RecordType::A), 4096, 0);
        let reply = ask(&all_closed, &query, transport).await;
        assert_eq!(
            (code(&reply), reply.edns.is_some()),
            (ResponseCode::ServFail, true)
        );
        assert_eq!(reply.queries, query.queries);
    }
    // While all resolvers are failing they are still queried, so one that is available again answers.
    let addr = unused_addr();
    let one = forwarder(&settings(&[addr]));
    assert_eq!(code(&a(&one, "example.").await), ResponseCode::ServFail);
    let late = Resolver::start_at(addr, 9).await;
    assert_eq!(data(&a(&one, "example.").await), ["192.0.2.9"]);
    late.stop().await;
}

#[tokio::test]
async fn parallel_policy_uses_the_first_good_reply() {
    let (silent, failing, delayed) = (
        Resolver::start(1).await,
        Resolver::start(2).await,
        Resolver::start(3).await,
    );
    silent.set_silent(true);
    delayed.delay(Duration::from_millis(100));
    let parallel = |resolvers: &[SocketAddr]| {
        forwarder(&Settings {
            policy: ForwardPolicy::Parallel,
            timeout: WAIT_TIMEOUT,
            ..settings(resolvers)
        })
    };
    let all = parallel(&[silent.addr, unused_addr(), delayed.addr]);
    let started = Instant::now();
    assert_eq!(data(&a(&all, "web.example.").await), ["192.0.2.3"]);
    assert!(started.elapsed() < WAIT_TIMEOUT / 2);
    // The client gets a rejection if there is no better reply.
    let rejecting = parallel(&[failing.addr, unused_addr()]);
    assert_eq!(
        code(&a(&rejecting, "refused.example.").await),
        ResponseCode::Refused
    );
    let all_closed = parallel(&[unused_addr(), unused_addr()]);
    assert_eq!(
        code(&a(&all_closed, "web.example.").await),
        ResponseCode::ServFail
    );
    // Four resolvers are queried in parallel, and the others after those have failed.
    let five_closed = parallel(&[
        unused_addr(),
        unused_addr(),
        unused_addr(),
        unused_addr(),
        unused_addr(),
        delayed.addr,
    ]);
    assert_eq!(data(&a(&five_closed, "web.example.").await), ["192.0.2.3"]);
}
