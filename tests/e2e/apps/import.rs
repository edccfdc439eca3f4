//! `transom apps import` and `export`: a daemon with another store takes over running tasks.
//!
//! A daemon stands in for Marathon, because it serves Marathon's API. The commands are those of
//! `docs/apps/`.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use axum::Router;
use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use transom_testkit::eventually;
use transom_testkit::redis::RedisServer;
use transom_tests::http;
use transom_tests::process::{Transom, binary};
use transom_tests::site::{Cluster, addresses, copy_components};

/// Runs `transom` with these words.
fn run(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TRANSOM_")) {
        command.env_remove(name);
    }
    command
        .args(words)
        .current_dir(dir)
        .output()
        .expect("transom runs")
}

/// Runs a command that must succeed; returns its standard output.
pub(super) fn succeeds(dir: &Path, words: &[&str]) -> String {
    let output = run(dir, words);
    let error = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words:?}: {error}\n{text}");
    text
}

/// Runs a command that must fail; returns its exit code and its output.
pub(super) fn fails(dir: &Path, words: &[&str]) -> (Option<i32>, String) {
    let output = run(dir, words);
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(!output.status.success(), "{words:?}: {texts:?}");
    (output.status.code(), texts.concat())
}

/// The page about imports from Marathon.
pub(super) const MARATHON: &str = include_str!("../../../docs/apps/marathon.md");
const OPERATION: &str = include_str!("../../../docs/apps/operation.md");

