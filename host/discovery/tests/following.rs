//! Discovery behind its ports while the cluster changes, fails and comes back.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests: a failure is their answer.

mod common;

use common::{Followed, Master, MasterScript, query, until, with_edns};
use hickory_proto::op::{Edns, OpCode, ResponseCode};
use hickory_proto::rr::{DNSClass, RecordType};
use serde_json::{Value, json};
use std::time::Duration;
use transom_discovery::source::StreamTimeouts;
use transom_discovery::{Config, Source};

fn agent(n: u32) -> Value {
    let id = format!("c1d2-S{n}");
    json!({"agent_info": {"hostname": "a", "id": {"value": id}}, "active": true, "pid": format!("slave(1)@10.0.0.1{n}:5051")})
}

fn task(n: u32, state: &str) -> Value {
    json!({
        "name": "web", "task_id": {"value": format!("web.{n}")}, "framework_id": {"value": "F"},
        "agent_id": {"value": "c1d2-S0"}, "state": state,
        "resources": [{"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 31000 + n, "end": 31000 + n}]}}],
    })
}

fn updated(n: u32, state: &str) -> Value {
    let status = json!({"task_id": {"value": format!("web.{n}")}, "state": state, "timestamp": 1.0});
    json!({"type": "TASK_UPDATED", "task_updated": {"framework_id": {"value": "F"}, "status": status, "state": state}})
}

fn snapshot(agents: u32, tasks: &[Value]) -> Value {
    json!({
        "get_agents": {"agents": (0..agents).map(agent).collect::<Vec<_>>()},
        "get_frameworks": {"frameworks": [{"framework_info": {"user": "u", "name": "marathon", "id": {"value": "F"}, "hostname": "10.9.9.9"}}]},
        "get_tasks": {"tasks": tasks},
    })
}

fn document() -> Value {
    json!({"leader": "master@127.0.0.1:5050", "pid": "master@127.0.0.1:5050", "slaves": [], "frameworks": []})
}

async fn started(snapshot: Value, config: Config) -> (Master, Followed) {
    let says = MasterScript {
        document: Some(document()),
        snapshot: Some(snapshot),
        ..MasterScript::default()
    };
    let master = Master::start(says).await;
    let followed = master.followed(config).await;
    followed.ready().await;
    (master, followed)
}

#[tokio::test]
async fn task_has_records_while_running() {
    let (master, discovery) = started(snapshot(1, &[]), Config::default()).await;
    assert_eq!(discovery.a("leader.mesos.").await, ["127.0.0.1"]);
    assert_eq!(discovery.a("marathon.mesos.").await, ["10.9.9.9"]);
    assert_eq!(discovery.a("slave.mesos.").await, ["10.0.0.10"]);
    master
        .send(&json!({"type": "TASK_ADDED", "task_added": {"task": task(0, "TASK_STAGING")}}))
        .await;
    master.send(&updated(0, "TASK_STARTING")).await;
    // Another agent comes after it, so that it is known when these events have been followed.
    master
        .send(&json!({"type": "AGENT_ADDED", "agent_added": {"agent": agent(1)}}))
        .await;
    until("the agent", async || discovery.a("slave.mesos.").await.len() == 2).await;
    assert!(
        discovery.a("web.marathon.mesos.").await.is_empty(),
        "not running yet"
    );

    master.send(&updated(0, "TASK_RUNNING")).await;
    until("the task", async || {
        discovery.a("web.marathon.mesos.").await == ["10.0.0.10"]
    })
    .await;
    let (status, body) = discovery.get("/v1/services/_web._tcp.marathon.mesos.").await;
    assert_eq!(status, 200);
    let row = json!([{
        "service": "_web._tcp.marathon.mesos.", "host": "web-q9rt1-s0.marathon.slave.mesos.", "ip": "10.0.0.10", "port": "31000",
    }]);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), row);

    master.send(&updated(0, "TASK_FINISHED")).await;
    until("its end", async || {
        discovery.a("web.marathon.mesos.").await.is_empty()
    })
    .await;
    master
        .send(&json!({"type": "AGENT_REMOVED", "agent_removed": {"agent_id": {"value": "c1d2-S1"}}}))
        .await;
    until("the agent's end", async || {
        discovery.a("slave.mesos.").await == ["10.0.0.10"]
    })
    .await;
    discovery.stop().await;
}

