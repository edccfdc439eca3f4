//! Several daemons on one store: one leads, the others answer reads and forward writes, and one of
//! them takes over when the leader ends. A leader that was suspended for longer than its lease
//! sends no more calls.

mod standby;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_testkit::redis::RedisServer;
use transom_tests::events::{Events, Frame};
use transom_tests::gate::Gate;
use transom_tests::http;
use transom_tests::process::Transom;
use transom_tests::site::{Cluster, addresses, copy_components};

/// In seconds. The configuration allows less, but a busy machine may stall for longer than the
/// minimum.
const LEASE: u64 = 2;

struct Daemon {
    process: Transom,
    addresses: BTreeMap<String, SocketAddr>,
    http: reqwest::Client,
}

impl Daemon {
    /// `apps`: additional settings of `[apps]`.
    fn start(dir: &Path, name: &str, master: SocketAddr, store: SocketAddr, apps: &str) -> Daemon {
        let file = format!("{name}.toml");
        let configuration = format!(
            "[log]\nformat = \"json\"\n[cluster]\nmaster = \"{master}\"\n\
             [store]\nserver = \"{store}\"\nlease_seconds = {LEASE}\n\
             [plugins]\ndir = \"plugins\"\n[admin]\nport = 0\n[apps]\nport = 0\n{apps}"
        );
        fs::write(dir.join(&file), configuration).expect("written");
        let mut process = Transom::start(dir, ["serve", "--config", file.as_str()]);
        let addresses = addresses(&mut process);
        Daemon {
            process,
            addresses,
            http: http(),
        }
    }

    fn apps(&self, path: &str) -> String {
        format!("http://{}{path}", self.addresses["apps"])
    }

    fn address(&self) -> String {
        self.addresses["apps"].to_string()
    }

    async fn get(&self, path: &str) -> Result<Value, String> {
        let answer = self.http.get(self.apps(path)).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| error.to_string())?;
        if !status.is_success() {
            return Err(format!("{status} {text}"));
        }
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }

    /// Waits until it is ready, leading or standing by.
    async fn wait_until_ready(&self, leading: bool) {
        let ready = format!("http://{}/ready", self.addresses["admin"]);
        eventually(&format!("a daemon that is ready, leading: {leading}"), || async {
            let answer = self.http.get(&ready).send().await;
            let answer = answer.map_err(|error| error.to_string())?;
            let seen: Value = answer.json().await.map_err(|error| error.to_string())?;
            if seen["ready"] == true && seen["services"]["apps"]["framework"]["leading"] == leading {
                Ok(())
            } else {
                Err(seen.to_string())
            }
        })
        .await;
    }

    async fn post(&self, app: &str) -> reqwest::Response {
        let app = json!({"id": app, "cmd": "sleep 1000", "cpus": 0.1, "mem": 16});
        let answer = self.http.post(self.apps("/v2/apps")).json(&app).send().await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status().as_u16(), 201, "{answer:?}");
        answer
    }

    /// Waits until the app's only task is running; returns the task id.
    async fn task(&self, app: &str) -> String {
        eventually(&format!("the task of {app}"), || async {
            let document = self.get(&format!("/v2/apps{app}/tasks")).await?;
            match document["tasks"].as_array().map(Vec::as_slice) {
                Some([task]) if task["state"] == "TASK_RUNNING" => {
                    Ok(task["id"].as_str().expect("an id").to_owned())
                }
                _ => Err(document.to_string()),
            }
        })
        .await
    }
}

/// Cluster, store and two daemons, the first of which reaches its master through a gate.
struct Site {
    cluster: Cluster,
    _redis: RedisServer,
    gate: Gate,
    first: Daemon,
    second: Daemon,
    _dir: tempfile::TempDir,
}

impl Site {
    /// Starts everything; the first daemon leads.
    async fn start() -> Site {
        Site::start_with("").await
    }