/// The lines of the page's section that begin with `transom apps`, without the program's name.
pub(super) fn documented_commands(page: &str, heading: &str) -> Vec<String> {
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("a section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section
        .lines()
        .filter_map(|line| line.strip_prefix("transom apps "));
    lines.map(|line| format!("apps {line}")).collect()
}

/// A daemon of the apps service with its own store.
pub(super) struct Daemon {
    process: Transom,
    addresses: BTreeMap<String, SocketAddr>,
}

pub(super) fn configure(dir: &Path, name: &str, master: SocketAddr, store: &str) {
    let configuration = format!(
        "[log]\nformat = \"json\"\n[cluster]\nmaster = \"{master}\"\n[store]\nserver = \"{store}\"\nlease_seconds = 2\n\
         [plugins]\ndir = \"plugins\"\n[admin]\nport = 0\n[apps]\nport = 0\n"
    );
    fs::write(dir.join(name), configuration).expect("written");
}

impl Daemon {
    pub(super) async fn start(dir: &Path, name: &str) -> Daemon {
        let mut process = Transom::start(dir, ["serve", "--config", name]);
        let addresses = addresses(&mut process);
        let daemon = Daemon { process, addresses };
        let ready = format!("http://{}/ready", daemon.addresses["admin"]);
        eventually("a daemon that leads", || async {
            let answer = http()
                .get(&ready)
                .send()
                .await
                .map_err(|error| error.to_string())?;
            let seen: Value = answer.json().await.map_err(|error| error.to_string())?;
            let framework = &seen["services"]["apps"]["framework"];
            if seen["ready"] == true && framework["leading"] == true && framework["subscribed"] == true {
                Ok(())
            } else {
                Err(seen.to_string())
            }
        })
        .await;
        daemon
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addresses["apps"])
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, String> {
        let answer = http().get(self.url(path)).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        answer.json().await.map_err(|error| error.to_string())
    }

    pub(super) async fn send(&self, method: reqwest::Method, path: &str, body: &Value) {
        let request = http().request(method.clone(), self.url(path)).json(body);
        let answer = request.send().await.expect("an answer");
        let (status, text) = (answer.status(), answer.text().await.expect("a body"));
        assert!(status.is_success(), "{method} {path}: {status} {text}");
    }

    /// The ids of the tasks of the app and the pod, once all of them run, and the app's are healthy.
    pub(super) async fn tasks(&self, count: usize) -> Vec<String> {
        eventually(&format!("{count} healthy tasks and a stable pod"), || async {
            let app = self.get("/v2/apps/shop/web").await?["app"].clone();
            let pod = self.get("/v2/pods/pair::status").await?;
            let tasks = app["tasks"].as_array().cloned().unwrap_or_default();
            let done = app["tasksHealthy"] == count
                && tasks.len() == count
                && app["deployments"] == json!([])
                && pod["status"] == "STABLE";
            if !done {
                return Err(format!("{app:#}\n{pod:#}"));
            }
            let of_pod = pod["instances"][0]["containers"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let ids = tasks.iter().map(|task| &task["id"]);
            let ids = ids.chain(of_pod.iter().map(|container| &container["containerId"]));
            let mut ids: Vec<String> = ids.filter_map(Value::as_str).map(str::to_owned).collect();
            ids.sort();
            Ok(ids)
        })
        .await
    }

    pub(super) fn stop(self) {
        let (status, output) = self.process.interrupt();
        assert!(status.success(), "{status}: {output}");
    }
}

/// The process ids of the tasks that were launched and have not ended.
pub(super) fn processes(cluster: &Cluster) -> BTreeMap<String, i64> {
    let mut running = BTreeMap::new();
    for journal in cluster.journals() {
        for line in fs::read_to_string(journal).unwrap_or_default().lines() {
            let entry: Value = serde_json::from_str(line).expect("a journal line");
            let Some(task) = entry["task"].as_str() else {
                continue;
            };
            match (entry["event"].as_str(), entry["pid"].as_i64()) {
                (Some("launch"), Some(pid)) => drop(running.insert(task.to_owned(), pid)),
                (Some("exit"), _) => drop(running.remove(task)),
                _ => {}
            }
        }
    }
    running
}

/// A server for health checks that answers every request.
const SERVER: &str = "exec python3 -m http.server $PORT0";

/// Creates a pod, and a group with an app that depends on it.
pub(super) async fn create(marathon: &Daemon) {
    let health = json!([{"protocol": "HTTP", "path": "/", "portIndex": 0, "gracePeriodSeconds": 30, "intervalSeconds": 1, "timeoutSeconds": 1}]);
    let web = json!({"id": "web", "cmd": SERVER, "cpus": 0.1, "mem": 32, "instances": 1, "healthChecks": health, "portDefinitions": [{"port": 0, "name": "http"}]});
    let group = json!({"id": "/shop", "apps": [web], "dependencies": ["/pair"]});
    let sleeps = |name: &str| {
        json!({"name": name, "exec": {"command": {"shell": "sleep 1000"}}, "resources": {"cpus": 0.1, "mem": 32},
        "endpoints": [{"name": name, "hostPort": 0}]})
    };
    let pod = json!({"id": "/pair", "containers": [sleeps("one"), sleeps("two")], "scaling": {"kind": "fixed", "instances": 1}});
    marathon.send(reqwest::Method::POST, "/v2/pods", &pod).await;
    marathon.send(reqwest::Method::POST, "/v2/groups", &group).await;
}

/// Exports the store of the daemon that has just stopped, and imports it into Redis.
async fn move_to_a_shared_store(dir: &Path, cluster: &Cluster, before: &[String]) {
    let backup = documented_commands(OPERATION, "Backup and restore");
    let backup: Vec<Vec<&str>> = backup.iter().map(|line| line.split(' ').collect()).collect();
    assert_eq!(backup.len(), 2, "{backup:?}");
    let (running, launches) = (processes(cluster), cluster.launches());
    succeeds(dir, &backup[0]);
    let (_, text) = fails(dir, &backup[0]);
    assert!(text.contains("apps.json"), "an export overwrites nothing: {text}");
    succeeds(dir, &backup[1]);
    let daemon = Daemon::start(dir, "other.toml").await;
    assert_eq!(daemon.tasks(3).await, before);
    assert_eq!(processes(cluster), running);
    assert_eq!(cluster.launches(), launches);
    // With a shared store, an export is possible while a daemon leads, and an import never replaces
    // the records.
    let text = succeeds(dir, &["apps", "export", "--config", "other.toml"]);
    let copy: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&copy["format"], &copy["framework"]),
        (&json!(1), &json!("marathon"))
    );
    let (_, text) = fails(dir, &backup[1]);
    assert!(text.contains("a daemon leads on this store"), "{text}");
    daemon.stop();
    let (_, text) = fails(dir, &backup[1]);
    assert!(text.contains("has led on this store"), "{text}");
}

