//! Features of agents other than running tasks: checks, the files API, and commands inside running
//! tasks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use serde_json::{Value, json};
use std::time::Duration;
use support::{Cluster, EVENT_TIMEOUT, Framework, framework_info, task};
use transom_replay::client::{self, Request};

/// A listener on a free port of the agents' address that answers every request with `status`.
async fn serve_status(status: &'static str) -> (u16, tokio::task::JoinHandle<()>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = [0; 2048];
            let _ = socket.read(&mut head).await;
            let _ = socket
                .write_all(
                    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").as_bytes(),
                )
                .await;
        }
    });
    (port, serving)
}

fn quick_check(kind: &str, part: Value) -> Value {
    let mut check =
        json!({"type": kind, "delay_seconds": 0.0, "interval_seconds": 0.1, "timeout_seconds": 5.0});
    check[kind.to_ascii_lowercase()] = part;
    check
}

#[tokio::test]
async fn check_results_are_reported_when_they_change() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (port, serving) = serve_status("404 Not Found").await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    let with_own = json!({
        "value": "test \"$HOST $MINE $OWN\" = 'h a b check'",
        "environment": {"variables": [variable("OWN", "check")]},
    });
    let of_task =
        json!({"variables": [variable("HOST", "h"), variable("MINE", "a b"), variable("OWN", "task")]});
    let cases = [
        (
            "command",
            quick_check("COMMAND", json!({"command": {"value": "exit 7"}})),
            json!({"type": "COMMAND", "command": {}}),
            json!({"exit_code": 7}),
        ),
        (
            "environment",
            quick_check("COMMAND", json!({"command": with_own})),
            json!({"type": "COMMAND", "command": {}}),
            json!({"exit_code": 0}),
        ),
        (
            "http",
            quick_check("HTTP", json!({"port": port, "path": "/x"})),
            json!({"type": "HTTP", "http": {}}),
            json!({"status_code": 404}),
        ),
        (
            "tcp",
            quick_check("TCP", json!({"port": port})),
            json!({"type": "TCP", "tcp": {}}),
            json!({"succeeded": true}),
        ),
        (
            "closed",
            quick_check("TCP", json!({"port": closed})),
            json!({"type": "TCP", "tcp": {}}),
            json!({"succeeded": false}),
        ),
    ];
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    for (name, check, initial, found) in cases {
        let offer = framework.offer().await;
        let mut checked = task(name, &offer, "sleep 600");
        checked["check"] = check;
        checked["command"]["environment"] = of_task.clone();
        framework.launch(&offer, json!([checked])).await;
        let running = framework.wait_for_state(name, "TASK_RUNNING").await;
        assert_eq!(running["check_status"], initial, "{name}");
        let result = framework.wait_for_state(name, "TASK_RUNNING").await;
        assert_eq!(result["reason"], "REASON_TASK_CHECK_STATUS_UPDATED", "{name}");
        let kind = result["check_status"]["type"]
            .as_str()
            .unwrap()
            .to_ascii_lowercase();
        assert_eq!(result["check_status"][kind], found, "{name}");
    }
    serving.abort();
    cluster.stop().await;
}

#[tokio::test]
async fn a_task_that_stays_unhealthy_is_killed() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let mut sick = task("sick", &offer, "exec sleep 600");
    sick["health_check"] = quick_check("COMMAND", json!({"value": "test -f well"}));
    sick["health_check"]["consecutive_failures"] = json!(3);
    sick["health_check"]["grace_period_seconds"] = json!(0.0);
    framework.launch(&offer, json!([sick])).await;
    framework.wait_for_state("sick", "TASK_RUNNING").await;
    for _ in 0..3 {
        let failed = framework.wait_for_state("sick", "TASK_RUNNING").await;
        assert_eq!(failed["reason"], "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED");
        assert_eq!(failed["healthy"], false);
    }
    framework.wait_for_state("sick", "TASK_KILLING").await;
    let killed = framework.wait_for_state("sick", "TASK_KILLED").await;
    assert_eq!(killed["healthy"], false);
    cluster.stop().await;
}