#[tokio::test]
async fn lookups_fail_before_the_first_zone() {
    let master = Master::start(MasterScript {
        refusal: 503,
        ..MasterScript::default()
    })
    .await;
    let discovery = master.followed(Config::default()).await;
    assert!(!discovery.discovery.ready());
    let answer = discovery.udp(&query("leader.mesos.", RecordType::A)).await;
    assert_eq!(
        (answer.metadata.response_code, answer.metadata.authoritative),
        (ResponseCode::ServFail, false)
    );
    for path in [
        "/v1/hosts/leader.mesos",
        "/v1/services/_x._tcp.y.mesos",
        "/v1/enumerate",
    ] {
        assert_eq!(discovery.get(path).await.0, 503, "{path}");
    }
    for path in ["/v1/version", "/v1/config"] {
        assert_eq!(discovery.get(path).await.0, 200, "{path}");
    }
    // The cluster comes up later.
    master.set(|says| (says.document, says.snapshot) = (Some(document()), Some(snapshot(1, &[]))));
    discovery.ready().await;
    assert_eq!(discovery.a("leader.mesos.").await, ["127.0.0.1"]);
    discovery.stop().await;
}

#[tokio::test]
async fn last_zone_stays_in_service_during_an_outage() {
    let (master, discovery) = started(snapshot(1, &[task(0, "TASK_RUNNING")]), Config::default()).await;
    assert_eq!(discovery.a("web.marathon.mesos.").await, ["10.0.0.10"]);
    master.set(|says| (says.snapshot, says.refusal, says.document) = (None, 503, None));
    master.hang_up();
    until("attempts to follow again", async || master.asked() >= 3).await;
    assert_eq!(discovery.a("web.marathon.mesos.").await, ["10.0.0.10"]);
    assert_eq!(discovery.get("/v1/hosts/leader.mesos").await.0, 200);
    // Back, with another task: what was missed shows.
    let back = snapshot(1, &[task(0, "TASK_RUNNING"), task(1, "TASK_RUNNING")]);
    master.set(|says| (says.snapshot, says.document) = (Some(back), Some(document())));
    let services = async || {
        discovery
            .udp(&query("_web._tcp.marathon.mesos.", RecordType::SRV))
            .await
            .answers
            .len()
    };
    until("the other task", async || services().await == 2).await;
    assert!(
        discovery
            .metrics()
            .contains("transom_discovery_reconnects_total 1"),
        "{}",
        discovery.metrics()
    );
    discovery.stop().await;
}

#[tokio::test]
async fn full_comparison_finds_changes_missing_from_the_stream() {
    let config = Config {
        refresh_seconds: 1,
        ..Config::default()
    };
    let (master, discovery) = started(snapshot(2, &[]), config).await;
    assert_eq!(discovery.a("slave.mesos.").await.len(), 2);
    // An agent became unreachable: no event.
    master.set(|says| says.snapshot = Some(snapshot(1, &[])));
    until("the comparison", async || {
        discovery.a("slave.mesos.").await == ["10.0.0.10"]
    })
    .await;
    // The second stream is the one that is followed now.
    master
        .send(&json!({"type": "TASK_ADDED", "task_added": {"task": task(0, "TASK_RUNNING")}}))
        .await;
    master.set(|says| says.snapshot = Some(snapshot(1, &[task(0, "TASK_RUNNING")])));
    until("the task", async || {
        discovery.a("web.marathon.mesos.").await == ["10.0.0.10"]
    })
    .await;
    assert!(master.subscribed() >= 2);
    discovery.stop().await;
}