/// The imported app is managed: scaling keeps the old instances, a restart replaces them.
async fn scale_and_restart(daemon: &Daemon, before: &[String]) -> Vec<String> {
    // It is managed: a scale keeps the old instances, a restart replaces them.
    daemon
        .send(
            reqwest::Method::PUT,
            "/v2/apps/shop/web",
            &json!({"instances": 3}),
        )
        .await;
    let scaled = daemon.tasks(3).await;
    assert!(before.iter().all(|task| scaled.contains(task)), "{scaled:?}");
    daemon
        .send(reqwest::Method::POST, "/v2/apps/shop/web/restart", &json!({}))
        .await;
    let restarted = daemon.tasks(3).await;
    let web = |tasks: &[String]| {
        tasks
            .iter()
            .filter(|task| task.starts_with("shop_web."))
            .cloned()
            .collect::<Vec<_>>()
    };
    assert!(
        web(&restarted).iter().all(|task| !scaled.contains(task)),
        "{restarted:?}"
    );
    restarted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn imported_tasks_keep_their_processes_and_are_managed_afterwards() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    copy_components(&dir.join("plugins"));
    let cluster = Cluster::start(dir);
    let redis = RedisServer::in_memory().started();
    configure(dir, "marathon.toml", cluster.master, "file:theirs");
    configure(dir, "transom.toml", cluster.master, "file:ours");
    configure(dir, "other.toml", cluster.master, &redis.address().to_string());

    let marathon = Daemon::start(dir, "marathon.toml").await;
    create(&marathon).await;
    marathon.tasks(1).await;
    marathon
        .send(
            reqwest::Method::PUT,
            "/v2/apps/shop/web",
            &json!({"instances": 2}),
        )
        .await;
    let before = marathon.tasks(2).await;
    let running = processes(&cluster);
    let launches = cluster.launches();
    assert_eq!(running.keys().cloned().collect::<Vec<_>>(), before, "app and pod");

    // The documented commands, in their order: the dry run, then the import.
    let mut commands = documented_commands(MARATHON, "From Marathon");
    commands.retain(|line| line.contains("--from http://"));
    assert_eq!(commands.len(), 2, "{commands:?}");
    let commands: Vec<String> = commands
        .iter()
        .map(|line| {
            line.replace("http://marathon:8080", &marathon.url(""))
                .replace("http://master:5050", &format!("http://{}", cluster.master))
        })
        .collect();
    let words: Vec<Vec<&str>> = commands.iter().map(|line| line.split(' ').collect()).collect();
    assert!(words[0].contains(&"--dry-run") && !words[1].contains(&"--dry-run"));
    let table = succeeds(dir, &words[0]);
    assert!(
        table.contains("/shop/web") && table.contains("can be imported"),
        "{table}"
    );
    let shown = succeeds(dir, &[&words[0][..], &["--output", "json"]].concat());
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["imported"], false, "{shown:#}");
    let rejected = |shown: &Value| {
        let findings = shown["findings"].as_array().expect("findings").clone();
        findings.iter().any(|finding| finding["kind"] == "refused")
    };
    assert!(!rejected(&shown), "{shown:#}");
    let tasks = |id: &str| {
        let carried = shown["carried"].as_array().expect("a list");
        let found = carried.iter().find(|one| one["id"] == id).expect("carried");
        (found["tasks"].clone(), found["versions"].clone())
    };
    assert_eq!(tasks("/shop/web"), (json!(2), json!(2)));
    assert_eq!(tasks("/pair").0, 2);
    assert!(!dir.join("ours").exists(), "a dry run creates no store");

    succeeds(dir, &words[1]);
    // The import can be repeated until a daemon has led on the store.
    succeeds(dir, &words[1]);
    marathon.stop();
    assert_eq!(processes(&cluster), running, "the tasks run without a scheduler");
    let daemon = Daemon::start(dir, "transom.toml").await;
    assert_eq!(daemon.tasks(2).await, before);
    assert_eq!(processes(&cluster), running);
    assert_eq!(cluster.launches(), launches, "nothing was launched again");
    let group = daemon.get("/v2/groups/shop").await.expect("a group");
    assert_eq!(group["dependencies"], json!(["/pair"]));
    let versions = daemon.get("/v2/apps/shop/web/versions").await.expect("versions");
    assert_eq!(
        versions["versions"].as_array().map(Vec::len),
        Some(2),
        "{versions}"
    );

    let (code, text) = fails(dir, &["apps", "export", "--config", "transom.toml"]);
    assert!(
        code == Some(3) && text.contains("stop it first"),
        "{code:?} {text}"
    );

    let restarted = scale_and_restart(&daemon, &before).await;
    daemon.stop();

    move_to_a_shared_store(dir, &cluster, &restarted).await;
    cluster.stop();
}

