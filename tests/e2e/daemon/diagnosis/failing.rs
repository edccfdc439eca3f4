//! Apps whose tasks fail, as the overview and the commands explain them.

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::plugin::{Plugin, remove};
use transom_tests::site::Site;

use super::{json_of, run, text, wait_for_overview};

/// A program that answers each request with 503.
const UNAVAILABLE: &str = r#"exec perl -e 'use Socket; socket(S, PF_INET, SOCK_STREAM, 0) or die $!; bind(S, sockaddr_in($ENV{PORT0}, INADDR_ANY)) or die $!; listen(S, 64) or die $!; while (accept(C, S)) { sysread(C, $r, 8192); syswrite(C, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"); close(C) }'"#;

/// An app whose third failure follows within seconds, and the next one much later.
fn failing_app(id: &str, program: &Value) -> Value {
    let mut app = json!({
        "id": id, "cpus": 0.1, "mem": 32, "backoffSeconds": 1, "backoffFactor": 6, "maxLaunchDelaySeconds": 3600,
    });
    let fields = program.as_object().expect("an object");
    app.as_object_mut().expect("an object").extend(fields.clone());
    app
}

/// The problem of an app in the overview, once its message has this beginning.
async fn wait_for_problem(site: &Site, beginning: &str) -> String {
    let message = |found: &Value| {
        let problems = found["problems"].as_array().cloned().unwrap_or_default();
        let mut messages = problems
            .iter()
            .filter_map(|problem| problem["message"].as_str().map(str::to_owned));
        messages.find(|message| message.starts_with(beginning))
    };
    let found = wait_for_overview(site, beginning, |found| message(found).is_some()).await;
    message(&found).expect("the message")
}