#[tokio::test]
async fn invalid_event_is_skipped_and_counted() {
    let (master, discovery) = started(snapshot(1, &[]), Config::default()).await;
    for event in [
        json!({"type": "TASK_ADDED", "task_added": {"task": {"name": 5}}}),
        json!({"type": "AGENT_ADDED"}),
        json!({"type": "AGENT_ADDED", "agent_added": {"agent": {"agent_info": {"hostname": ""}}}}),
        json!({"type": "NEWER_THAN_THIS"}),
        json!({"type": "TASK_ADDED", "task_added": {"task": task(0, "TASK_RUNNING")}}),
    ] {
        master.send(&event).await;
    }
    until("the task behind them", async || {
        discovery.a("web.marathon.mesos.").await == ["10.0.0.10"]
    })
    .await;
    assert_eq!(master.subscribed(), 1, "the stream was not given up");
    until("the count", async || {
        discovery
            .metrics()
            .contains("transom_discovery_zone_invalid_entries 3")
    })
    .await;
    discovery.stop().await;
}

#[tokio::test]
async fn invalid_entries_do_not_hide_others() {
    let mut odd = snapshot(1, &[json!({"name": 5}), task(0, "TASK_RUNNING"), json!(null)]);
    let agents = odd["get_agents"]["agents"].as_array_mut().unwrap();
    agents.insert(0, json!({"agent_info": "S1"}));
    let (_master, discovery) = started(odd, Config::default()).await;
    assert_eq!(discovery.a("web.marathon.mesos.").await, ["10.0.0.10"]);
    let metrics = discovery.metrics();
    assert!(
        metrics.contains("transom_discovery_zone_invalid_entries 3"),
        "{metrics}"
    );
    discovery.stop().await;

    // The same where there is a state document alone.
    let mut odd: Value = serde_json::from_str(include_str!("fixtures/state-fixture.json")).unwrap();
    let before = odd["frameworks"].as_array().unwrap().len();
    odd["frameworks"]
        .as_array_mut()
        .unwrap()
        .push(json!({"id": "no name", "name": 5}));
    odd["frameworks"][0]["tasks"]
        .as_array_mut()
        .unwrap()
        .push(json!({"id": 5}));
    odd["slaves"].as_array_mut().unwrap().push(json!([]));
    let master = Master::start(MasterScript {
        document: Some(odd),
        refusal: 403,
        ..MasterScript::default()
    })
    .await;
    let discovery = master.followed(Config::default()).await;
    discovery.ready().await;
    let zone = discovery.discovery.zone().unwrap();
    assert_eq!(transom_discovery::enumerate::frameworks(&zone).count(), before);
    assert_eq!(zone.invalid_entries(), 3);
    discovery.stop().await;
}

#[tokio::test]
async fn master_without_stream_is_polled() {
    // Restricted, and old.
    for refusal in [403, 404] {
        let mut state: Value = serde_json::from_str(include_str!("fixtures/state-fixture.json")).unwrap();
        state["leader"] = json!("master@127.0.0.1:15050");
        let master = Master::start(MasterScript {
            document: Some(state),
            refusal,
            ..MasterScript::default()
        })
        .await;
        let discovery = master
            .followed(Config {
                refresh_seconds: 1,
                stream_timeouts: StreamTimeouts {
                    not_found: Duration::ZERO,
                    ..StreamTimeouts::default()
                },
                ..Config::default()
            })
            .await;
        discovery.ready().await;
        assert_eq!(discovery.a("car-store.marathon.mesos.").await, ["1.2.3.11"]);
        master.set(|says| says.document = Some(document()));
        until("the next document", async || {
            discovery.a("car-store.marathon.mesos.").await.is_empty()
        })
        .await;
        // It said no; it is not asked again each time.
        assert_eq!(master.asked(), 1, "{refusal}");
        assert_eq!(discovery.sources(), [("stream", false), ("polling", true)]);
        discovery.stop().await;
    }
}

