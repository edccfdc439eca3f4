//! `transom status`, `top`, `doctor` and `bundle`: what an operator runs when something is wrong.

mod bundle;
mod failing;

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_testkit::redis::RedisServer;
use transom_tests::process::{Transom, binary};
use transom_tests::site::{Site, addresses, copy_components};

/// Runs `transom ARGUMENTS` in `dir`.
async fn run(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(arguments).current_dir(dir).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TRANSOM_")) {
        command.env_remove(name);
    }
    let ran = tokio::task::spawn_blocking(move || command.output());
    ran.await.expect("no panic").expect("transom runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json_of(output: &Output) -> Value {
    let printed = text(&output.stdout);
    let wrong = |error| panic!("{error}: {printed}{}", text(&output.stderr));
    serde_json::from_str(&printed).unwrap_or_else(wrong)
}

/// Waits until `accept` accepts the overview, and returns it.
async fn wait_for_overview(site: &Site, what: &str, accept: impl Fn(&Value) -> bool) -> Value {
    let url = site.admin("/v1/overview");
    eventually(what, || async {
        let overview = site.get(&url).await?;
        if accept(&overview) {
            Ok(overview)
        } else {
            Err(overview.to_string())
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_services_cluster_and_pending_tasks() {
    let mut site = Site::start().await;
    site.post_app(&json!({"id": "/fits", "cmd": "sleep 1000", "cpus": 0.1, "mem": 16, "instances": 2}))
        .await;
    site.post_app(&json!({"id": "/too-large", "cmd": "true", "cpus": 9000, "mem": 16, "instances": 3}))
        .await;
    let found = wait_for_overview(&site, "apps, agents and process in the overview", |found| {
        let apps = &found["services"][0];
        apps["summary"]["instances_running"] == 2
            && apps["waiting"][0]["reasons"]["InsufficientCpus"].as_u64() > Some(0)
            && found["cluster"]["agents"]["active"] == 3
            && found["cluster"]["resources"]["cpus"]["used"].as_f64() >= Some(0.2)
            && found["store"]["reachable"] == true
            && found["process"]["resident_bytes"].as_u64() > Some(0)
    })
    .await;
    assert_eq!(found["api"], 1);
    assert_eq!(found["ready"], true);
    assert_eq!(found["services"][0]["framework"]["leading"], true);
    assert_eq!(found["services"][0]["summary"]["instances_wanted"], 5);
    assert_eq!(found["services"][0]["waiting"][0]["name"], "/too-large");
    assert_eq!(found["services"][0]["waiting"][0]["instances"], 3);
    assert_eq!(found["services"][1]["name"], "discovery");
    assert_eq!(found["cluster"]["leader"], site.cluster.master.to_string());
    assert!(
        found["cluster"]["resources"]["cpus"]["used"].as_f64() >= Some(0.2),
        "{found}"
    );
    assert_eq!(found["store"]["durability"], "synced");
    assert!(found["plugins"]["serving"].as_u64() >= Some(5), "{found}");
    let points = found["plugins"]["points"].as_array().expect("points");
    let unserved = |point: &&Value| point["used_by"] != json!([]) && point["missing"] != json!([]);
    assert_eq!(points.iter().find(unserved), None);

    let (dir, url) = (site.plugins(), site.admin(""));
    let shown = run(&dir, &["status", "--url", &url]).await;
    let printed = text(&shown.stdout);
    assert!(shown.status.success(), "{printed}{}", text(&shown.stderr));
    for part in [
        "SERVICE",
        "marathon (here)",
        "2 of 5 instances running",
        "/too-large",
        "3 of 3 agents active",
    ] {
        assert!(printed.contains(part), "{part} is not in\n{printed}");
    }
    assert!(
        !printed.contains('\u{1b}'),
        "colours without a terminal: {printed}"
    );
    let document = json_of(&run(&dir, &["status", "--admin", &url, "--output", "json"]).await);
    assert_eq!(document["services"][0]["name"], "apps");
    // Without a terminal, `top` prints the same.
    let top = run(&dir, &["top", "--url", &url]).await;
    assert!(top.status.success() && text(&top.stdout).contains("/too-large"));

    // A plugin that the apps need is removed.
    fs::remove_file(site.plugins().join("attributes.wasm")).expect("removed");
    fs::remove_file(site.plugins().join("attributes.toml")).expect("removed");
    site.rescan().await;
    let failing = run(&dir, &["status", "--url", &url]).await;
    assert_eq!(failing.status.code(), Some(1), "{}", text(&failing.stdout));
    assert!(text(&failing.stdout).contains("ERROR plugins: matcher: no version of attributes serves"));

    site.kill_daemon();
    let gone = run(&dir, &["status", "--url", &url]).await;
    assert_eq!(gone.status.code(), Some(3), "{}", text(&gone.stderr));
    let wrong = run(&dir, &["status", "--url", "nonsense"]).await;
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
}

/// Starts a master that answers every request with this response.
async fn master(status: StatusCode, headers: HeaderMap, body: String) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let answer = move || async move { (status, headers, body).into_response() };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn escape_sequences_of_a_master_reach_neither_terminal_nor_document() {
    let body = "\u{1b}]0;gone\u{7}\u{1b}[2J\u{202e}rejected".to_owned();
    let master = master(StatusCode::FORBIDDEN, HeaderMap::new(), body).await;
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(
        dir.path().join("transom.toml"),
        configuration(dir.path(), &master.to_string()),
    )
    .expect("written");
    let mut daemon = Transom::start(dir.path(), ["serve", "--config", "transom.toml"]);
    let url = format!("http://{}", addresses(&mut daemon)["admin"]);
    let printed = eventually("the rejection in the status", || async {
        let shown = run(dir.path(), &["status", "--url", &url]).await;
        let printed = text(&shown.stdout);
        if printed.contains("ERROR cluster") && shown.status.code() == Some(1) {
            Ok(printed)
        } else {
            Err(printed)
        }
    })
    .await;
    let document = run(dir.path(), &["status", "--url", &url, "--output", "json"]).await;
    let bundle = run(dir.path(), &["doctor", "--config", "transom.toml"]).await;
    for printed in [printed, text(&document.stdout), text(&bundle.stdout)] {
        assert!(printed.contains("rejected"), "{printed}");
        assert!(!printed.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{printed:?}");
    }
    daemon.terminate();
}

/// A configuration of apps with everything in `dir`.
fn configuration(dir: &Path, master: &str) -> String {
    let plugins = dir.join("plugins");
    if !plugins.exists() {
        copy_components(&plugins);
    }
    format!(
        "[log]\nformat = \"json\"\n[cluster]\nmaster = \"{master}\"\n[store]\nserver = \"file:{}\"\n[plugins]\ndir = \"plugins\"\n\
         [apps]\nport = 0\n[admin]\nport = 0\n",
        dir.join("store").display()
    )
}

/// Runs the doctor with this configuration; returns its exit code and its findings.
async fn doctor(dir: &Path, configuration: &str) -> (Option<i32>, Vec<Value>) {
    fs::write(dir.join("transom.toml"), configuration).expect("written");
    let output = run(dir, &["doctor", "--config", "transom.toml", "--output", "json"]).await;
    let findings = json_of(&output)["findings"].as_array().cloned().expect("a list");
    (output.status.code(), findings)
}

/// Requires a finding of this check and state whose message contains `part`.
fn assert_finding(findings: &[Value], check: &str, state: &str, part: &str) {
    let fits = |finding: &&Value| {
        let message = finding["message"].as_str().unwrap_or_default();
        finding["check"] == check && finding["state"] == state && message.contains(part)
    };
    let found = findings.iter().find(fits);
    let found = found.unwrap_or_else(|| panic!("no {state} of {check} with {part:?}: {findings:#?}"));
    let advised = found["advice"].as_str().is_some_and(|advice| !advice.is_empty());
    assert_eq!(advised, state == "warning" || state == "error", "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_no_error_while_a_daemon_runs() {
    let site = Site::start().await;
    let dir = site.config().parent().expect("a folder").to_owned();
    let configuration = fs::read_to_string(site.config()).expect("a configuration");
    // The doctor needs the actual port numbers, as an operator's file contains them.
    let mut numbered = configuration.clone();
    for (section, name) in [("[apps]\n", "apps"), ("[admin]\n", "admin")] {
        let port = format!("{section}port = {}", site.addresses[name].port());
        numbered = numbered.replace(&format!("{section}port = 0"), &port);
    }
    let dns = format!("\nport = {}\nhttp_listener", site.addresses["dns"].port());
    let numbered = numbered.replace("\nport = 0\nhttp_listener", &dns);
    let (code, findings) = doctor(&dir, &numbered).await;
    for (check, part) in [
        ("configuration", "it enables apps, discovery"),
        ("master", "leads and accepts"),
        ("version", "version"),
        ("agents", "3 of 3 agents accept connections"),
        ("clock", "within"),
        ("store", "is writable"),
        ("ports", "are served by the running daemon"),
        ("dns", "answers for the zone mesos"),
        ("plugins", "valid manifests"),
    ] {
        assert_finding(&findings, check, "ok", part);
    }
    // No parent zone delegates to the daemon of a test.
    assert_finding(&findings, "delegation", "warning", "leader.mesos");
    let errors: Vec<_> = findings.iter().filter(|it| it["state"] == "error").collect();
    assert!(errors.is_empty() && code == Some(0), "{code:?} {errors:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_each_fault() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let unused_address = closed.local_addr().expect("an address").to_string();
    drop(closed);
    let valid = configuration(dir, &unused_address);

    let (code, findings) = doctor(dir, &valid).await;
    assert_finding(&findings, "master", "error", "cannot be reached");
    assert_finding(&findings, "agents", "skipped", "no master");
    assert_finding(
        &findings,
        "dns",
        "skipped",
        "discovery or its DNS listener is disabled",
    );
    assert_eq!(code, Some(3), "{findings:#?}");

    let output = run(dir, &["doctor", "--config", "missing.toml"]).await;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    let (code, findings) = doctor(dir, &valid.replace("[apps]\n", "[apps]\nprot = 1\n")).await;
    assert_finding(&findings, "configuration", "error", "unknown key `apps.prot`");
    assert_eq!(code, Some(2));

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let (code, findings) = doctor(
        dir,
        &valid.replace(
            "[apps]\nport = 0",
            &format!("[apps]\nlistener = \"127.0.0.1\"\nport = {port}"),
        ),
    )
    .await;
    assert_finding(
        &findings,
        "ports",
        "error",
        "apps.port: another program uses TCP 127.0.0.1",
    );
    assert_eq!(code, Some(3), "{findings:#?}");

    let (code, findings) = doctor(dir, &valid.replace("dir = \"plugins\"", "dir = \"missing\"")).await;
    assert_finding(&findings, "plugins", "error", "cannot be used");
    assert_eq!(code, Some(3), "{findings:#?}");
    let plugins = dir.join("plugins");
    fs::set_permissions(&plugins, fs::Permissions::from_mode(0o777)).expect("a mode");
    let (code, findings) = doctor(dir, &valid).await;
    assert_finding(&findings, "plugins", "error", "every user may write");
    assert_eq!(code, Some(1), "{findings:#?}");
    fs::set_permissions(&plugins, fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::write(
        plugins.join("events.toml"),
        "world = \"event-filter\"\nlimit = 3\n",
    )
    .expect("written");
    fs::remove_file(plugins.join("check-tcp.wasm")).expect("removed");
    fs::remove_file(plugins.join("check-tcp.toml")).expect("removed");
    let (_, findings) = doctor(dir, &valid).await;
    assert_finding(&findings, "plugins", "error", "events.toml: ");
    assert_finding(
        &findings,
        "plugins",
        "error",
        "no check-tcp.wasm, which is the tcp checks",
    );

    let file = dir.join("file");
    fs::write(&file, "").expect("written");
    let store = format!("file:{}", dir.join("store").display());
    let (_, findings) = doctor(
        dir,
        &valid.replace(&store, &format!("file:{}/store", file.display())),
    )
    .await;
    assert_finding(&findings, "store", "error", "is not a directory");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_checks_the_settings_of_redis() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let valid = configuration(dir, "127.0.0.1:1");
    let store = format!("file:{}", dir.join("store").display());
    let mut volatile = RedisServer::in_memory();
    volatile.start();
    let on = |redis: &RedisServer| valid.replace(&store, &redis.address().to_string());
    let (_, findings) = doctor(dir, &on(&volatile)).await;
    assert_finding(&findings, "store", "warning", "no append-only file");
    assert_finding(&findings, "clock", "ok", "that of the Redis");
    volatile.command(&["CONFIG", "SET", "appendonly", "yes"]).await;
    volatile
        .command(&["CONFIG", "SET", "appendfsync", "everysec"])
        .await;
    let (_, findings) = doctor(dir, &on(&volatile)).await;
    assert_finding(&findings, "store", "warning", "once a second");
    volatile
        .command(&["CONFIG", "SET", "appendfsync", "always"])
        .await;
    let (_, findings) = doctor(dir, &on(&volatile)).await;
    assert_finding(&findings, "store", "ok", "a confirmed write is on disk");
    volatile.command(&["CONFIG", "SET", "maxmemory", "10mb"]).await;
    volatile
        .command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])
        .await;
    let (_, findings) = doctor(dir, &on(&volatile)).await;
    assert_finding(&findings, "store", "error", "evicts keys");
    volatile.stop();
    let (_, findings) = doctor(dir, &on(&volatile)).await;
    assert_finding(&findings, "store", "error", "cannot be used");

    let locked = RedisServer::durable().with_password().started();
    let (_, findings) = doctor(dir, &on(&locked)).await;
    assert_finding(&findings, "store", "error", "NOAUTH");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_distinguishes_rejected_credentials_lost_agents_and_wrong_clocks() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let with = |master: SocketAddr| configuration(dir, &master.to_string());
    let rejecting = master(StatusCode::UNAUTHORIZED, HeaderMap::new(), String::new()).await;
    let (code, findings) = doctor(dir, &with(rejecting)).await;
    assert_finding(&findings, "credentials", "error", "401");
    assert_eq!(code, Some(1), "{findings:#?}");
    let credentials = "[cluster]\nusername = \"u\"\npassword = \"wrong\"\n";
    let (_, findings) = doctor(dir, &with(rejecting).replace("[cluster]\n", credentials)).await;
    assert_finding(&findings, "credentials", "error", "were rejected");

    let occupied_port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let agent = |host: &str, listener: &TcpListener| {
        let address = listener.local_addr().expect("an address");
        json!({"agent_info": {"hostname": host, "id": {"value": host}}, "active": true, "pid": format!("slave(1)@{address}")})
    };
    let agents = json!([agent("here", &occupied_port), agent("gone", &closed)]);
    drop(closed);
    let body = json!({"type": "GET_AGENTS", "get_agents": {"agents": agents}, "version": "1.11.0"});
    let mut headers = HeaderMap::new();
    headers.insert("date", "Sat, 01 Jan 2000 00:00:00 GMT".parse().expect("a value"));
    headers.insert("content-type", "application/json".parse().expect("a value"));
    let late = master(StatusCode::OK, headers, body.to_string()).await;
    let (_, findings) = doctor(dir, &with(late)).await;
    assert_finding(&findings, "master", "ok", "leads");
    assert_finding(&findings, "version", "ok", "1.11.0");
    assert_finding(&findings, "agents", "warning", "1 of 2 agents accept connections");
    assert_finding(&findings, "agents", "warning", "gone: 127.0.0.1:");
    assert_finding(&findings, "clock", "error", "ahead of that of the master");
    let old = master(
        StatusCode::OK,
        HeaderMap::new(),
        body.to_string().replace("1.11.0", "0.28.0"),
    )
    .await;
    let (_, findings) = doctor(dir, &with(old)).await;
    assert_finding(&findings, "version", "error", "0.28.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn top_draws_in_a_terminal_and_restores_it() {
    let site = Site::start().await;
    let url = site.admin("");
    let dir = tempfile::tempdir().expect("a directory");
    let typescript = dir.path().join("typescript");
    let inner = format!(
        "stty rows 40 cols 150; '{}' top --url {url} --interval 1; echo \"ended with $?\"",
        binary().display()
    );
    let mut terminal = Command::new("script")
        .args(["--quiet", "--flush", "--command", &inner])
        .arg(&typescript)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("script, of the package bsdutils");
    let mut keys = terminal.stdin.take().expect("piped");
    let mut press = |text: &str| {
        keys.write_all(text.as_bytes()).expect("the terminal reads");
        keys.flush().expect("flushed");
    };
    let appears = |part: &'static str| {
        let typescript = typescript.clone();
        async move {
            eventually(part, || async {
                let shown = text(&fs::read(&typescript).unwrap_or_default());
                if shown.contains(part) {
                    Ok(shown)
                } else {
                    Err(shown)
                }
            })
            .await
        }
    };
    let screen = appears("marathon (here)").await;
    assert!(screen.contains("\u{1b}[?1049h"), "the other screen: {screen:?}");
    press("/nothing-has-this\r");
    appears("filter: nothing-has-this").await;
    press(" ");
    appears("PAUSED").await;
    press("q");
    let screen = appears("ended with 0").await;
    let (left, cursor) = (screen.rfind("\u{1b}[?1049l"), screen.rfind("\u{1b}[?25h"));
    assert!(
        left < screen.rfind("ended with") && left.is_some() && cursor.is_some(),
        "{screen:?}"
    );
    drop(keys);
    let ended = tokio::task::spawn_blocking(move || terminal.wait())
        .await
        .expect("no panic");
    assert!(ended.expect("it ran").success());
}
