//! `transom apps` as operators use it: the program itself, against a daemon and a cluster.

mod completion;
mod hanging_daemon;
mod logs;
mod terminal;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use transom_testkit::{eventually, free_port};
use transom_tests::process::binary;
use transom_tests::site::Site;

/// `transom apps` for the daemon at `url`.
fn command(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TRANSOM_")) {
        command.env_remove(name);
    }
    command.arg("apps").args(arguments);
    command.env("TRANSOM_APPS_URL", url);
    command.stdin(Stdio::null());
    command
}

/// `transom` for all ports of a site.
fn program(site: &Site, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TRANSOM_")) {
        command.env_remove(name);
    }
    for (port, variable) in [
        ("apps", "TRANSOM_APPS_URL"),
        ("admin", "TRANSOM_ADMIN_URL"),
        ("discovery", "TRANSOM_DISCOVERY_URL"),
        ("workflow", "TRANSOM_WORKFLOW_OPERATOR_API_URL"),
    ] {
        if let Some(address) = site.addresses.get(port) {
            command.env(variable, format!("http://{address}"));
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The output and the exit code of a command.
#[derive(Debug)]
struct FinishedCommand {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for FinishedCommand {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        FinishedCommand {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }
}

struct Shell {
    site: Site,
    url: String,
}

impl Shell {
    async fn start() -> Shell {
        Self::start_with("").await
    }

    async fn start_with(configuration: &str) -> Shell {
        let site = Site::start_with(configuration).await;
        let url = format!("http://{}", site.addresses["apps"]);
        Shell { site, url }
    }

    fn run(&self, arguments: &[&str]) -> FinishedCommand {
        program(&self.site, &[&["apps"], arguments].concat())
            .output()
            .expect("transom runs")
            .into()
    }

    /// Runs a command that must succeed; returns its standard output.
    fn stdout_of(&self, arguments: &[&str]) -> String {
        let finished = self.run(arguments);
        assert_eq!(finished.code, Some(0), "{arguments:?}: {finished:?}");
        finished.out
    }

    /// Runs a command with JSON output, which must be one document.
    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.stdout_of(&[arguments, &["--output", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
    }

    /// Runs a command that must fail with this exit code; returns its messages.
    fn stderr_of_failure(&self, code: i32, arguments: &[&str]) -> String {
        let finished = self.run(arguments);
        assert_eq!(finished.code, Some(code), "{arguments:?}: {finished:?}");
        finished.err
    }

    /// Runs a command with a definition on standard input.
    fn run_with_stdin(&self, arguments: &[&str], definition: &Value) -> FinishedCommand {
        let mut child = command(&self.url, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("transom runs");
        let mut input = child.stdin.take().expect("piped");
        input
            .write_all(definition.to_string().as_bytes())
            .expect("written");
        drop(input);
        child.wait_with_output().expect("an end").into()
    }

    fn stop(self) {
        self.site.cluster.stop_after(self.site.daemon);
    }
}

fn example(path: &str) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    examples.join(path).display().to_string()
}

/// A column of the row of `id` in a table.
fn column<'a>(table: &'a str, id: &str, index: usize) -> &'a str {
    let row = table
        .lines()
        .find(|line| line.split_whitespace().next() == Some(id));
    let row = row.unwrap_or_else(|| panic!("no row {id}: {table}"));
    row.split_whitespace().nth(index).expect("a column")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn app_is_created_scaled_updated_compared_restarted_and_deleted() {
    let shell = Shell::start().await;
    let created = shell.stdout_of(&["create", "-f", &example("apps/spread.json")]);
    assert!(created.contains("finished"), "{created}");
    let table = shell.stdout_of(&["list"]);
    assert!(table.trim_start().starts_with("ID"), "{table}");
    assert_eq!(column(&table, "/spread", 2), "3/3");
    let list = shell.json(&["list"]);
    assert_eq!(list["apps"][0]["id"], "/spread");
    assert_eq!(list["apps"][0]["tasksRunning"], 3);

    let scaled = shell.json(&["scale", "spread", "2"]);
    assert_eq!(scaled["state"], "finished", "{scaled}");
    assert_eq!(column(&shell.stdout_of(&["list"]), "/spread", 2), "2/2");

    let set = [
        "--set",
        "env.COLOUR=1",
        "--set",
        "cpus=0.2",
        "--set",
        "labels.team=shop",
    ];
    let updated = shell.json(&[&["update", "/spread"], &set[..]].concat());
    assert_eq!(updated["state"], "finished", "{updated}");
    let shown = shell.json(&["show", "spread"]);
    assert_eq!(shown["env"], json!({"COLOUR": "1"}), "values of env are strings");
    assert_eq!(shown["cpus"], 0.2);
    let diff = shell.stdout_of(&["diff", "spread"]);
    for line in [
        "~ cpus         0.1 → 0.2",
        r#"+ env.COLOUR   "1""#,
        r#"+ labels.team  "shop""#,
    ] {
        assert!(diff.lines().any(|found| found == line), "{line}: {diff}");
    }
    let versions = shell.json(&["versions", "spread"]);
    let versions = versions["versions"].as_array().expect("versions");
    assert_eq!(versions.len(), 3, "{versions:?}");
    let oldest = versions[2].as_str().expect("a time");
    let all = shell.json(&["diff", "spread", oldest]);
    let paths: Vec<&Value> = all["differences"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["path"])
        .collect();
    assert!(paths.contains(&&json!("instances")), "{all}");
    // The file still has three instances and fewer CPUs.
    let file = shell.stdout_of(&["diff", "-f", &example("apps/spread.json")]);
    assert!(file.contains("instances") && file.contains("2 → 3"), "{file}");

    let before = shell.site.wait_until_running("/spread", 2).await;
    shell.stdout_of(&["restart", "spread"]);
    let after = shell.site.wait_until_running("/spread", 2).await;
    let old: Vec<&Value> = before.iter().map(|task| &task["id"]).collect();
    assert!(after.iter().all(|task| !old.contains(&&task["id"])), "{after:?}");

    // Back to the first definition.
    let back = shell.run_with_stdin(&["update", "spread", "-f", "-"], &json!({"version": oldest}));
    assert_eq!(back.code, Some(0), "{back:?}");
    assert_eq!(column(&shell.stdout_of(&["list"]), "/spread", 2), "3/3");

    shell.stdout_of(&["delete", "spread"]);
    let missing = shell.stderr_of_failure(1, &["show", "spread"]);
    assert!(
        missing.contains("no app, pod or group is called /spread"),
        "{missing}"
    );
    assert_eq!(shell.json(&["list"])["apps"], json!([]));
    shell.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_names_condition_and_counts_of_an_app_that_cannot_be_placed() {
    let shell = Shell::start().await;
    let big = json!({"id": "/big", "cmd": "exec sleep 1000", "cpus": 100, "mem": 32});
    let created = shell.run_with_stdin(&["create", "-f", "-", "--detach"], &big);
    assert_eq!(created.code, Some(0), "{created:?}");
    let deployment = created.out.trim().to_owned();
    let counted = eventually("offers that were declined", async || {
        let explained = shell.json(&["explain", "big"]);
        let conditions = explained["conditions"].as_array().cloned().unwrap_or_default();
        let cpus = conditions.into_iter().find(|one| one["condition"] == "cpus");
        cpus.filter(|cpus| cpus["declined"] == 3)
            .ok_or(explained.to_string())
    })
    .await;
    assert_eq!(counted["processed"], 3, "{counted}");
    assert_eq!(
        (&counted["needed"], &counted["largestOffer"]),
        (&json!(100.0), &json!(4.0))
    );
    let text = shell.stdout_of(&["explain", "big"]);
    assert!(text.contains("cpus: 3 of 3 offers have less than 100"), "{text}");
    assert!(text.contains("the largest offer has 4 ("), "{text}");
    assert!(text.contains("3 in the last round, from 3 agents"), "{text}");
    assert!(text.contains(&format!("--rollback {deployment}")), "{text}");
    let late = shell.stderr_of_failure(1, &["wait", "big", "--timeout", "1"]);
    assert!(
        late.contains("/big: 0 of 1 running") && late.contains("less than 100"),
        "{late}"
    );
    let late = shell.stderr_of_failure(1, &["wait", &deployment, "--timeout", "1"]);
    assert!(
        late.contains("is not done yet") && late.contains("scale /big (0 of 1 running)"),
        "{late}"
    );
    assert!(column(&shell.stdout_of(&["queue"]), "/big", 1) == "1");
    assert_eq!(shell.json(&["queue", "big"])["queue"][0]["count"], 1);

    let locked = shell.stderr_of_failure(1, &["update", "big", "--set", "mem=64"]);
    assert!(
        locked.contains(&deployment) && locked.contains("--force"),
        "{locked}"
    );
    assert!(shell.stdout_of(&["deployments"]).contains(&deployment));
    // A waiting client receives the failure of the deployment with its reason.
    let mut waiting = command(&shell.url, &["wait", &deployment])
        .stderr(Stdio::piped())
        .spawn()
        .expect("transom runs");
    let mut messages = BufReader::new(waiting.stderr.take().expect("piped"));
    let mut line = String::new();
    messages.read_line(&mut line).expect("progress");
    assert!(line.contains("scale /big"), "{line}");
    let reverted = shell.json(&["deployments", "--rollback", &deployment]);
    assert_eq!(
        (&reverted["state"], &reverted["reverts"]),
        (&json!("finished"), &json!(deployment))
    );
    assert_eq!(waiting.wait().expect("an end").code(), Some(1));
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut messages, &mut rest).expect("messages");
    assert!(rest.contains("failed: "), "{rest}");
    assert_eq!(shell.json(&["deployments"]), json!([]));
    let gone = shell.stderr_of_failure(1, &["deployments", "--cancel", &deployment]);
    assert!(gone.contains("may have ended"), "{gone}");
    shell.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_fails_when_the_creation_of_the_app_is_rolled_back() {
    let shell = Shell::start().await;
    let definition = json!({"id": "/big", "cmd": "sleep 1000", "cpus": 100});
    let created = shell.run_with_stdin(&["create", "-f", "-", "--detach", "--deadline", "3"], &definition);
    assert_eq!(created.code, Some(0), "{created:?}");
    let waited = shell.run(&["wait", "big", "--timeout", "60", "--output", "json"]);
    assert_eq!(waited.code, Some(1), "{waited:?}");
    assert!(waited.err.contains("/big was deleted while"), "{waited:?}");
    let document: Value = serde_json::from_str(&waited.out).expect("one document");
    assert_eq!(document, json!({"id": "/big", "state": "deleted"}));
    shell.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_task_is_replaced_or_the_app_is_scaled_down() {
    let shell = Shell::start().await;
    shell.stdout_of(&["create", "-f", &example("apps/faults.json")]);
    shell.stdout_of(&["scale", "faults", "2"]);
    let tasks = shell.json(&["tasks", "faults"]);
    let task = |index: usize| tasks["tasks"][index]["id"].as_str().expect("an id").to_owned();
    assert!(shell.stdout_of(&["tasks", "-o", "wide"]).contains(&task(1)));
    let wrong = shell.stderr_of_failure(1, &["kill", &task(0).replace("._app.1", "._app.9"), &task(1)]);
    assert!(
        wrong.contains("did you mean") && wrong.contains("Nothing was killed"),
        "{wrong}"
    );
    let killed = shell.json(&["kill", &task(0)]);
    assert_eq!(killed["killed"], json!([task(0)]));
    shell
        .site
        .tasks_when("/faults", "a replacement", |tasks| {
            tasks.len() == 2
                && tasks
                    .iter()
                    .all(|one| one["id"] != task(0) && one["state"] == "TASK_RUNNING")
        })
        .await;
    let scaled = shell.json(&["kill", "--scale", &task(1)]);
    assert_eq!(scaled["state"], "finished", "{scaled}");
    assert_eq!(shell.json(&["show", "faults"])["instances"], 1);
    let usage = shell.stderr_of_failure(2, &["kill", "--scale", "--wipe", &task(1)]);
    assert!(usage.contains("cannot be used with"), "{usage}");
    shell.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_followed_by_kind_and_a_wrong_filter_is_rejected() {
    let shell = Shell::start().await;
    let arguments = [
        "events",
        "--type",
        "deployment_success",
        "--count",
        "1",
        "--output",
        "json",
    ];
    let follower = command(&shell.url, &arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("transom runs");
    // Each further deployment causes an event, so that one arrives after the stream is open.
    shell.stdout_of(&["create", "-f", &example("apps/faults.json")]);
    let mut follower = Some(follower);
    eventually("an event", async || {
        let instances = shell.json(&["show", "faults"])["instances"].as_u64().unwrap_or(0);
        shell.stdout_of(&["scale", "faults", &(2 - instances % 2).to_string()]);
        let ended = follower.as_mut().map(|child| child.try_wait().expect("a child"));
        ended.flatten().map(drop).ok_or_else(|| "no event yet".to_owned())
    })
    .await;
    let output = follower
        .take()
        .expect("a child")
        .wait_with_output()
        .expect("output");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let event: Value = serde_json::from_str(&text).expect("one line of JSON");
    assert_eq!(event["eventType"], "deployment_success");
    assert_eq!(text.lines().count(), 1, "{text}");
    let rejected = shell.stderr_of_failure(1, &["events", "--filter", "(", "--count", "1"]);
    assert!(
        rejected.contains("filter") && rejected.contains("(400)"),
        "{rejected}"
    );
    shell.stop();
}

/// The daemon here is a script: it ends the stream after one event.
#[test]
fn event_stream_is_opened_again_with_the_id_of_the_last_event() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let daemon = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for number in 7..9 {
            let (stream, _) = listener.accept().expect("a connection");
            let mut lines = BufReader::new(stream.try_clone().expect("a stream")).lines();
            let mut head = String::new();
            while let Some(Ok(line)) = lines
                .next()
                .filter(|line| line.as_ref().is_ok_and(|line| !line.is_empty()))
            {
                head += &line.to_lowercase();
                head.push('\n');
            }
            requests.push(head);
            let mut stream = stream;
            let event = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n\
                 id: 1-{number}\r\nevent: kind\r\ndata: {{\"number\":{number}}}\r\n\r\n: slow client\r\n\r\n"
            );
            stream.write_all(event.as_bytes()).expect("written");
        }
        requests
    });
    let output = command(&url, &["events", "--count", "2", "--output", "json"]).output();
    let finished = FinishedCommand::from(output.expect("transom runs"));
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert_eq!(finished.out, "{\"number\":7}\n{\"number\":8}\n");
    assert!(
        finished
            .err
            .contains("connection lost after event 1-7: slow client"),
        "{}",
        finished.err
    );
    assert!(finished.err.contains("reconnected"), "{}", finished.err);
    let requests = daemon.join().expect("a script");
    assert!(
        requests[0].contains("ids=true") && !requests[0].contains("last-event-id"),
        "{requests:?}"
    );
    assert!(requests[1].contains("last-event-id: 1-7"), "{requests:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_suggest_the_next_step() {
    let shell = Shell::start().await;
    shell.stdout_of(&["create", "-f", &example("apps/faults.json")]);
    let missing = shell.stderr_of_failure(1, &["scale", "fautls", "2"]);
    assert!(missing.contains("did you mean /faults?"), "{missing}");
    let wrong = json!({"id": "/wrong", "cmd": "x", "cpus": -1, "mem": -4});
    let rejected = shell.run_with_stdin(&["create", "-f", "-"], &wrong);
    assert_eq!(rejected.code, Some(1), "{rejected:?}");
    let lines: Vec<Vec<&str>> = rejected
        .err
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert!(
        lines.iter().any(|line| line.first() == Some(&"PATH")),
        "{}",
        rejected.err
    );
    for path in ["/cpus", "/mem"] {
        assert!(
            lines.iter().any(|line| line.first() == Some(&path)),
            "{}",
            rejected.err
        );
    }
    let twice = shell.stderr_of_failure(1, &["create", "-f", &example("apps/faults.json")]);
    assert!(
        twice.contains("already exists") && twice.contains("update -f"),
        "{twice}"
    );
    for (arguments, part) in [
        (&["show", "../v2/groups"][..], "expected an id"),
        (&["create", "-f", "/dev/null"], "not JSON"),
        (&["update", "faults", "--set", "cpus"], "KEY=VALUE"),
        (&["update", "faults", "--set", "cmd.x=1"], "no members"),
        (&["list", "--url", "ftp://x"], "--url is"),
        (&["list", "--username", "me"], "go together"),
    ] {
        let text = shell.stderr_of_failure(2, arguments);
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
    shell.stop();

    let unused_url = format!("http://127.0.0.1:{}", free_port());
    let finished = FinishedCommand::from(command(&unused_url, &["list"]).output().expect("transom runs"));
    assert_eq!(finished.code, Some(3), "{finished:?}");
    assert!(
        finished.err.contains("transom dev") && finished.err.contains("TRANSOM_APPS_URL"),
        "{}",
        finished.err
    );
    assert_eq!(finished.out, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_credentials_are_an_error_and_variables_supply_them() {
    let mut shell = Shell::start().await;
    shell.site.kill_daemon();
    let config = std::fs::read_to_string(shell.site.config()).expect("read");
    // Clients on loopback need credentials only if the trusted networks do not include it.
    let credentials =
        "[apps]\napi_username = \"ops\"\napi_password = \"secret\"\ntrusted_networks = [\"10.255.0.0/16\"]\n";
    std::fs::write(shell.site.config(), config.replace("[apps]\n", credentials)).expect("written");
    shell.site.start_daemon().await;
    shell.url = format!("http://{}", shell.site.addresses["apps"]);
    let rejected = shell.stderr_of_failure(1, &["list"]);
    assert!(rejected.contains("TRANSOM_APPS_API_PASSWORD"), "{rejected}");
    let output = command(&shell.url, &["list", "--output", "json"])
        .envs([
            ("TRANSOM_APPS_API_USERNAME", "ops"),
            ("TRANSOM_APPS_API_PASSWORD", "secret"),
        ])
        .output();
    let finished = FinishedCommand::from(output.expect("transom runs"));
    assert_eq!(finished.code, Some(0), "{finished:?}");
    shell.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_and_pod_are_planned_created_listed_and_deleted() {
    let shell = Shell::start().await;
    let group = example("groups/shop.json");
    let plan = shell.stdout_of(&["create", "-f", &group, "--dry-run"]);
    assert!(
        plan.lines()
            .any(|line| line.split_whitespace().eq(["3", "scale", "/shop/web/ui"])),
        "{plan}"
    );
    assert_eq!(shell.json(&["list"])["apps"], json!([]), "nothing was created");
    let created = shell.json(&["create", "-f", &group]);
    assert_eq!(
        (&created["kind"], &created["state"]),
        (&json!("group"), &json!("finished"))
    );
    assert_eq!(
        shell.json(&["list", "/shop/web"])["apps"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    assert!(shell.stdout_of(&["diff", "-f", &group]).contains("no difference"));
    shell.stdout_of(&["wait", "/shop", "--timeout", "60"]);
    assert_eq!(
        shell.json(&["tasks", "/shop"])["tasks"].as_array().map(Vec::len),
        Some(4)
    );

    let pod = json!({
        "id": "/pair",
        "containers": [
            {"name": "a", "exec": {"command": {"shell": "exec sleep 1000"}}, "resources": {"cpus": 0.1, "mem": 32}},
            {"name": "b", "exec": {"command": {"shell": "exec sleep 1000"}}, "resources": {"cpus": 0.1, "mem": 32}},
        ],
    });
    let created = shell.run_with_stdin(&["create", "-f", "-", "--output", "json"], &pod);
    assert_eq!(created.code, Some(0), "{created:?}");
    shell.stdout_of(&["scale", "pair", "2"]);
    shell.stdout_of(&["wait", "pair", "--healthy", "--timeout", "60"]);
    assert_eq!(column(&shell.stdout_of(&["list"]), "/pair", 2), "2/2");
    let diff = shell.stdout_of(&["diff", "pair"]);
    assert!(
        diff.contains("scaling.instances") && diff.contains("1 → 2"),
        "{diff}"
    );
    let tasks = shell.json(&["tasks", "pair"]);
    let instance = tasks["pods"][0]["instances"][0]["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    assert_eq!(shell.json(&["kill", &instance])["killed"], json!([instance]));
    let restart = shell.stderr_of_failure(1, &["restart", "pair"]);
    assert!(restart.contains("transom apps kill"), "{restart}");
    shell.stdout_of(&["delete", "pair"]);

    let rejected = shell.stderr_of_failure(1, &["delete", "/shop"]);
    assert!(
        rejected.contains("3 apps") && rejected.contains("--recursive"),
        "{rejected}"
    );
    shell.stdout_of(&["delete", "/shop", "--recursive"]);
    assert_eq!(shell.json(&["list"]), json!({"apps": [], "pods": []}));
    shell.stop();
}

#[test]
fn completions_and_man_page_have_the_command() {
    for (arguments, expected) in [
        (&["completions", "bash"][..], "TRANSOM_COMPLETE"),
        (&["completions", "zsh"], "TRANSOM_COMPLETE"),
        (&["man", "apps"], "explain"),
    ] {
        let output = Command::new(binary())
            .args(arguments)
            .output()
            .expect("transom runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && text.contains(expected),
            "{arguments:?}: {text}"
        );
    }
}
