//! Lists that fit a terminal, and the commands about agents, names and events.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};
use transom_testkit::eventually;

use super::logs::terminal;
use super::{FinishedCommand, Shell, program};

const APP: &str = "/department/team/shop/frontend-with-a-long-name";

impl Shell {
    /// Runs a command of the program that must succeed.
    fn stdout(&self, arguments: &[&str]) -> String {
        let finished = self.finished(arguments);
        assert_eq!(finished.code, Some(0), "{arguments:?}: {finished:?}");
        finished.out
    }

    fn finished(&self, arguments: &[&str]) -> FinishedCommand {
        program(&self.site, arguments)
            .output()
            .expect("transom runs")
            .into()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_fit_80_columns_and_have_other_formats() {
    let shell = Shell::start().await;
    let cmd = format!("exec sleep 1000 # {}", "a long command ".repeat(20));
    shell
        .site
        .post_app(&json!({"id": APP, "cmd": cmd, "cpus": 0.1, "mem": 32}))
        .await;
    shell
        .site
        .post_app(&json!({"id": "/big", "cmd": "true", "cpus": 1000, "mem": 32}))
        .await;
    let task = shell.site.wait_until_running(APP, 1).await.remove(0);
    let id = task["id"].as_str().expect("an id");
    let lists = ["list", "tasks", "queue", "deployments"].map(|name| ["apps", name]);
    for list in lists.iter().chain(&[["agents", "list"]]) {
        for text in [shell.stdout(list), terminal(&shell.site, list)] {
            assert!(text.lines().count() > 1, "{list:?}: {text}");
            for line in text.lines() {
                assert!(line.trim_end().chars().count() <= 80, "{list:?}: {line}");
            }
        }
        let with = |option: &'static str| [&list[..], &[option]].concat();
        let rows = shell.stdout(list).lines().count() - 1;
        assert_eq!(
            shell.stdout(&with("--no-headers")).lines().count(),
            rows,
            "{list:?}"
        );
        assert_eq!(shell.stdout(&with("-oname")).lines().count(), rows, "{list:?}");
        serde_json::from_str::<Value>(&shell.stdout(&with("-ojson"))).expect("JSON");
    }
    let wide = shell.stdout(&["apps", "tasks", "-o", "wide"]);
    assert!(wide.contains(id) && wide.contains(APP), "{wide}");
    assert_eq!(shell.stdout(&["apps", "tasks", "-o", "name"]).trim_end(), id);
    // A task is killed by the short id that the table shows.
    let table = shell.stdout(&["apps", "tasks", "--no-headers"]);
    let short = table.split_whitespace().next().expect("an id");
    assert!(short.len() == 8 && id.contains(short), "{table}");
    let killed: Value =
        serde_json::from_str(&shell.stdout(&["apps", "kill", short, "-o", "json"])).expect("JSON");
    assert_eq!(killed["killed"], json!([id]));
    shell.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_and_names_are_looked_up() {
    let shell = Shell::start().await;
    shell
        .site
        .post_app(&json!({
            "id": "/shop/web", "cmd": "exec sleep 1000", "cpus": 0.1, "mem": 32,
            "portDefinitions": [{"port": 0}],
        }))
        .await;
    let task = shell.site.wait_until_running("/shop/web", 1).await.remove(0);
    let agent = task["slaveId"].as_str().expect("an agent");
    let agents = shell.stdout(&["agents", "list"]);
    assert_eq!(agents.lines().count(), 4, "{agents}");
    assert_eq!(agents.matches("active").count(), 3, "{agents}");
    let (_, end) = agent.rsplit_once('-').expect("an id");
    let shown = shell.stdout(&["agents", "show", end]);
    for part in [agent, "task of /shop/web", "(running)", "cpus"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let unknown = shell.finished(&["agents", "show", "nothing"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.err.contains("no agent is called nothing"), "{unknown:?}");

    // The name of the app, its id, and the same without the domain.
    let host = task["host"].as_str().expect("a host");
    let port = task["ports"][0].to_string();
    let found = eventually("the app's name", async || {
        let found = shell.finished(&["dns", "web-shop.marathon.mesos"]);
        if found.code == Some(0) {
            Ok(found.out)
        } else {
            Err(found.err)
        }
    })
    .await;
    assert!(
        found.contains(host) && found.contains("SRV") && found.contains(&port),
        "{found}"
    );
    for name in ["/shop/web", "web-shop", "web-shop.marathon"] {
        assert_eq!(shell.stdout(&["dns", name]), found, "{name}");
    }
    let service = shell.stdout(&["dns", "_web-shop._tcp.marathon.mesos", "-o", "json"]);
    let service: Value = serde_json::from_str(&service).expect("JSON");
    assert_eq!(service["services"][0]["port"], port.as_str(), "{service}");
    let unknown = shell.finished(&["dns", "web-shpo.marathon.mesos"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(
        unknown.err.contains("did you mean web-shop.marathon.mesos"),
        "{unknown:?}"
    );

    // Each error names the service's port and the setting that chooses it.
    let free = format!("http://127.0.0.1:{}", transom_testkit::free_port());
    for (arguments, option, expected) in [
        (&["dns", "x"][..], "--url", "discovery.http_port"),
        (&["agents", "list"], "--admin", "admin.port"),
        (&["apps", "list"], "--url", "apps.port"),
        (&["job", "list"], "--url", "workflow.port"),
        (&["status"], "--admin", "admin.port"),
    ] {
        let finished = shell.finished(&[arguments, &[option, &free]].concat());
        assert_eq!(finished.code, Some(3), "{finished:?}");
        assert!(finished.err.contains(expected), "{finished:?}");
        let first = finished.err.lines().next().unwrap_or_default();
        assert!(first.ends_with("Connection refused"), "{finished:?}");
    }
    shell.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_sentences_and_are_chosen_by_app() {
    let shell = Shell::start().await;
    let arguments = ["events", "--app", "/shop", "--type", "status_update_event"];
    let mut follower = program(&shell.site, &arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("transom runs");
    let mut lines = BufReader::new(follower.stdout.take().expect("piped")).lines();
    let url = shell.site.apps("/v2/events");
    // The stream is open when the daemon lists it as attached, which another one reports.
    let app = |id: &str| json!({"id": id, "cmd": "exec sleep 1000", "cpus": 0.1, "mem": 32});
    shell.site.post_app(&app("/other")).await;
    shell.site.wait_until_running("/other", 1).await;
    let mut number = 0;
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.by_ref().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    // An app that is created after the stream is open causes an event.
    let line = loop {
        number += 1;
        assert!(number < 50, "no event of {url}");
        let id = format!("/shop/web{number}");
        shell.site.post_app(&app(&id)).await;
        shell.site.wait_until_running(&id, 1).await;
        if let Ok(line) = receiver.try_recv() {
            break line;
        }
    };
    follower.kill().expect("killed");
    follower.wait().expect("an end");
    let (time, sentence) = line.split_once(' ').expect("a time");
    assert!(time.ends_with('Z'), "{line}");
    assert!(
        sentence.starts_with("/shop/web") && sentence.contains(": task "),
        "{line}"
    );
    shell.stop();
}