#[tokio::test]
async fn health_follows_the_results_of_the_check() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let mut flapping = task("flapping", &offer, "exec sleep 600");
    let flip = "if [ -f ok ]; then rm ok; exit 1; else touch ok; exit 0; fi";
    flapping["health_check"] = quick_check("COMMAND", json!({"value": flip}));
    flapping["health_check"]["consecutive_failures"] = json!(5);
    framework.launch(&offer, json!([flapping])).await;
    framework.wait_for_state("flapping", "TASK_RUNNING").await;
    for expected in [true, false, true, false] {
        assert_eq!(
            framework.wait_for_state("flapping", "TASK_RUNNING").await["healthy"],
            expected
        );
    }
    cluster.stop().await;
}

/// Starts a task and returns the address of its agent and the path of its sandbox.
async fn start_sleeper(cluster: &Cluster, framework: &mut Framework) -> (String, String) {
    let offer = framework.offer().await;
    framework
        .launch(
            &offer,
            json!([task(
                "t",
                &offer,
                "echo out; echo err >&2; export X=1; exec sleep 600"
            )]),
        )
        .await;
    let status = framework.wait_for_state("t", "TASK_RUNNING").await;
    let agent = cluster.minicluster.agents()[0];
    let state = client::exchange(agent, &Request::get("/state"))
        .await
        .unwrap()
        .json();
    let directory = state["frameworks"][0]["executors"][0]["directory"]
        .as_str()
        .unwrap()
        .to_owned();
    (
        status["container_status"]["container_id"]["value"]
            .as_str()
            .unwrap()
            .to_owned(),
        directory,
    )
}

#[tokio::test]
async fn only_sandboxes_can_be_listed_and_read() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let (_, directory) = start_sleeper(&cluster, &mut framework).await;
    let agent = cluster.minicluster.agents()[0];
    let get = |target: String| async move { client::exchange(agent, &Request::get(target)).await.unwrap() };
    let entries = get(format!("/files/browse?path={directory}")).await.json();
    let names: Vec<&str> = entries
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["path"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [format!("{directory}/stderr"), format!("{directory}/stdout")]
    );
    let latest = format!("/frameworks/{}/executors/t/runs/latest/stdout", framework.id);
    for path in [format!("{directory}/stdout"), latest] {
        let end = std::time::Instant::now() + EVENT_TIMEOUT;
        loop {
            let read = get(format!("/files/read?path={path}&offset=0&length=100"))
                .await
                .json();
            if read == json!({"data": "out\n", "offset": 0}) {
                break;
            }
            assert!(std::time::Instant::now() < end, "{path}: {read}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let read = json!({"type": "READ_FILE", "read_file": {"path": format!("{directory}/stdout"), "offset": 1, "length": 2}});
    let response = client::exchange(agent, &Request::post("/slave(1)/api/v1", &read))
        .await
        .unwrap();
    assert_eq!(response.json()["read_file"], json!({"size": 4, "data": "dXQ="}));
    std::os::unix::fs::symlink("/etc", format!("{directory}/etc")).unwrap();
    for outside in [
        "/etc/passwd".to_owned(),
        format!("{directory}/../../../../../../../../journal.jsonl"),
        format!("{directory}/etc/passwd"),
    ] {
        let response = get(format!("/files/read?path={outside}&offset=0")).await;
        assert_eq!(response.head.code(), 404, "{outside}");
    }
    cluster.stop().await;
}

fn nested_call(kind: &str, parent: &str, id: &str, command: Option<&str>) -> Value {
    let part = kind.to_ascii_lowercase();
    let mut call = json!({"type": kind});
    call[&part] = json!({"container_id": {"value": id, "parent": {"value": parent}}});
    if let Some(command) = command {
        call[&part]["command"] = json!({"value": command});
    }
    call
}

#[tokio::test]
async fn a_session_streams_its_output_and_its_status_can_be_waited_for() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let (container, _) = start_sleeper(&cluster, &mut framework).await;
    let agent = cluster.minicluster.agents()[0];
    let launch = nested_call(
        "LAUNCH_NESTED_CONTAINER_SESSION",
        &container,
        "s1",
        Some("echo hello; pwd >&2; exit 5"),
    );
    let request = Request::post("/api/v1", &launch)
        .with("Accept", "application/recordio")
        .with("Message-Accept", "application/json");
    let (head, mut stream) = client::open(agent, &request).await.unwrap();
    assert_eq!(head.code(), 200);
    let (mut stdout, mut stderr) = (String::new(), String::new());
    while let Some(record) = stream.record(EVENT_TIMEOUT).await.unwrap() {
        assert_eq!(record["type"], "DATA");
        let data = record["data"]["data"].as_str().unwrap().to_owned();
        if record["data"]["type"] == "STDOUT" {
            stdout += &data;
        } else {
            stderr += &data;
        }
    }
    assert_eq!(stdout, "aGVsbG8K", "hello, in base64");
    assert!(!stderr.is_empty());
    let wait = nested_call("WAIT_NESTED_CONTAINER", &container, "s1", None);
    let response = client::exchange(agent, &Request::post("/api/v1", &wait))
        .await
        .unwrap();
    assert_eq!(
        response.json(),
        json!({"type": "WAIT_NESTED_CONTAINER", "wait_nested_container": {"exit_status": 5 << 8}})
    );
    let remove = nested_call("REMOVE_NESTED_CONTAINER", &container, "s1", None);
    for expected in [200, 404] {
        assert_eq!(
            client::exchange(agent, &Request::post("/api/v1", &remove))
                .await
                .unwrap()
                .head
                .code(),
            expected
        );
    }
    let unknown = nested_call("LAUNCH_NESTED_CONTAINER_SESSION", "nobody", "s2", Some("true"));
    assert_eq!(
        client::exchange(agent, &Request::post("/api/v1", &unknown))
            .await
            .unwrap()
            .head
            .code(),
        404
    );
    cluster.stop().await;
}

#[tokio::test]
async fn a_session_ends_when_it_is_killed_and_when_its_task_ends() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let (container, _) = start_sleeper(&cluster, &mut framework).await;
    let agent = cluster.minicluster.agents()[0];
    let session = |id: &str| {
        Request::post(
            "/api/v1",
            &nested_call(
                "LAUNCH_NESTED_CONTAINER_SESSION",
                &container,
                id,
                Some("echo begun; sleep 600"),
            ),
        )
    };
    let (_, mut killed) = client::open(agent, &session("k")).await.unwrap();
    assert!(killed.record(EVENT_TIMEOUT).await.unwrap().is_some());
    let kill = nested_call("KILL_NESTED_CONTAINER", &container, "k", None);
    assert_eq!(
        client::exchange(agent, &Request::post("/api/v1", &kill))
            .await
            .unwrap()
            .head
            .code(),
        200
    );
    assert!(killed.record(EVENT_TIMEOUT).await.unwrap().is_none());
    let (_, mut with_task) = client::open(agent, &session("t")).await.unwrap();
    assert!(with_task.record(EVENT_TIMEOUT).await.unwrap().is_some());
    framework.kill("t").await;
    assert!(with_task.record(EVENT_TIMEOUT).await.unwrap().is_none());
    framework.wait_for_state("t", "TASK_KILLED").await;
    cluster.stop().await;
}