/// Responses of a stand-in for Marathon.
#[derive(Clone, Copy)]
enum StandInResponse {
    NoJson,
    OtherJson,
    Failure,
    Elsewhere,
    Endless,
    Nothing,
    Credentials,
    BadId,
}

fn respond(response: StandInResponse, path: &str) -> Response {
    let json =
        |value: Value| ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response();
    match response {
        StandInResponse::NoJson => "<html>hello".into_response(),
        StandInResponse::OtherJson => json(json!({"apps": {"a": 1}})),
        StandInResponse::Failure => (StatusCode::INTERNAL_SERVER_ERROR, "it broke").into_response(),
        StandInResponse::Elsewhere => Redirect::temporary("http://elsewhere.example/v2/apps").into_response(),
        StandInResponse::Endless => {
            let chunk = Bytes::from(vec![b' '; 1 << 20]);
            Body::from_stream(stream::repeat_with(move || {
                Ok::<_, std::io::Error>(chunk.clone())
            }))
            .into_response()
        }
        StandInResponse::Nothing => StatusCode::NOT_FOUND.into_response(),
        StandInResponse::Credentials => StatusCode::UNAUTHORIZED.into_response(),
        StandInResponse::BadId => json(match path {
            "/v2/apps" => json!({"apps": [{"id": "/../../x?y"}]}),
            "/v2/info" | "/v2/groups" => json!({}),
            _ => json!([]),
        }),
    }
}

async fn stand_in(response: StandInResponse) -> (SocketAddr, JoinSet<()>) {
    let answer = move |uri: axum::http::Uri| async move { respond(response, uri.path()) };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut task = JoinSet::new();
    task.spawn(async move {
        let _ = axum::serve(listener, Router::new().fallback(answer)).await;
    });
    (address, task)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_response_of_marathon_is_an_error_that_names_the_url() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    configure(dir, "transom.toml", ([127, 0, 0, 1], 1).into(), "file:ours");
    for (response, expected) in [
        (
            StandInResponse::NoJson,
            "does not answer with JSON, expected a JSON object with the list `apps`: \"<html>hello\"",
        ),
        (
            StandInResponse::OtherJson,
            "answers with another document, expected a JSON object with the list `apps`",
        ),
        (
            StandInResponse::Failure,
            "answers 500 Internal Server Error, expected a JSON object",
        ),
        (
            StandInResponse::Elsewhere,
            "redirects to http://elsewhere.example/v2/apps, which is not followed",
        ),
        (StandInResponse::Endless, "the body is larger than"),
        (StandInResponse::Nothing, "is this a Marathon?"),
        (
            StandInResponse::Credentials,
            "answers 401 Unauthorized: give Marathon's credentials with --user",
        ),
        (
            StandInResponse::BadId,
            "has the id \"/../../x?y\", expected a path",
        ),
    ] {
        let (address, _task) = stand_in(response).await;
        let from = format!("http://{address}");
        let words = ["apps", "import", "--from", &from, "--config", "transom.toml"];
        let (code, text) = tokio::task::block_in_place(|| fails(dir, &words));
        assert!(
            text.contains(expected) && text.contains("/v2/apps"),
            "{expected}: {text}"
        );
        assert_eq!(code, Some(3), "{text}");
        assert!(!dir.join("ours").exists(), "no store was created: {text}");
    }
    for (words, code, expected) in [
        (&["--from", "marathon:8080"][..], 2, "--from marathon:8080"),
        (&["--from", "http://u:hunter2@h"], 2, "--from has credentials"),
        (&["--from", "http://127.0.0.1:1"], 3, "http://127.0.0.1:1/v2/apps"),
        (&["--file", "absent"], 3, "cannot read absent"),
        (&[], 2, "required"),
    ] {
        let all = [&["apps", "import", "--config", "transom.toml"], words].concat();
        let (found, text) = fails(dir, &all);
        assert!(
            text.contains(expected) && !text.contains("hunter2"),
            "{words:?}: {text}"
        );
        assert_eq!(found, Some(code), "{words:?}: {text}");
    }
    let (code, text) = fails(dir, &["apps", "export", "--config", "transom.toml"]);
    assert!(
        code == Some(3) && text.contains("there is no store at file:ours"),
        "{code:?} {text}"
    );
}
