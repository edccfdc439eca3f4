//! The choice between resolvers of which some are silent, unreachable, available again, or refuse.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use transom_discovery::dns::forward::{ForwardPolicy, Settings};

use super::Transport::{Tcp, Udp};
use super::common::{WAIT_TIMEOUT, query, until, with_edns};
use super::resolver::Resolver;
use super::{TIMEOUT, a, ask, code, data, forwarder, nobody, settings};

#[tokio::test]
async fn lost_udp_query_is_resent() {
    let resolver = Resolver::start(1).await;
    let forwarder = forwarder(&Settings {
        timeout: WAIT_TIMEOUT,
        ..settings(&[resolver.addr])
    });
    assert_eq!(data(&a(&forwarder, "lost.example.").await), ["192.0.2.1"]);
    let asked = resolver.asked("lost");
    // The same packet is sent again from the same port, so a reply to either one is accepted.
    assert_eq!(
        (asked.len(), asked[0].id, asked[0].from),
        (2, asked[1].id, asked[1].from)
    );
}

#[tokio::test]
async fn silent_resolver_costs_its_timeout_once() {
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
        assert_eq!(first.asked("after").len(), asked, "it is not queried last");
    }
    // Background probes find that it answers again, without a delay for clients.
    first.be_silent(false);
    for over in [Udp, Tcp] {
        let mut n = 0;
        until("an answer of the first resolver", async || {
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
async fn unreachable_resolvers_are_skipped() {
    let resolver = Resolver::start(1).await;
    let both = forwarder(&settings(&[nobody(), resolver.addr]));
    for over in [Udp, Tcp] {
        let reply = ask(&both, &query("example.", RecordType::A), over).await;
        assert_eq!(data(&reply), ["192.0.2.1"]);
    }
    // After an invalid reply the other resolvers are queried.
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
    // While all resolvers are failing they are still queried, so one that is available again answers.
    let addr = nobody();
    let one = forwarder(&settings(&[addr]));
    assert_eq!(code(&a(&one, "example.").await), ResponseCode::ServFail);
    let late = Resolver::start_at(addr, 9).await;
    assert_eq!(data(&a(&one, "example.").await), ["192.0.2.9"]);
    late.stop().await;
}

#[tokio::test]
async fn parallel_policy_uses_the_first_good_reply() {
    let (silent, failing, good) = (
        Resolver::start(1).await,
        Resolver::start(2).await,
        Resolver::start(3).await,
    );
    silent.be_silent(true);
    good.delay(Duration::from_millis(100));
    let parallel = |resolvers: &[SocketAddr]| {
        forwarder(&Settings {
            policy: ForwardPolicy::Parallel,
            timeout: WAIT_TIMEOUT,
            ..settings(resolvers)
        })
    };
    let all = parallel(&[silent.addr, nobody(), good.addr]);
    let asked = Instant::now();
    assert_eq!(data(&a(&all, "web.example.").await), ["192.0.2.3"]);
    assert!(asked.elapsed() < WAIT_TIMEOUT / 2);
    // The client gets a refusal if there is no better reply.
    let refusing = parallel(&[failing.addr, nobody()]);
    assert_eq!(
        code(&a(&refusing, "refused.example.").await),
        ResponseCode::Refused
    );
    let none = parallel(&[nobody(), nobody()]);
    assert_eq!(code(&a(&none, "web.example.").await), ResponseCode::ServFail);
    // Four resolvers are queried in parallel, and the others after those have failed.
    let many = parallel(&[nobody(), nobody(), nobody(), nobody(), nobody(), good.addr]);
    assert_eq!(data(&a(&many, "web.example.").await), ["192.0.2.3"]);
}
