//! The random case of names in queries over UDP, with resolvers that repeat it, change it, and forge
//! replies that cannot know it.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use std::collections::HashSet;

use futures::future::join_all;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use prometheus_client::registry::Registry;
use transom_discovery::dns::forward::{Forwarder, Metrics};

use super::Transport::{Tcp, Udp};
use super::common::{query, wait_until};
use super::resolver::Resolver;
use super::{a, ask, code, data, forwarder, settings};

/// A forwarder to this resolver, and a reader of its metrics.
fn measured(resolver: &Resolver) -> (Forwarder, impl Fn(&str) -> u64 + use<>) {
    let mut registry = Registry::default();
    let forwarder = Forwarder::new(&settings(&[resolver.addr]), Metrics::register(&mut registry));
    let label = format!("{{upstream=\"{}\"}} ", resolver.addr);
    let value = move |metric: &str| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = format!("transom_discovery_upstream_{metric}{label}");
        let value = text.lines().find_map(|it| it.strip_prefix(&line));
        value
            .unwrap_or_else(|| panic!("no {line} in\n{text}"))
            .parse()
            .unwrap()
    };
    (forwarder, value)
}

/// The spellings of the names in the queries with this prefix over UDP.
fn spellings(resolver: &Resolver, prefix: &str) -> Vec<String> {
    let queries = resolver.queries(prefix).into_iter().filter(|query| !query.tcp);
    queries
        .map(|query| query.query.queries[0].name().to_string())
        .collect()
}

#[tokio::test]
async fn names_are_sent_in_random_case_and_returned_in_the_clients() {
    let resolver = Resolver::start(1).await;
    let (forwarder, value) = measured(&resolver);
    let names: Vec<_> = (0..20)
        .map(|n| format!("Letters{n}.of.a.long.name.Example."))
        .collect();
    for (name, reply) in names
        .iter()
        .zip(join_all(names.iter().map(|name| a(&forwarder, name))).await)
    {
        assert_eq!(data(&reply), ["192.0.2.1"]);
        assert_eq!(reply.queries[0].name().to_string(), *name);
        assert_eq!(reply.answers[0].name.to_string(), *name);
    }
    let sent = spellings(&resolver, "letters");
    let suffixes: HashSet<_> = sent.iter().map(|name| name.split_once('.').unwrap().1).collect();
    assert!(sent.len() == 20 && suffixes.len() > 15, "{sent:?}");
    // Another spelling of a name gets the cached reply, in its own case.
    let upper = names[0].to_ascii_uppercase();
    let reply = a(&forwarder, &upper).await;
    assert_eq!(
        (
            reply.queries[0].name().to_string(),
            reply.answers[0].name.to_string()
        ),
        (upper.clone(), upper)
    );
    assert_eq!(resolver.queries("letters0.").len(), 1);
    assert_eq!((value("case_mismatches_total"), value("random_case")), (0, 1));
    // Over TCP nobody off the path can forge a reply.
    ask(&forwarder, &query("Plain.Example.", RecordType::A), Tcp).await;
    let name = resolver.queries("plain")[0].query.queries[0].name().to_string();
    assert_eq!(name, "Plain.Example.");
    forwarder.stop().await;
}

#[tokio::test]
async fn forged_reply_with_the_id_and_another_case_is_not_used() {
    let resolver = Resolver::start(1).await;
    let (forwarder, value) = measured(&resolver);
    // The reply follows the forged one.
    let name = "guessed.by.somebody.off.the.path.example.";
    assert_eq!(data(&a(&forwarder, name).await), ["192.0.2.1"]);
    assert!(value("case_mismatches_total") > 0);
    assert!(resolver.queries("guessed").iter().all(|query| !query.tcp));
    // The forged reply stays the only one, so the resolver is asked over TCP.
    let name = "alone.before.a.late.reply.example.";
    assert_eq!(data(&a(&forwarder, name).await), ["192.0.2.1"]);
    assert!(resolver.queries("alone").iter().any(|query| query.tcp));
    forwarder.stop().await;
}

#[tokio::test]
async fn resolver_that_changes_case_is_queried_in_the_clients_case_until_a_probe_succeeds() {
    let resolver = Resolver::start(1).await;
    resolver.set_lowercases(true);
    let (forwarder, value) = measured(&resolver);
    let name = "First.Name.In.Lower.Case.Example.";
    let reply = a(&forwarder, name).await;
    assert_eq!(data(&reply), ["192.0.2.1"]);
    assert_eq!(reply.queries[0].name().to_string(), name);
    assert_eq!(reply.answers[0].name.to_string(), name);
    wait_until("the probe", async || value("random_case") == 0).await;
    // No further query needs a second one.
    for n in 0..5 {
        let name = format!("Next{n}.Example.");
        assert_eq!(data(&a(&forwarder, &name).await), ["192.0.2.1"]);
        assert_eq!(spellings(&resolver, &format!("next{n}")), [name]);
        assert_eq!(resolver.queries(&format!("next{n}")).len(), 1);
    }
    resolver.set_lowercases(false);
    wait_until("a probe that succeeds", async || value("random_case") == 1).await;
    let name = "again.in.random.case.with.many.letters.example.";
    assert_eq!(data(&a(&forwarder, name).await), ["192.0.2.1"]);
    assert_ne!(spellings(&resolver, "again"), [name]);
    forwarder.stop().await;
}

#[tokio::test]
async fn resolver_that_changes_case_and_has_no_tcp_answers_too() {
    let resolver = Resolver::start_udp_only(1).await;
    resolver.set_lowercases(true);
    let forwarder = forwarder(&settings(&[resolver.addr]));
    let reply = a(&forwarder, "Only.Over.Udp.Example.").await;
    assert_eq!(data(&reply), ["192.0.2.1"]);
    // The second query has another id and port.
    let queries = resolver.queries("only");
    let own = |query: &&super::resolver::ReceivedQuery| {
        query.query.queries[0].name().to_string() == "Only.Over.Udp.Example."
    };
    let (plain, first) = (queries.iter().find(own).unwrap(), &queries[0]);
    assert!(plain.from != first.from && plain.id != first.id, "{queries:?}");
    let nx = ask(&forwarder, &query("nx.example.", RecordType::A), Udp).await;
    assert_eq!(code(&nx), ResponseCode::NXDomain);
    forwarder.stop().await;
}