/// The sentence is the same in `status`, `top` and `apps explain`, which do not count it as an error.
async fn assert_told_everywhere(site: &Site, app: &str, message: &str) {
    let (dir, url, apps) = (site.plugins(), site.admin(""), site.apps(""));
    let status = run(&dir, &["status", "--url", &url]).await;
    let top = run(&dir, &["top", "--once", "--url", &url]).await;
    let explained = run(&dir, &["apps", "explain", app, "--url", &apps]).await;
    // The count and the time of the next failure may be in between.
    let (beginning, _) = message.split_once(" since ").expect("a time");
    let counts = [" failed ", " could not be made "];
    let beginning = counts
        .iter()
        .fold(beginning, |text, verb| text.split(verb).next().unwrap_or(text));
    for printed in [&status, &top, &explained] {
        let printed = text(&printed.stdout);
        assert!(printed.contains(beginning), "{beginning} is not in\n{printed}");
    }
    let document = run(
        &dir,
        &["apps", "explain", app, "--url", &apps, "--output", "json"],
    )
    .await;
    let document = json_of(&document);
    let explained = document["failing"]["message"].as_str().unwrap_or_default();
    assert!(explained.starts_with(beginning), "{document}");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_failures_have_the_same_sentence_everywhere() {
    let mut site = Site::start().await;
    let cases = [
        (
            "/crashes",
            json!({"cmd": "echo starting >&2; printf 'cannot read \\033[31m/etc/web\\n' >&2; exit 3"}),
            "/crashes: crash loop: failed 3 times since ",
            "; last: Command exited with status 3",
        ),
        (
            "/shell",
            json!({"cmd": "no-such-program --serve"}),
            "/shell: program not found: failed 3 times since ",
            "; last: Command exited with status 127",
        ),
        (
            "/argv",
            json!({"args": ["/no/such/program"]}),
            "/argv: crash loop: failed 3 times since ",
            "; last: Command exited with status 1",
        ),
        (
            "/fetch",
            json!({"cmd": "true", "fetch": [{"uri": "file:///no/such/archive.tar"}]}),
            "/fetch: cannot be launched: failed 3 times since ",
            "; last: Failed to launch container: ",
        ),
    ];
    for (id, program, ..) in &cases {
        site.post_app(&failing_app(id, program)).await;
    }
    let (dir, apps) = (site.plugins(), site.apps(""));
    for (id, _, beginning, end) in &cases {
        let message = wait_for_problem(&site, beginning).await;
        assert!(message.contains(end), "{message}");
        assert_told_everywhere(&site, id, &message).await;
        let explained = run(&dir, &["apps", "explain", id, "--url", &apps]).await;
        let document = run(&dir, &["apps", "explain", id, "--url", &apps, "--output", "json"]).await;
        let document = json_of(&document);
        assert_eq!(document["failing"]["count"], 3);
        if *id == "/crashes" {
            let lines = json!(["starting", "cannot read \\u{1b}[31m/etc/web"]);
            assert_eq!(document["failing"]["stderr"], lines);
            let printed = text(&explained.stdout);
            assert!(
                printed.contains("\n    starting\n    cannot read \\u{1b}[31m/etc/web\n"),
                "{printed}"
            );
        }
    }
    // A list does not ask an agent for each app.
    let listed = site
        .get(&site.apps("/v2/apps?embed=apps.failing"))
        .await
        .expect("apps");
    assert_eq!(listed["apps"][0]["failing"]["count"], 3, "{listed}");
    assert_eq!(listed["apps"][0]["failing"].get("stderr"), None);
    // Only who asks for it gets the addition to Marathon's document.
    let app = site.get(&site.apps("/v2/apps/crashes")).await.expect("an app");
    assert_eq!(app["app"]["failing"], Value::Null);

    // The row continues after a restart.
    let before = wait_for_problem(&site, "/crashes: crash loop: failed 3 times since ").await;
    site.kill_daemon();
    site.start_daemon().await;
    let start = before.split(" 3 times ").collect::<Vec<_>>();
    let since = start[1].split(" on ").next().expect("a time").to_owned();
    eventually("the row after a restart", || async {
        let found = site.get(&site.admin("/v1/overview")).await?;
        let failing = found["services"][0]["failing"].as_array().cloned();
        let mut messages = failing.iter().flatten().filter_map(|one| one["message"].as_str());
        let is_row = |message: &&str| message.starts_with("/crashes: crash loop") && message.contains(&since);
        messages.find(is_row).map(drop).ok_or_else(|| found.to_string())
    })
    .await;

    // A corrected definition has not failed.
    let corrected = json!({"cmd": "sleep 1000"});
    let response = site
        .http
        .put(site.apps("/v2/apps/crashes?force=true"))
        .json(&corrected)
        .send()
        .await
        .expect("an answer");
    assert!(response.status().is_success(), "{response:?}");
    wait_for_overview(&site, "no problem of the corrected app", |found| {
        let failing = found["services"][0]["failing"].as_array();
        failing.is_some_and(|failing| !failing.iter().any(|one| one["name"] == "/crashes"))
    })
    .await;
}

/// An app with one port and these checks.
fn checked_app(id: &str, cmd: &str, checks: &Value) -> Value {
    let mut app = json!({
        "id": id, "cmd": cmd, "cpus": 0.1, "mem": 32, "portDefinitions": [{"port": 0, "name": "http"}],
    });
    let fields = checks.as_object().expect("an object");
    app.as_object_mut().expect("an object").extend(fields.clone());
    app
}

fn health_check() -> Value {
    json!({"healthChecks": [{
        "protocol": "HTTP", "path": "/health", "gracePeriodSeconds": 0, "intervalSeconds": 1, "timeoutSeconds": 1,
        "maxConsecutiveFailures": 0,
    }]})
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_checks_have_the_same_sentence_everywhere() {
    let site = Site::start().await;
    let readiness = json!({"readinessChecks": [{
        "name": "up", "portName": "http", "path": "/ready", "intervalSeconds": 2, "timeoutSeconds": 1,
    }]});
    let by_agent = json!({"healthChecks": [{
        "protocol": "COMMAND", "command": {"value": "test -e up"}, "gracePeriodSeconds": 0, "intervalSeconds": 1,
        "timeoutSeconds": 1, "delaySeconds": 0, "maxConsecutiveFailures": 0,
    }]});
    let cases = [
        (
            "/sick",
            UNAVAILABLE,
            health_check(),
            "unhealthy",
            "/sick: unhealthy: GET /health failed ",
        ),
        (
            "/by-agent",
            "sleep 1000",
            by_agent,
            "unhealthy",
            "/by-agent: unhealthy: `test -e up` failed ",
        ),
        (
            "/not-ready",
            UNAVAILABLE,
            readiness,
            "not-ready",
            "/not-ready: not ready: up: GET /ready failed ",
        ),
    ];
    for (id, cmd, checks, ..) in &cases {
        site.post_app(&checked_app(id, cmd, checks)).await;
    }
    for (id, _, _, kind, beginning) in &cases {
        let message = wait_for_problem(&site, beginning).await;
        assert!(
            message.contains(" since ") && message.contains("(1 of 1 running); last: "),
            "{message}"
        );
        if *id != "/by-agent" {
            assert!(message.contains("; last: 503 Service Unavailable"), "{message}");
        }
        assert_told_everywhere(&site, id, &message).await;
        let found = wait_for_overview(&site, "one problem for each app", |_| true).await;
        let of_app = found["problems"].as_array().expect("problems").iter();
        let of_app = of_app.filter(|problem| {
            problem["message"]
                .as_str()
                .is_some_and(|it| it.starts_with(&format!("{id}:")))
        });
        assert_eq!(of_app.count(), 1, "{found}");
        let failing = found["services"][0]["failing"]
            .as_array()
            .expect("failing")
            .iter();
        assert_eq!(
            failing
                .filter(|one| one["name"] == *id && one["kind"] == *kind)
                .count(),
            1,
            "{found}"
        );
    }
    // A deployment waits for the readiness.
    let blocked = wait_for_problem(&site, "the deployment of /not-ready cannot go on in step ").await;
    assert!(
        blocked.contains(": it scales /not-ready (not-ready) ("),
        "{blocked}"
    );
    let status = run(&site.plugins(), &["status", "--url", &site.admin("")]).await;
    assert!(
        text(&status.stdout).contains(&blocked),
        "{}",
        text(&status.stdout)
    );
    let metrics = site
        .http
        .get(site.admin("/metrics"))
        .send()
        .await
        .expect("metrics");
    let metrics = metrics.text().await.expect("a text");
    for series in [
        "{kind=\"unhealthy\"} 2",
        "{kind=\"not-ready\"} 1",
        "{kind=\"crash-loop\"} 0",
    ] {
        let series = format!("transom_apps_failing{series}");
        assert!(metrics.contains(&series), "{series} is not in\n{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_without_their_plugin_are_a_problem_that_names_it() {
    let site = Site::start().await;
    remove(&site.plugins(), "check-http");
    site.rescan().await;
    let check = json!({"check": {
        "http": {"portIndex": 0, "path": "/up"}, "intervalSeconds": 2, "timeoutSeconds": 1, "delaySeconds": 0,
    }});
    for (id, checks, request) in [
        ("/health", health_check(), "the health check GET /health"),
        ("/checked", check, "the check GET /up"),
    ] {
        site.post_app(&checked_app(id, "sleep 1000", &checks)).await;
        let beginning = format!("{id}: check without a result: {request} could not be made ");
        let message = wait_for_problem(&site, &beginning).await;
        assert!(message.contains("check-http"), "{message}");
        assert_told_everywhere(&site, id, &message).await;
    }
    Plugin::first_party("check-http").install(&site.plugins(), "check-http");
    site.rescan().await;
    wait_for_overview(&site, "no check without a result", |found| {
        let failing = found["services"][0]["failing"].as_array();
        failing.is_some_and(|failing| {
            failing.iter().all(|one| {
                one["message"]
                    .as_str()
                    .is_some_and(|it| !it.contains("check-http"))
            })
        })
    })
    .await;
}

/// Ends the tasks of an agent, and launches no others there.
async fn drain(site: &Site, agent: &Value) {
    let call = json!({"type": "DRAIN_AGENT", "drain_agent": {"agent_id": {"value": agent}}});
    let url = format!("http://{}/api/v1", site.cluster.master);
    let answer = site.http.post(url).json(&call).send().await.expect("an answer");
    assert!(answer.status().is_success(), "{answer:?}");
}

/// The app has one problem, of this kind, with this beginning and part of its sentence.
async fn assert_one_problem(site: &Site, (id, kind): (&str, &str), beginning: &str, part: &str) {
    let message = wait_for_problem(site, beginning).await;
    assert!(message.contains(part), "{message}");
    assert_told_everywhere(site, id, &message).await;
    let found = wait_for_overview(site, "one problem", |_| true).await;
    let failing = found["services"][0]["failing"]
        .as_array()
        .expect("failing")
        .iter();
    assert_eq!(
        failing
            .filter(|one| one["name"] == id && one["kind"] == kind)
            .count(),
        1,
        "{found}"
    );
    let problems = found["problems"].as_array().expect("problems").iter();
    let of_app = problems.filter(|one| {
        one["message"]
            .as_str()
            .is_some_and(|it| it.starts_with(&format!("{id}:")))
    });
    assert_eq!(of_app.count(), 1, "{found}");
}

/// An app with more fields.
fn app_with(id: &str, more: &Value) -> Value {
    let mut app = json!({"id": id, "cmd": "sleep 1000", "cpus": 0.1, "mem": 32});
    let fields = more.as_object().expect("an object").clone();
    app.as_object_mut().expect("an object").extend(fields);
    app
}

#[tokio::test(flavor = "multi_thread")]
async fn fixed_ports_that_are_absent_or_taken_are_problems() {
    let site = Site::start().await;
    let fixed = |port: &Value| json!({"portDefinitions": [{"port": port}], "requirePorts": true});
    site.post_app(&app_with("/absent", &fixed(&json!(80)))).await;
    site.post_app(&app_with("/holder", &json!({"portDefinitions": [{"port": 0}]})))
        .await;
    let holder = site.wait_until_running("/holder", 1).await.remove(0);
    let port = &holder["ports"][0];
    site.post_app(&app_with("/taken", &fixed(port))).await;
    let taken_by = format!(
        "port {port} is in use by the task {} on ",
        holder["id"].as_str().expect("an id")
    );
    for (id, kind, label, part) in [
        (
            "/absent",
            "port-absent",
            "no agent has its port",
            "port 80 is not among the ports of any agent (3 agents in the cluster)",
        ),
        ("/taken", "port-taken", "its port is taken", &taken_by),
    ] {
        let beginning = format!("{id}: {label}: 1 instance waits since ");
        assert_one_problem(&site, (id, kind), &beginning, part).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn causes_that_waiting_does_not_end_are_problems_at_once() {
    let site = Site::start_with("[workflow]\nlistener = \"127.0.0.1\"\nport = 0\ncontainers = false\n").await;
    let volume = json!({"containerPath": "data", "mode": "RW", "persistent": {"type": "root", "size": 16}});
    let resident = json!({"role": "dev", "container": {"type": "MESOS", "volumes": [volume]}});
    site.post_app(&app_with("/dev/db", &resident)).await;
    let tasks = site.wait_until_running("/dev/db", 1).await;
    drain(&site, &tasks[0]["slaveId"]).await;
    site.post_app(&app_with("/too-large", &json!({"cpus": 9000, "instances": 2})))
        .await;
    site.post_app(&app_with(
        "/nowhere",
        &json!({"constraints": [["rack", "IS", "nowhere"]]}),
    ))
    .await;
    for (id, kind, beginning, part) in [
        (
            "/too-large",
            "too-large",
            "/too-large: no agent is large enough: 2 instances wait since ",
            "each instance asks for 9000 CPUs, but the largest agent, `",
        ),
        (
            "/nowhere",
            "constraint",
            "/nowhere: no agent may run it: 1 instance waits since ",
            "no active agent satisfies the constraint `rack IS nowhere` (2 agents in the cluster)",
        ),
        (
            "/dev/db",
            "volume-agent-away",
            "/dev/db: the agent of its volumes is away: 1 instance waits since ",
            "volumes of an instance are on ",
        ),
    ] {
        assert_one_problem(&site, (id, kind), beginning, part).await;
    }
    let url = format!("http://{}/v0/queue_command", site.addresses["workflow"]);
    let job = json!({"workflow_task_id": "huge", "command": "true", "cpus": 9000});
    let answer = site.http.post(url).json(&job).send().await.expect("an answer");
    assert!(answer.status().is_success(), "{answer:?}");
    eventually("the problem of the job", || async {
        let found = site.get(&site.admin("/v1/overview")).await?;
        let mut messages = found["problems"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["message"].as_str());
        let is_of_job = |message: &&str| {
            message.contains(": no agent is large enough: 1 job waits since ")
                && message.contains("each job asks for 9000 CPUs, but the largest agent, `")
        };
        messages
            .find(is_of_job)
            .map(drop)
            .ok_or_else(|| found.to_string())
    })
    .await;
}