#[tokio::test]
async fn restarting_master_is_followed_again_without_polling() {
    let (master, discovery) = started(snapshot(1, &[task(0, "TASK_RUNNING")]), Config::default()).await;
    assert_eq!(discovery.discovery.source(), Source::Stream);
    // The state document is there already, and empty: the master knows of no agent yet.
    master.set(|says| (says.snapshot, says.refusal) = (None, 404));
    let read = master.documents();
    master.hang_up();
    for (refusal, attempts) in [(404, 2), (503, 1)] {
        master.set(|says| says.refusal = refusal);
        let asked = master.asked();
        until("more attempts", async || master.asked() >= asked + attempts).await;
        assert_eq!(
            discovery.a("web.marathon.mesos.").await,
            ["10.0.0.10"],
            "{refusal}"
        );
        assert_eq!(discovery.discovery.source(), Source::None);
        assert_eq!(discovery.sources(), [("stream", false), ("polling", false)]);
    }
    assert_eq!(master.documents(), read, "the state document is not asked for");
    let back = snapshot(2, &[task(0, "TASK_RUNNING")]);
    master.set(|says| says.snapshot = Some(back));
    until("the stream", async || {
        discovery.discovery.source() == Source::Stream
    })
    .await;
    assert_eq!(discovery.sources(), [("stream", true), ("polling", false)]);
    until("the other agent", async || {
        discovery.a("slave.mesos.").await.len() == 2
    })
    .await;
    discovery.stop().await;
}

#[tokio::test]
async fn master_that_keeps_answering_404_is_polled_until_it_has_a_stream() {
    let config = Config {
        refresh_seconds: 1,
        stream_timeouts: StreamTimeouts {
            not_found: Duration::from_millis(500),
            not_found_at_first: Duration::from_millis(100),
            retry: Duration::from_millis(300),
        },
        ..Config::default()
    };
    let (master, discovery) = started(snapshot(1, &[]), config).await;
    let mut older = document();
    older["slaves"] = json!([{"id": "c1d2-S7", "pid": "slave(1)@10.0.0.17:5051", "hostname": "a"}]);
    master.set(|says| (says.snapshot, says.refusal, says.document) = (None, 404, Some(older)));
    master.hang_up();
    until("a poll", async || {
        discovery.a("slave.mesos.").await == ["10.0.0.17"]
    })
    .await;
    assert_eq!(discovery.discovery.source(), Source::Polling);
    assert_eq!(discovery.sources(), [("stream", false), ("polling", true)]);
    // It is tried again while it is polled, and without another loss.
    let asked = master.asked();
    until("more attempts", async || master.asked() >= asked + 2).await;
    assert_eq!(discovery.discovery.source(), Source::Polling);
    master.set(|says| says.snapshot = Some(snapshot(1, &[])));
    until("the stream", async || {
        discovery.a("slave.mesos.").await == ["10.0.0.10"]
    })
    .await;
    assert_eq!(discovery.discovery.source(), Source::Stream);
    assert_eq!(discovery.sources(), [("stream", true), ("polling", false)]);
    discovery.stop().await;
}

/// The update that the master makes when it gives an agent up.
fn agent_lost(n: u32, state: &str, reason: &str) -> Value {
    let mut update = updated(n, state);
    let status = &mut update["task_updated"]["status"];
    status["reason"] = json!(reason);
    status["source"] = json!("SOURCE_MASTER");
    status["agent_id"] = json!({"value": "c1d2-S0"});
    update
}

