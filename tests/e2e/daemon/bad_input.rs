//! Invalid input causes a clear error, and affects nothing else.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};
use tokio::net::TcpSocket;
use transom_testkit::eventually;
use transom_tests::events::Events;
use transom_tests::http;
use transom_tests::plugin::Plugin;
use transom_tests::process::{Transom, binary};
use transom_tests::site::Site;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_that_break_a_rule_are_rejected_with_the_field() {
    let site = Site::start().await;
    let cases = [
        ("{\"id\": ", 400, "/message", "Invalid JSON"),
        (
            "{\"id\": \"/x\", \"cmd\": \"a b\", \"cpus\": \"much\"}",
            422,
            "/details/0/path",
            "/cpus",
        ),
        (
            "{\"id\": \"/X!\", \"cmd\": \"sleep 1\"}",
            422,
            "/details/0/path",
            "/id",
        ),
        ("{\"id\": \"/x\"}", 422, "/details/0/path", "/"),
        (
            "{\"id\": \"/x\", \"cmd\": \"sleep 1\", \"check\": {\"tcp\": {}, \"intervalSeconds\": 1}}",
            422,
            "/details/0/path",
            "/check/timeoutSeconds",
        ),
        (
            "{\"id\": \"/x\", \"cmd\": \"sleep 1\", \"constraints\": [[\"rack\", \"NEAR\"]]}",
            422,
            "/details/0/path",
            "/constraints(0)",
        ),
    ];
    for (body, status, pointer, expected) in cases {
        let answer = site
            .http
            .post(site.apps("/v2/apps"))
            .header("Content-Type", "application/json")
            .body(body)
            .send()
            .await
            .expect("an answer");
        assert_eq!(answer.status().as_u16(), status, "{body}");
        let answer: Value = answer.json().await.expect("a JSON body");
        let found = answer
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default();
        assert!(found.contains(expected), "{body}: {answer}");
    }
    let apps = site.get(&site.apps("/v2/apps")).await.expect("apps");
    assert_eq!(apps, json!({"apps": []}));
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_components_leave_the_old_version_serving() {
    let site = Site::start().await;
    let good = Plugin::first_party("events");
    let mut nonsense = good.clone();
    nonsense.wasm = b"this is no component".to_vec();
    let mut wrong_world = Plugin::first_party("check-tcp");
    wrong_world.manifest.clone_from(&good.manifest);
    let forbidden_import = Plugin::test_guest("forbidden-import");
    let rejects_config = good.clone().config("no-such-key = 1");
    for (what, plugin, expected) in [
        ("a file that does not parse", &nonsense, "parse"),
        ("the wrong world", &wrong_world, "transom:events/filter"),
        ("a forbidden import", &forbidden_import, "import"),
        ("a wrong configuration", &rejects_config, "no-such-key"),
    ] {
        plugin.install(&site.plugins(), "events");
        site.rescan().await;
        let status = site
            .get(&site.admin("/v1/plugins/events"))
            .await
            .expect("a status");
        let rejection = status["refusal"].to_string();
        assert!(
            rejection.contains(expected),
            "{what}: expected {expected:?} in {status:#}"
        );
        let mut events = Events::open(&site.http, &site.apps("/v2/events")).await;
        events.next_of("event_stream_attached").await;
    }
    good.install(&site.plugins(), "events");
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_probes_are_stopped_and_other_checks_continue() {
    let site = Site::start().await;
    site.post_example("http.json").await;
    for (behaviour, expected) in [
        ("trap", "trap"),
        ("loop", "processor time"),
        ("allocate", "memory"),
    ] {
        let faulty =
            Plugin::test_guest("faulty-probe").config(&format!("attempt = {{ do = \"{behaviour}\" }}"));
        faulty.install(&site.plugins(), "check-tcp");
        site.rescan().await;
        site.post_app(&json!({
            "id": format!("/{behaviour}"), "cmd": "sleep 600", "cpus": 0.1, "mem": 32,
            "portDefinitions": [{"port": 0, "name": "p"}],
            "check": {"tcp": {"portIndex": 0}, "intervalSeconds": 2, "timeoutSeconds": 1, "delaySeconds": 0}
        }))
        .await;
        let url = site.apps(&format!("/v2/apps/{behaviour}/tasks?embed=checkFailure"));
        eventually(
            &format!("a probe that does {behaviour} to be stopped"),
            || async {
                let document = site.get(&url).await?;
                let message = document["tasks"][0]["checkFailure"]["message"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                if message.contains(expected) {
                    Ok(())
                } else {
                    Err(document.to_string())
                }
            },
        )
        .await;
        let gone = site
            .http
            .delete(site.apps(&format!("/v2/apps/{behaviour}")))
            .send()
            .await
            .expect("an answer");
        assert!(gone.status().is_success());
    }
    site.tasks_when("/http", "the neighbour's result", |tasks| {
        tasks.len() == 1 && tasks[0]["checkResult"]["http"]["statusCode"] == 200
    })
    .await;
    site.cluster.stop_after(site.daemon);
}

#[test]
fn used_port_is_reported_with_the_port_option() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("plugins")).expect("made");
    let config = format!(
        "[store]\nserver = \"file:{}\"\n[apps]\nport = {port}\n[admin]\nport = 0\n",
        dir.path().join("store").display()
    );
    fs::write(dir.path().join("transom.toml"), config).expect("written");
    let mut daemon = Transom::start(dir.path(), ["serve", "--config", "transom.toml"]);
    let status = daemon.wait();
    let output = daemon.output();
    assert_eq!(status.code(), Some(3), "{output}");
    assert!(
        output.contains(&port.to_string()) && output.contains("--port apps="),
        "{output}"
    );
}

#[test]
fn invalid_configuration_is_reported_with_key_and_file() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("transom.toml"), "[apps]\nprot = 1\n").expect("written");
    let mut daemon = Transom::start(dir.path(), ["serve", "--config", "transom.toml"]);
    let status = daemon.wait();
    let output = daemon.output();
    assert_eq!(status.code(), Some(2), "{output}");
    for expected in ["apps.prot", "did you mean `port`", "transom.toml"] {
        assert!(output.contains(expected), "{output}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_without_a_master_serves_warns_and_is_not_ready() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("plugins")).expect("made");
    // A bound socket that does not listen: connections are rejected, and no other process can take
    // the port.
    let unused = TcpSocket::new_v4().expect("a socket");
    unused.bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let nobody = unused.local_addr().expect("an address");
    let config = format!(
        "[log]\nformat = \"json\"\n[cluster]\nmaster = \"{nobody}\"\n[store]\nserver = \"file:{}\"\n[apps]\nport = 0\n[admin]\nport = 0\n",
        dir.path().join("store").display()
    );
    fs::write(dir.path().join("transom.toml"), config).expect("written");
    let mut daemon = Transom::start(dir.path(), ["serve", "--config", "transom.toml"]);
    let addresses = daemon.wait_for_line("addresses", |line| {
        serde_json::from_str::<Value>(line).ok()?["addresses"]
            .as_str()
            .map(str::to_owned)
    });
    let admin = addresses
        .split(' ')
        .find_map(|pair| pair.strip_prefix("admin="))
        .expect("admin")
        .to_owned();
    daemon.wait_for_line("the master's name in a warning", |line| {
        let entry: Value = serde_json::from_str(line).ok()?;
        (entry["level"] == "WARN" && line.contains(&nobody.to_string())).then_some(())
    });
    let client = http();
    let health = client
        .get(format!("http://{admin}/health"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(health.status().as_u16(), 200);
    // The framework is part of `/ready` only after the service has become the leader.
    eventually("the framework's subscription is reported", || async {
        let ready = client.get(format!("http://{admin}/ready")).send().await;
        let ready = ready.map_err(|error| error.to_string())?;
        assert_eq!(ready.status().as_u16(), 503);
        let body: Value = ready.json().await.map_err(|error| error.to_string())?;
        let subscribed = &body["services"]["apps"]["framework"]["subscribed"];
        if *subscribed == false {
            Ok(())
        } else {
            Err(body.to_string())
        }
    })
    .await;
    let (status, output) = daemon.interrupt();
    assert!(status.success(), "{output}");
}

/// Nobody reads the output of these commands, as when a pager has ended. They still do their work.
#[test]
fn commands_with_closed_outputs_do_their_work() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(
        dir.path().join("transom.toml"),
        "[workflow]\nrole = \"a\"\nframework_role = \"b\"\n",
    )
    .expect("written");
    let closed_pipe = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        writer
    };
    let output = Command::new(binary())
        .current_dir(dir.path())
        .args("plugin new mine --world event-filter --language rust".split(' '))
        .stdout(closed_pipe())
        .output()
        .expect("transom");
    assert_eq!(
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).as_ref()
        ),
        (Some(0), "")
    );
    assert!(dir.path().join("mine/mine.toml").is_file());

    let check = || {
        let mut command = Command::new(binary());
        command
            .current_dir(dir.path())
            .args(["config", "check", "--config", "transom.toml"]);
        command
    };
    let warned = check().output().expect("transom");
    let warning = String::from_utf8_lossy(&warned.stderr);
    assert!(warning.contains("`workflow.role` is used"), "{warning}");
    let unread = check().stderr(closed_pipe()).output().expect("transom");
    assert_eq!((unread.status, unread.stdout), (warned.status, warned.stdout));
}
