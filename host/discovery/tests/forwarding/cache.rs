//! Replies from the cache.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use hickory_proto::rr::RecordType;
use hickory_proto::rr::rdata::opt::EdnsOption;
use transom_discovery::dns::forward::{Settings, Started};

use super::Transport::Udp;
use super::common::{query, wait_until, with_edns};
use super::resolver::Resolver;
use super::{CLIENT, a, ask, forwarder, settings};

#[tokio::test]
async fn replies_are_cached_for_their_ttl() {
    let resolver = Resolver::start(1).await;
    let forwarder = forwarder(&settings(&[resolver.addr]));
    for name in ["kept.example.", "nx.example.", "cname.example."] {
        for n in 0..20 {
            let mut query = query(name, RecordType::A);
            query.metadata.id = n;
            ask(&forwarder, &query, Udp).await;
        }
        assert_eq!(resolver.queries(name).len(), 1, "{name}");
    }
    let reply = a(&forwarder, "KEPT.Example.").await;
    assert_eq!(reply.queries[0].name().to_string(), "KEPT.Example.");
    assert_eq!(resolver.queries("kept").len(), 1);

    // Replies are cached for their TTL, which decreases with their age.
    a(&forwarder, "kept.example.").await;
    wait_until("a lower TTL", async || {
        let reply = a(&forwarder, "kept.example.").await;
        assert!(reply.answers[0].ttl >= 10);
        reply.answers[0].ttl < 30
    })
    .await;
    assert_eq!(resolver.queries("kept").len(), 1);
    for (name, what) in [
        ("brief.example.", "the expiry of an answer"),
        ("nodata.example.", "the expiry of a negative reply"),
        ("servfail.example.", "the expiry of a failure"),
    ] {
        a(&forwarder, name).await;
        let count = resolver.queries(name).len();
        assert_eq!(count, 1, "{name}");
        wait_until(what, async || {
            a(&forwarder, name).await;
            resolver.queries(name).len() > count
        })
        .await;
    }
    // Replies with a TTL of 0 and truncated replies are not cached.
    for name in ["never.example.", "many.example."] {
        for count in 1..4 {
            a(&forwarder, name).await;
            assert_eq!(resolver.queries(name).len(), count);
        }
    }
}

#[tokio::test]
async fn queries_with_other_flags_have_separate_cache_entries() {
    let resolver = Resolver::start(1).await;
    let mut settings = settings(&[resolver.addr]);
    settings
        .zone_resolvers
        .insert("sub.example".into(), vec![resolver.addr]);
    let forwarder = forwarder(&settings);
    let plain = query("web.example.", RecordType::A);
    let mut variants = [
        plain.clone(),
        plain.clone(),
        with_edns(plain.clone(), 1232, 0),
        with_edns(plain.clone(), 1232, 0),
    ];
    variants[0].metadata.checking_disabled = true;
    variants[1].metadata.recursion_desired = false;
    variants[3].edns.as_mut().unwrap().set_dnssec_ok(true);
    for (count, query) in std::iter::once(&plain).chain(&variants).enumerate() {
        for _ in 0..2 {
            ask(&forwarder, query, Udp).await;
            assert_eq!(resolver.queries("web").len(), count + 1, "{query}");
        }
    }
    // A cookie is hop-by-hop: it is neither part of the cache key nor forwarded.
    let with = |code, data: &[u8]| {
        let mut query = variants[2].clone();
        let options = query.edns.as_mut().unwrap().options_mut();
        options.insert(EdnsOption::Unknown(code, data.to_vec()));
        query
    };
    ask(&forwarder, &with(10, &[1; 8]), Udp).await;
    assert_eq!(resolver.queries("web").len(), 5);
    // A query with a client subnet is forwarded, and its reply is not cached.
    for count in 6..8 {
        ask(&forwarder, &with(8, &[0, 1, 24, 0, 192, 0, 2]), Udp).await;
        let all = resolver.queries("web");
        assert_eq!(all.len(), count);
        let edns = all[count - 1].query.edns.as_ref().unwrap();
        assert!(!edns.options().as_ref().is_empty());
    }
    settings.cache_bytes = 0;
    let uncached = super::forwarder(&settings);
    for count in 8..10 {
        ask(&uncached, &plain, Udp).await;
        assert_eq!(resolver.queries("web").len(), count);
    }
}

#[tokio::test]
async fn cache_stays_within_its_size() {
    let resolver = Resolver::start(1).await;
    let forwarder = forwarder(&Settings {
        cache_bytes: 64 << 10,
        ..settings(&[resolver.addr])
    });
    for n in 0..2000 {
        a(&forwarder, &format!("n{n}.example.")).await;
    }
    assert_eq!(resolver.queries("n").len(), 2000);
    for n in 0..2000 {
        a(&forwarder, &format!("n{n}.example.")).await;
    }
    // An entry has more than a hundred bytes, so most entries have been evicted, but not all.
    let resent = resolver.queries("n").len() - 2000;
    assert!((1400..2000).contains(&resent), "{resent}");
}

#[tokio::test]
async fn cached_reply_needs_no_waiting() {
    let resolver = Resolver::start(1).await;
    let forwarder = forwarder(&settings(&[resolver.addr]));
    let query = query("web.example.", RecordType::A);
    let (packet, name) = (query.to_vec().unwrap(), query.queries[0].name());
    let begin = || forwarder.begin(&packet, name, RecordType::A, Udp, CLIENT);
    let Started::Waiting(answer) = begin() else {
        panic!("the cache is empty");
    };
    let waited = answer.await;
    let Started::Answered(answer) = begin() else {
        panic!("the reply is cached");
    };
    assert_eq!(answer, waited);
}