#[tokio::test]
async fn agent_records_are_removed_when_its_tasks_become_unreachable() {
    let config = Config {
        refresh_seconds: 3600,
        ..Config::default()
    };
    let (master, discovery) = started(snapshot(2, &[task(0, "TASK_RUNNING")]), config).await;
    for (state, reason) in [
        ("TASK_UNREACHABLE", "REASON_AGENT_REMOVED"),
        ("TASK_LOST", "REASON_AGENT_REMOVED"),
        ("TASK_GONE_BY_OPERATOR", "REASON_AGENT_REMOVED_BY_OPERATOR"),
    ] {
        assert_eq!(discovery.a("slave.mesos.").await, ["10.0.0.10", "10.0.0.11"]);
        assert_eq!(discovery.a("web.marathon.mesos.").await, ["10.0.0.10"]);
        // One that is only disconnected may be back in a moment.
        master
            .send(&json!({"type": "TASK_ADDED", "task_added": {"task": task(1, "TASK_RUNNING")}}))
            .await;
        master
            .send(&agent_lost(1, "TASK_LOST", "REASON_AGENT_DISCONNECTED"))
            .await;
        master
            .send(&json!({"type": "TASK_ADDED", "task_added": {"task": task(2, "TASK_RUNNING")}}))
            .await;
        let services = query("_web._tcp.marathon.mesos.", RecordType::SRV);
        until("the third task", async || {
            discovery.udp(&services).await.answers.len() == 2
        })
        .await;
        assert_eq!(discovery.a("slave.mesos.").await.len(), 2, "{state}");
        master.send(&agent_lost(2, state, reason)).await;
        master.send(&agent_lost(0, state, reason)).await;
        until("the agent's end", async || {
            discovery.a("slave.mesos.").await == ["10.0.0.11"]
                && discovery.a("web.marathon.mesos.").await.is_empty()
        })
        .await;
        // It is back, told in the order that was recorded.
        master
            .send(&json!({"type": "TASK_ADDED", "task_added": {"task": task(0, "TASK_RUNNING")}}))
            .await;
        master
            .send(&json!({"type": "AGENT_ADDED", "agent_added": {"agent": agent(0)}}))
            .await;
        until("the agent's return", async || {
            discovery.a("slave.mesos.").await.len() == 2
                && discovery.a("web.marathon.mesos.").await == ["10.0.0.10"]
        })
        .await;
    }
    discovery.stop().await;
}

#[tokio::test]
async fn resync_differences_count_missed_events_but_not_lost_agents() {
    let config = Config {
        refresh_seconds: 1,
        ..Config::default()
    };
    let tasks = [task(0, "TASK_RUNNING")];
    let (master, discovery) = started(snapshot(3, &tasks), config).await;
    let drift = || discovery.metric("transom_discovery_resync_differences_total");
    // Right after a comparison, so that no other one is under way.
    let read = master.documents();
    until("a comparison", async || master.documents() > read).await;
    assert_eq!(discovery.a("slave.mesos.").await.len(), 3);
    // S0 goes with its task, and S2, which has none, without a word.
    master
        .send(&agent_lost(0, "TASK_UNREACHABLE", "REASON_AGENT_REMOVED"))
        .await;
    let mut left = snapshot(2, &[]);
    left["get_agents"]["agents"] = json!([agent(1)]);
    master.set(|says| says.snapshot = Some(left));
    until("the comparison", async || {
        discovery.a("slave.mesos.").await == ["10.0.0.11"]
    })
    .await;
    assert_eq!(drift(), 0);
    // An agent and a task without an event.
    master.set(|says| says.snapshot = Some(snapshot(2, &tasks)));
    until("the next comparison", async || {
        discovery.a("web.marathon.mesos.").await == ["10.0.0.10"]
    })
    .await;
    assert_eq!(drift(), 2);
    discovery.stop().await;
}

