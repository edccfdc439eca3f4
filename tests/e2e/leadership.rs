//! Several daemons on one store: one leads, the others answer reads and forward writes, and one of
//! them takes over when the leader ends. A leader that was suspended for longer than its lease
//! sends no more calls.

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
async fn standby_serves_the_user_interface_itself_and_forwards_its_requests() {
    let built = tempfile::tempdir().expect("a directory");
    fs::write(built.path().join("index.html"), "<script src=main.js></script>").expect("written");
    let site = Site::start_with(&format!("ui_dir = {:?}\n", built.path())).await;
    let standby = &site.second;
    for path in ["/", "/ui", "/ui/"] {
        let answer = standby.http.get(standby.apps(path)).send().await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.url().as_str(), standby.apps("/ui/"), "{path}");
        assert!(!answer.headers().contains_key("x-marathon-via"), "{answer:?}");
        let text = answer.text().await.expect("a page");
        assert_eq!(text, "<script src=main.js></script>");
    }
    let created = standby.post("/app0").await;
    assert!(created.headers().contains_key("x-marathon-via"), "{created:?}");
    standby.task("/app0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_answers_reads_and_forwards_other_requests() {
    let site = Site::start().await;
    let (leader, standby) = (&site.first, &site.second);
    for daemon in [leader, standby] {
        let leader_document = daemon.get("/v2/leader").await.unwrap();
        assert_eq!(leader_document, json!({"leader": leader.address()}));
        let info = daemon.get("/v2/info").await.unwrap();
        assert_eq!(info["elected"], true, "{info}");
        assert_eq!(info["leader"], leader.address());
    }

    // Requests are forwarded, and their effects are immediately visible at the standby that
    // forwarded them.
    for number in 0..10 {
        let app = format!("/app{number}");
        let answer = standby.post(&app).await;
        let headers = answer.headers();
        assert_eq!(headers["x-marathon-via"], standby.address().as_str());
        assert_eq!(
            headers["x-marathon-leader"],
            format!("http://{}", leader.address()).as_str()
        );
        let shown = standby.get(&format!("/v2/apps{app}")).await.unwrap();
        assert_eq!(shown["app"]["id"], app);
    }
    let id = leader.task("/app0").await;
    assert_eq!(standby.task("/app0").await, id);
    let queue = standby.get("/v2/queue").await.unwrap();
    assert!(
        queue["queue"].is_array(),
        "the queue is requested from the leader: {queue}"
    );

    // An error of the leader is returned unchanged, including its body.
    let again = standby.http.post(standby.apps("/v2/apps"));
    let again = again
        .json(&json!({"id": "/app0", "cmd": "true"}))
        .send()
        .await
        .unwrap();
    assert_eq!(again.status().as_u16(), 409);
    let text = again.text().await.unwrap();
    assert!(text.contains("already exists"), "{text}");

    // The event stream of a standby is redirected to the leader.
    let curious = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let redirect = curious
        .get(standby.apps("/v2/events?event_type=status_update_event"))
        .header("accept", "text/event-stream")
        .send()
        .await
        .unwrap();
    assert_eq!(redirect.status().as_u16(), 302);
    assert_eq!(
        redirect.headers()["location"],
        leader.apps("/v2/events?event_type=status_update_event").as_str()
    );

    let gone = standby
        .http
        .delete(standby.apps("/v2/apps/app0"))
        .send()
        .await
        .unwrap();
    assert_eq!(gone.status().as_u16(), 200);
    eventually("the deleted app to be gone from the standby", || async {
        match standby.get("/v2/apps/app0").await {
            Err(error) if error.starts_with("404") => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
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
async fn standby_forwards_with_the_credentials_and_the_address_of_its_client() {
    let site = Site::start_with(
        "trusted_networks = []\napi_username = \"user\"\napi_password = \"hunter2\"\n\
         api_read_only_username = \"reader\"\napi_read_only_password = \"hunter3\"\n",
    )
    .await;
    let (leader, standby) = (&site.first, &site.second);
    // An address that differs from the one from which the standby forwards.
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .local_address(std::net::IpAddr::from([127, 0, 0, 2]))
        .build()
        .unwrap();
    let app = json!({"id": "/web", "cmd": "sleep 1000", "cpus": 0.1, "mem": 16});
    for (user, password, method, path, expected) in [
        // The standby forwards this read, because only the leader has the queue.
        ("reader", "hunter3", "GET", "/v2/queue", 200),
        ("reader", "hunter3", "POST", "/v2/apps", 403),
        ("reader", "hunter3", "DELETE", "/v2/leader", 403),
        ("reader", "hunter2", "GET", "/v2/queue", 401),
        ("user", "hunter2", "POST", "/v2/apps", 201),
    ] {
        for daemon in [leader, standby] {
            let request = client.request(method.parse().unwrap(), daemon.apps(path));
            let request = request.basic_auth(user, Some(password)).json(&app);
            let status = request.send().await.unwrap().status().as_u16();
            // The app exists already when the second daemon receives the request.
            let exists = expected == 201 && std::ptr::eq(daemon, standby);
            assert_eq!(
                status,
                if exists { 409 } else { expected },
                "{user} {method} {path}"
            );
        }
    }
    let audited = |daemon: &Daemon| -> Vec<Value> {
        let lines = daemon.process.output();
        let events = lines
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events
            .filter(|event| event["target"] == "transom::audit")
            .collect()
    };
    let events = eventually("both changes in the leader's audit log", || async {
        let events = audited(leader);
        if events.len() == 2 {
            Ok(events)
        } else {
            Err(format!("{events:?}"))
        }
    })
    .await;
    for (event, status) in events.iter().zip([201, 409]) {
        assert_eq!(
            (&event["client"], &event["user"]),
            (&json!("127.0.0.2"), &json!("user")),
            "{event}"
        );
        assert_eq!(
            (&event["path"], &event["status"]),
            (&json!("/v2/apps"), &json!(status)),
            "{event}"
        );
    }
    assert!(events[0]["deployment"].is_string(), "{events:?}");
    assert!(audited(standby).is_empty(), "only the leader audits the changes");
    for daemon in [leader, standby] {
        let output = daemon.process.output();
        assert!(!output.contains("hunter"), "{output}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn named_tasks_are_killed_through_a_standby() {
    let site = Site::start().await;
    let standby = &site.second;
    standby.post("/web").await;
    let task = standby.task("/web").await;
    let kill = |query: &str, task: &str| {
        let url = standby.apps(&format!("/v2/tasks/delete{query}"));
        standby.http.post(url).json(&json!({"ids": [task]})).send()
    };
    let killed: Value = kill("", &task).await.unwrap().json().await.unwrap();
    assert_eq!(killed["tasks"][0]["id"], task.as_str(), "{killed}");
    let next = task.replace("._app.1", "._app.2");
    eventually("the next task of the same instance", || async {
        let seen = standby.task("/web").await;
        if seen == next { Ok(()) } else { Err(seen) }
    })
    .await;
    let scaled = kill("?scale=true", &next).await.unwrap();
    assert_eq!(scaled.status().as_u16(), 200);
    assert!(scaled.headers().contains_key("marathon-deployment-id"));
    assert_eq!(standby.get("/v2/apps/web").await.unwrap()["app"]["instances"], 0);
    let refused = kill("", "nonsense").await.unwrap();
    assert_eq!(refused.status().as_u16(), 400);
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
        let refused = |daemon: &Daemon, method: reqwest::Method, path: &str, body: Value| {
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
            refused(&first, post.clone(), "/v2/apps", app.clone()),
            refused(&second, post.clone(), "/v2/apps", app.clone()),
            refused(&first, put, "/v2/apps/kept", json!({"instances": 2})),
            refused(&second, delete, "/v2/apps/kept", json!({})),
            refused(&second, post.clone(), "/v2/tasks/delete?scale=true", given),
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
async fn a_leader_that_is_killed_is_replaced_and_every_task_is_kept() {
    let Site {
        cluster,
        _redis,
        gate: _gate,
        first,
        second,
        _dir,
    } = Site::start().await;
    first.post("/kept").await;
    let task = first.task("/kept").await;
    first.process.kill();
    // The request is sent before the other daemon detects the leader's death: it waits for the next
    // leader.
    second.post("/next").await;
    second.wait_until_ready(true).await;
    assert_eq!(second.task("/kept").await, task);
    second.task("/next").await;
    assert_eq!(cluster.launches()[&task], 1);
    assert_eq!(cluster.launches().len(), 2, "{:?}", cluster.launches());
    let (status, output) = second.process.interrupt();
    assert!(status.success(), "{output}");
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
    assert_eq!(
        first.get("/v2/leader").await.unwrap(),
        json!({"leader": second.address()})
    );
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