    /// Starts everything, with additional settings of `[apps]`.
    async fn start_with(apps: &str) -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        copy_components(&dir.path().join("plugins"));
        let (cluster, redis) = (Cluster::start(dir.path()), RedisServer::in_memory().started());
        let gate = Gate::before(cluster.master).await;
        let first = Daemon::start(dir.path(), "first", gate.address, redis.address(), apps);
        first.wait_until_ready(true).await;
        let second = Daemon::start(dir.path(), "second", cluster.master, redis.address(), apps);
        second.wait_until_ready(false).await;
        Site {
            cluster,
            _redis: redis,
            gate,
            first,
            second,
            _dir: dir,
        }
    }

    /// The tasks of an app that were ever launched.
    fn launched(&self, app: &str) -> Vec<String> {
        let launches = self.cluster.launches();
        let of_app = launches
            .into_iter()
            .filter(|(task, _)| task.starts_with(&format!("{app}.")));
        of_app
            .flat_map(|(task, times)| std::iter::repeat_n(task, times))
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_abdicates_becomes_a_standby_and_every_task_is_kept() {
    let site = Site::start().await;
    let (first, second) = (&site.first, &site.second);
    first.post("/kept").await;
    let task = first.task("/kept").await;
    // A standby forwards the request to the leader.
    let answer = second
        .http
        .delete(second.apps("/v2/leader"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    let body: Value = answer.json().await.unwrap();
    assert_eq!(body, json!({"message": "Leadership abdicated"}));
    second.wait_until_ready(true).await;
    first.wait_until_ready(false).await;
    for daemon in [first, second] {
        let leader_document = daemon.get("/v2/leader").await.unwrap();
        assert_eq!(leader_document, json!({"leader": second.address()}));
        assert_eq!(daemon.task("/kept").await, task);
    }
    // The former leader forwards requests now.
    let answer = first.post("/next").await;
    assert_eq!(answer.headers()["x-marathon-via"], first.address().as_str());
    second.task("/next").await;
    assert_eq!(site.launched("kept"), [task]);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_receive_503_from_every_daemon_during_a_store_outage() {
    let Site {
        cluster,
        _redis: redis,
        gate: _gate,
        first,
        second,
        _dir,
    } = Site::start().await;
    first.post("/kept").await;
    let task = first.task("/kept").await;
    assert_eq!(second.task("/kept").await, task);
    drop(redis);
    // First while there is still a leader, and again when the lease has expired and none can be
    // elected.
    for lease_over in [false, true] {
        if lease_over {
            for daemon in [&first, &second] {
                let ready = format!("http://{}/ready", daemon.addresses["admin"]);
                eventually("a daemon that does not lead", || async {
                    let answer = daemon.http.get(&ready).send().await;
                    let seen: Value = answer
                        .map_err(|error| error.to_string())?
                        .json()
                        .await
                        .map_err(|error| error.to_string())?;
                    if seen["ready"] == false && seen["services"]["apps"]["framework"]["leading"] == false {
                        Ok(())
                    } else {
                        Err(seen.to_string())
                    }
                })
                .await;
            }
        }
        let rejected = |daemon: &Daemon, method: reqwest::Method, path: &str, body: Value| {
            let sent = daemon.http.request(method, daemon.apps(path)).json(&body).send();
            async move {
                let answer = sent.await.expect("an answer");
                let (status, later) = (
                    answer.status().as_u16(),
                    answer.headers().get("retry-after").cloned(),
                );
                let text = answer.text().await.expect("a text");
                assert_eq!(status, 503, "the lease is over: {lease_over}: {text}");
                assert!(later.is_some(), "{text}");
                let body: Value = serde_json::from_str(&text).expect("JSON");
                assert!(body["message"].is_string(), "{text}");
            }
        };
        let app = json!({"id": "/new", "cmd": "sleep 1000"});
        let given = json!({"ids": [task]});
        let (post, put, delete) = (
            reqwest::Method::POST,
            reqwest::Method::PUT,
            reqwest::Method::DELETE,
        );
        tokio::join!(
            rejected(&first, post.clone(), "/v2/apps", app.clone()),
            rejected(&second, post.clone(), "/v2/apps", app.clone()),
            rejected(&first, put, "/v2/apps/kept", json!({"instances": 2})),
            rejected(&second, delete, "/v2/apps/kept", json!({})),
            rejected(&second, post.clone(), "/v2/tasks/delete?scale=true", given),
        );
        for daemon in [&first, &second] {
            let shown = daemon.get("/v2/apps/kept").await.expect("the last known");
            assert_eq!(shown["app"]["instances"], 1);
        }
    }
    first.process.kill();
    second.process.kill();
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_paused_past_its_lease_sends_no_more_calls() {
    let site = Site::start().await;
    let (first, second, gate) = (&site.first, &site.second, &site.gate);
    first.post("/kept").await;
    let kept = first.task("/kept").await;

    // The leader's launch is delayed when the leader is paused for longer than its lease.
    gate.delay("ACCEPT");
    first.post("/contested").await;
    let delayed = gate
        .wait_for_delayed_call("an ACCEPT that is held back", |_| true)
        .await;
    let launch = &delayed.call["accept"]["operations"][0]["launch"]["task_infos"][0];
    let open = launch["task_id"]["value"].as_str().expect("a launch").to_owned();
    assert!(open.starts_with("contested."), "{open}");
    first.process.pause();

    // The other daemon takes over, and places the app itself.
    second.wait_until_ready(true).await;
    let contested = second.task("/contested").await;
    assert_ne!(contested, open);

    // The delayed launch arrives after the takeover.
    gate.release();
    let answered = gate
        .wait_for_delayed_call("the answer to the launch", |delayed| delayed.answer.is_some())
        .await;
    let answer = answered.answer.expect("an answer");
    assert!(answer.contains(" 400 ") || answer.contains(" 403 "), "{answer}");

    // The first daemon resumes and learns the new leader. It has sent no call to the master in
    // between.
    let calls = gate.calls();
    first.process.resume();
    first.wait_until_ready(false).await;
    eventually("the new leader", || async {
        let leader = first.get("/v2/leader").await?;
        let known = leader == json!({"leader": second.address()});
        if known { Ok(()) } else { Err(leader.to_string()) }
    })
    .await;
    // Requests to the first daemon are executed by the leader, and their effects are visible at the
    // first daemon.
    first.post("/later").await;
    first.task("/later").await;
    assert_eq!(gate.calls(), calls, "calls of a daemon that does not lead");

    assert_eq!(site.launched("contested"), std::slice::from_ref(&contested));
    assert_eq!(site.launched("kept"), std::slice::from_ref(&kept));
    assert_eq!(second.task("/contested").await, contested);

    // When the first daemon is elected again, it subscribes again, and every task is unchanged.
    let (before, later) = (calls.len(), second.task("/later").await);
    let Site {
        cluster,
        _redis,
        gate,
        first,
        second,
        _dir,
    } = site;
    second.process.kill();
    first.wait_until_ready(true).await;
    let calls = gate.calls().split_off(before);
    assert_eq!(calls.first().map(String::as_str), Some("SUBSCRIBE"), "{calls:?}");
    assert_eq!(first.task("/contested").await, contested);
    assert_eq!(first.task("/kept").await, kept);
    assert_eq!(first.task("/later").await, later);
    let launches = cluster.launches();
    assert_eq!(launches.len(), 3, "{launches:?}");
    assert!(launches.values().all(|times| *times == 1), "{launches:?}");
}

/// The client knows only one daemon, whether it leads or not.
#[tokio::test(flavor = "multi_thread")]
async fn stream_resumes_through_a_standby_and_reports_a_gap_after_a_change_of_leader() {
    let site = Site::start().await;
    let url = site.second.apps("/v2/events?event_type=api_post_event&ids=true");
    let http = &site.second.http;
    let id = |event: &Frame| event.data["appDefinition"]["id"].clone();
    let mut events = Events::open(http, &url).await;
    site.first.post("/a0").await;
    let mut last = events.next().await.expect("an event");
    assert_eq!(id(&last), "/a0");
    for round in 1..4 {
        drop(events);
        let missed = [format!("/a{round}0"), format!("/a{round}1")];
        site.first.post(&missed[0]).await;
        site.second.post(&missed[1]).await;
        events = Events::resume(http, &url, last.id.as_deref().expect("an id")).await;
        for app in missed {
            let next = events.next().await.expect("an event");
            assert_eq!(id(&next), app.as_str());
            assert!(next.sequence() > last.sequence());
            last = next;
        }
    }
    // The leader ends its streams when it stops leading.
    let gone = http
        .delete(site.first.apps("/v2/leader"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(gone.status().as_u16(), 200);
    let more = events.next().await;
    assert!(more.is_none(), "an unexpected event: {more:?}");
    site.second.wait_until_ready(true).await;
    site.first.wait_until_ready(false).await;
    let url = site.first.apps("/v2/events?event_type=api_post_event");
    let mut events = Events::resume(http, &url, last.id.as_deref().expect("an id")).await;
    let gap = events.next().await.expect("an event");
    assert_eq!(
        (gap.event.as_str(), &gap.data["from"]),
        ("event_stream_gap", &json!(last.id))
    );
    site.second.post("/next").await;
    assert_eq!(id(&events.next().await.expect("an event")), "/next");
}