/// The operator's stream of a real master while an agent died, came back, and another one
/// unregistered.
#[tokio::test]
async fn recorded_loss_of_an_agent_is_followed() {
    let recorded =
        include_str!("../../../tests/fixtures/cluster/2-agent-death/fast-operator-stream.events.json");
    let recorded: Vec<Value> = serde_json::from_str(recorded).unwrap();
    let mut events = recorded.into_iter().map(|entry| entry["event"].clone());
    let first = events.next().unwrap();
    assert_eq!(first["type"], "SUBSCRIBED");
    let config = Config {
        refresh_seconds: 3600,
        ..Config::default()
    };
    let (master, discovery) = started(first["subscribed"]["get_state"].clone(), config).await;
    // Both agents have one address, and each a port of its own.
    let agents = query("_slave._tcp.mesos.", RecordType::SRV);
    let mut seen = Vec::new();
    for event in events {
        let status = &event["task_updated"]["status"];
        let count = match (event["type"].as_str().unwrap(), status["state"].as_str()) {
            ("TASK_UPDATED", Some("TASK_UNREACHABLE")) | ("AGENT_REMOVED", _) => 1,
            ("AGENT_ADDED", _) => 2,
            _ => 0,
        };
        master.send(&event).await;
        if count > 0 {
            // The second agent has unregistered: one is left.
            until("the agents", async || {
                discovery.udp(&agents).await.answers.len() == count
            })
            .await;
            seen.push(count);
        }
    }
    assert_eq!(seen, [1, 2, 1]);
    assert!(
        discovery
            .metrics()
            .contains("transom_discovery_zone_invalid_entries 0.0\n")
    );
    discovery.stop().await;
}

#[tokio::test]
async fn answers_respect_the_edns_size() {
    let tasks: Vec<_> = (0..40).map(|n| task(n, "TASK_RUNNING")).collect();
    let (_master, discovery) = started(snapshot(1, &tasks), Config::default()).await;
    let srv = query("_web._tcp.marathon.mesos.", RecordType::SRV);
    let plain = discovery.udp(&srv).await;
    assert!(plain.metadata.truncation && plain.answers.len() < 10 && plain.edns.is_none());
    assert!(plain.to_vec().unwrap().len() <= 512);
    let larger = discovery.udp(&with_edns(srv.clone(), 4096, 0)).await;
    assert!(larger.metadata.truncation && larger.answers.len() > plain.answers.len());
    // A query with EDNS gets an answer with EDNS, truncated or not, with the supported size.
    let little = discovery.udp(&with_edns(srv.clone(), 600, 0)).await;
    assert!(little.metadata.truncation && little.to_vec().unwrap().len() <= 600);
    for answer in [&larger, &little] {
        assert_eq!(answer.edns.as_ref().map(Edns::max_payload), Some(1232));
    }
    assert!(
        larger.to_vec().unwrap().len() <= 1232,
        "4096 is more than passes everywhere"
    );
    // Everything over TCP, several questions on one connection.
    let all = discovery
        .tcp(&[srv.clone(), query("web.marathon.mesos.", RecordType::A), srv])
        .await;
    assert_eq!(
        all.iter().map(|answer| answer.answers.len()).collect::<Vec<_>>(),
        [40, 1, 40]
    );
    assert!(all.iter().all(|answer| !answer.metadata.truncation));
    discovery.stop().await;
}

#[tokio::test]
async fn additional_records_that_do_not_fit_are_omitted_without_tc() {
    let tasks: Vec<_> = (0..8).map(|n| task(n, "TASK_RUNNING")).collect();
    let (_master, discovery) = started(snapshot(1, &tasks), Config::default()).await;
    let answer = discovery
        .udp(&query("_web._tcp.marathon.mesos.", RecordType::SRV))
        .await;
    assert_eq!(answer.answers.len(), 8);
    assert!(answer.additionals.len() < 8, "{answer:?}");
    assert!(!answer.metadata.truncation, "{answer:?}");
    let more = discovery
        .udp(&with_edns(
            query("_web._tcp.marathon.mesos.", RecordType::SRV),
            1232,
            0,
        ))
        .await;
    assert_eq!(more.additionals.len(), 8, "{more:?}");
    assert_eq!(more.edns.unwrap().max_payload(), 1232);
    discovery.stop().await;
}