#[tokio::test]
async fn operator_stream_reports_frameworks_and_tasks() {
    let cluster = Cluster::start(1, |_| ()).await;
    let subscribe = Request::post("/api/v1", &json!({"type": "SUBSCRIBE"}));
    let (head, mut operator) = client::open(cluster.master(), &subscribe).await.unwrap();
    assert!(head.header("Mesos-Stream-Id").is_none());
    let subscribed = operator.record(EVENT_TIMEOUT).await.unwrap().unwrap();
    assert_eq!(
        subscribed["subscribed"]["get_state"]["get_agents"]["agents"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([task("t", &offer, "exit 0")]))
        .await;
    framework.wait_for_state("t", "TASK_FINISHED").await;
    framework.expect_accepted(json!({"type": "TEARDOWN"})).await;
    let mut event_names = Vec::new();
    while event_names.last().map(String::as_str) != Some("FRAMEWORK_REMOVED") {
        let event = operator.record(EVENT_TIMEOUT).await.unwrap().unwrap();
        let kind = event["type"].as_str().unwrap().to_owned();
        let state = event["task_updated"]["status"]["state"]
            .as_str()
            .map(str::to_owned);
        event_names.push(state.unwrap_or(kind));
    }
    let expected = [
        "HEARTBEAT",
        "FRAMEWORK_ADDED",
        "TASK_ADDED",
        "TASK_STARTING",
        "TASK_RUNNING",
        "TASK_FINISHED",
        "FRAMEWORK_REMOVED",
    ];
    assert_eq!(event_names, expected);
    cluster.stop().await;
}