#[tokio::test]
async fn odd_queries_get_the_rcode_of_the_rfc() {
    let (_master, discovery) = started(snapshot(1, &[]), Config::default()).await;
    let ask = || query("leader.mesos.", RecordType::A);
    let mut notify = ask();
    notify.metadata.op_code = OpCode::Notify;
    let mut update = ask();
    update.metadata.op_code = OpCode::Update;
    let mut status = ask();
    status.metadata.op_code = OpCode::Status;
    let mut chaos = ask();
    chaos.queries[0].set_query_class(DNSClass::CH);
    let mut two = ask();
    two.add_query(two.queries[0].clone());
    let mut none = ask();
    none.queries.clear();
    let cases = [
        (ask(), ResponseCode::NoError),
        (notify, ResponseCode::Refused),
        (update, ResponseCode::Refused),
        (status, ResponseCode::NotImp),
        (chaos, ResponseCode::Refused),
        (two, ResponseCode::FormErr),
        (none, ResponseCode::FormErr),
        (query("example.com.", RecordType::A), ResponseCode::Refused),
        (query("mesos.", RecordType::AXFR), ResponseCode::Refused),
        (with_edns(ask(), 1232, 1), ResponseCode::BADVERS),
    ];
    for (query, code) in cases {
        let answer = discovery.udp(&query).await;
        // BADVERS and BADSIG are one number.
        let (is, due) = (u16::from(answer.metadata.response_code), u16::from(code));
        assert_eq!(is, due, "{query:?}");
        assert_eq!(answer.metadata.id, 4660);
        assert_eq!(answer.metadata.authoritative, code == ResponseCode::NoError);
    }
    let metrics = discovery.metrics();
    for line in [
        "transom_discovery_queries_total{qtype=\"A\",rcode=\"NOERROR\"} 1",
        "transom_discovery_queries_total{qtype=\"A\",rcode=\"REFUSED\"} 4",
        "transom_discovery_queries_total{qtype=\"other\",rcode=\"FORMERR\"} 2",
        "transom_discovery_refused_total{reason=\"outside\"} 1",
        "transom_discovery_refused_total{reason=\"transfer\"} 1",
        "transom_discovery_zone_records ",
        "transom_discovery_zone_serial ",
        "transom_discovery_zone_age_seconds ",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    discovery.stop().await;
}

#[tokio::test]
async fn start_fails_for_used_ports_and_invalid_settings() {
    let (_master, discovery) = started(snapshot(1, &[]), Config::default()).await;
    let client = transom_cluster::Client::new(transom_cluster::Config::default()).unwrap();
    let loopback = [127, 0, 0, 1].into();
    let free = Config {
        listener: loopback,
        http_listener: loopback,
        port: 0,
        http_port: 0,
        ..Config::default()
    };
    let (dns, http) = (
        discovery.discovery.dns_addr().unwrap(),
        discovery.discovery.http_addr().unwrap(),
    );
    let cases = [
        (
            Config {
                port: dns.port(),
                ..free.clone()
            },
            "--port dns=N",
        ),
        (
            Config {
                http_port: http.port(),
                ..free.clone()
            },
            "--port discovery=N",
        ),
        (
            Config {
                domain: "a..b".into(),
                ..free.clone()
            },
            "domain",
        ),
        (
            Config {
                domain: "mesos.".into(),
                ..free.clone()
            },
            "domain",
        ),
        (
            Config {
                dns_on: false,
                http_on: false,
                ..free.clone()
            },
            "both are off",
        ),
        (
            Config {
                refresh_seconds: 0,
                ..free.clone()
            },
            "refresh_seconds",
        ),
        (
            Config {
                ip_sources: vec![],
                ..free.clone()
            },
            "ip_sources",
        ),
        (
            Config {
                soa_mname: "x".repeat(64),
                ..free
            },
            "soa_mname",
        ),
    ];
    for (config, part) in cases {
        let mut registry = prometheus_client::registry::Registry::default();
        let token = tokio_util::sync::CancellationToken::new();
        let refused = config
            .start(client.clone(), &mut registry, token)
            .await
            .unwrap_err();
        assert!(refused.to_string().contains(part), "{refused}");
    }
    discovery.stop().await;
}
