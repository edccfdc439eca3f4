//! Operators ask for reasons: `transom plugin explain matcher`, `filter` and `probe`.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_testkit::redis::RedisServer;
use transom_tests::events::Events;
use transom_tests::http;
use transom_tests::plugin::Plugin;
use transom_tests::process::{Transom, binary, user};
use transom_tests::site::{Cluster, Site, addresses, copy_components};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `transom plugin explain ARGUMENTS` with this admin port.
fn explain_at(admin: &str, arguments: &[&str]) -> Output {
    Command::new(binary())
        .args(["plugin", "explain"])
        .args(arguments)
        .env("TRANSOM_ADMIN_URL", admin)
        .output()
        .expect("transom runs")
}

/// The output of an explanation as text.
fn explanation_text(site: &Site, arguments: &[&str]) -> String {
    let output = explain_at(&site.admin(""), arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The output of an explanation as JSON.
fn explanation_json(site: &Site, arguments: &[&str]) -> Value {
    let arguments = [arguments, &["--output", "json"]].concat();
    serde_json::from_str(&explanation_text(site, &arguments)).expect("JSON")
}

/// The message of an explanation that fails.
fn explanation_error(admin: &str, arguments: &[&str]) -> String {
    let output = explain_at(admin, arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
    error
}

/// The settings of a Kubernetes cluster whose first member waits, because no agent has the required
/// name.
fn kubernetes() -> String {
    format!(
        "port = 0\ncontainers = false\nframework_user = \"{}\"\nds_command = \"sleep 1000\"\n\
         orch_ds_constraint = \"nowhere.test\"\nheartbeat_interval = \"1s\"\n",
        user()
    )
}

fn sleeper(id: &str, more: &Value) -> Value {
    let mut app = json!({"id": id, "cmd": "exec sleep 1000", "cpus": 0.05, "mem": 16, "portDefinitions": []});
    let members = app.as_object_mut().expect("an object");
    members.extend(more.as_object().expect("an object").clone());
    app
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placement_is_explained_by_condition_and_attribute_values() {
    let agents = [
        "--agents",
        "4",
        "--attributes",
        "rack:a;disk:ssd",
        "--attributes",
        "rack:b",
        "--attributes",
        "rack:b",
        "--attributes",
        "rack:c",
    ];
    let site = Site::start_on(&agents, "[plugins.use]\nmatcher = [\"attributes\", \"second\"]\n").await;
    Plugin::first_party("attributes").install(&site.plugins(), "second");
    site.rescan().await;
    let constraints = json!([
        ["rack", "LIKE", "a|c"],
        ["disk", "IS", "ssd"],
        ["hostname", "UNIQUE"]
    ]);
    site.post_app(&sleeper(
        "/web",
        &json!({"instances": 2, "constraints": constraints}),
    ))
    .await;
    site.wait_until_running("/web", 1).await;

    let explained = eventually("all agents are known", async || {
        let explained = explanation_json(&site, &["matcher", "--app", "/web"]);
        if explained["agents"] == 4 {
            Ok(explained)
        } else {
            Err(explained.to_string())
        }
    })
    .await;
    assert_eq!(explained["matchers"], json!(["attributes", "second"]));
    assert_eq!(
        (&explained["accepted"], &explained["placed"]),
        (&json!(0), &json!(1))
    );
    let rejections = explained["refusals"].as_array().expect("a list");
    let counted: Vec<Value> = rejections
        .iter()
        .map(|it| json!([it["plugin"], it["condition"], it["agents"], it["values"]]))
        .collect();
    let values = |value: Value, agents: u64| json!([{"value": value, "agents": agents}]);
    let host = rejections[2]["examples"][0].clone();
    assert_eq!(
        counted,
        [
            json!(["attributes", "rack LIKE a|c", 2, values(json!("b"), 2)]),
            json!(["attributes", "disk IS ssd", 1, values(Value::Null, 1)]),
            json!(["attributes", "hostname UNIQUE", 1, values(host, 1)]),
        ]
    );
    let table = explanation_text(&site, &["matcher", "--app", "/web"]);
    for part in [
        "/web: 0 of 4 agents",
        "rack LIKE a|c",
        "b: 2",
        "(none): 1",
        "Relax one of these",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }

    site.post_app(&sleeper("/free", &json!({}))).await;
    site.wait_until_running("/free", 1).await;
    let table = explanation_text(&site, &["matcher", "--app", "/free"]);
    assert!(
        table.contains("/free: 4 of 4 agents") && table.contains("has no constraints"),
        "{table}"
    );

    // A missing matcher is reported as the reason.
    fs::remove_file(site.plugins().join("second.wasm")).expect("removed");
    site.rescan().await;
    let table = explanation_text(&site, &["matcher", "--app", "/web"]);
    assert!(
        table.contains("Nothing is launched") && table.contains("`second`"),
        "{table}"
    );

    for (app, expected) in [
        ("/absent", "no app or pod is called /absent"),
        ("/UPPER", "expected for example /shop/web"),
    ] {
        let error = explanation_error(&site.admin(""), &["matcher", "--app", app]);
        assert!(error.contains(expected), "{app}: {error}");
    }
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pending_job_and_member_are_explained_by_the_conditions_of_their_requests() {
    let services = format!(
        "[workflow]\nport = 0\ncontainers = false\n[kubernetes.blue]\n{}",
        kubernetes()
    );
    let agents = [
        "--agents",
        "2",
        "--attributes",
        "rack:a",
        "--attributes",
        "rack:b",
    ];
    let site = Site::start_on(&agents, &services).await;
    let queue = async |id: &str, rack: &str| {
        let body = json!({"workflow_task_id": id, "command": ["sleep", "1000"], "attributes": [format!("rack:{rack}")],
                          "cpus": 0.05, "mem_limit": "16m"});
        let url = format!("http://{}/v0/queue_command", site.addresses["workflow"]);
        let answer = site.http.post(url).json(&body).send().await.expect("an answer");
        assert!(answer.status().is_success(), "{id}: {}", answer.status());
    };
    queue("nightly report", "c").await;
    queue("runs", "a").await;

    let known = async |arguments: &[&str]| {
        let what = format!("both agents are known to the scheduler of {arguments:?}");
        eventually(&what, async || {
            let output = explain_at(&site.admin(""), &[arguments, &["--output", "json"]].concat());
            let shown = || format!("{} {}", text(&output.stdout), text(&output.stderr));
            let document: Value = serde_json::from_slice(&output.stdout).map_err(|_| shown())?;
            if document["agents"] == 2 {
                Ok(document)
            } else {
                Err(shown())
            }
        })
        .await
    };
    let job = ["matcher", "--job", "nightly report"];
    let explained = known(&job).await;
    assert_eq!(
        (&explained["id"], &explained["instances"], &explained["accepted"]),
        (&json!("nightly report"), &json!(1), &json!(0))
    );
    let rejection = &explained["refusals"][0];
    assert_eq!(
        (
            &rejection["plugin"],
            &rejection["condition"],
            &rejection["agents"]
        ),
        (&json!("attributes"), &json!("rack:c"), &json!(2))
    );
    assert_eq!(explained.get("canary"), None);
    let table = explanation_text(&site, &job);
    assert!(
        table.starts_with("nightly report: 0 of 2 agents may run it."),
        "{table}"
    );

    let member = ["matcher", "--member", "blue/datastore/0"];
    let explained = known(&member).await;
    assert_eq!(
        (&explained["id"], &explained["refusals"][0]["agents"]),
        (&json!("blue/datastore/0"), &json!(2))
    );
    let table = explanation_text(&site, &member);
    for part in [
        "0 of 1 of its kind are placed",
        "@hostname LIKE (?i)nowhere",
        "Relax one of these",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }

    // A canary is called in addition to the version that serves, as in a matching round.
    let mut next = Plugin::first_party("attributes").stamped(1);
    let rollout = "rollout = \"canary-manual\"\ncanary = { percent = 99 }\n";
    next.manifest = format!("{rollout}{}", next.manifest);
    next.install(&site.plugins(), "attributes");
    site.rescan().await;
    for arguments in [&job, &member] {
        let explained = explanation_json(&site, arguments);
        assert_eq!(
            (
                &explained["canary"]["answer"]["accepted"],
                &explained["canary"]["answer"]["refusals"]
            ),
            (&json!(0), &explained["refusals"]),
            "{explained}"
        );
        assert!(explanation_text(&site, arguments).contains("is in the share of a canary"));
    }

    launched_and_unknown_ones_are_rejected(&site).await;
    site.cluster.stop_after(site.daemon);
}

/// Explanations fail for a running job, for a member that waits for another one, and for unknown
/// ids.
async fn launched_and_unknown_ones_are_rejected(site: &Site) {
    let running = eventually("the other job runs", async || {
        let url = format!("http://{}/v0/task/runs", site.addresses["workflow"]);
        let seen = site.get(&url).await?;
        let task = &seen["status"];
        if task["state"] == "TASK_RUNNING" {
            Ok(task["task_id"]["value"].as_str().expect("an id").to_owned())
        } else {
            Err(seen.to_string())
        }
    })
    .await;
    for (arguments, expected) in [
        (&["matcher", "--job", "runs"][..], "its state is TASK_RUNNING"),
        (&["matcher", "--job", "absent"], "`GET /v0/queue`"),
        (
            &["matcher", "--member", "blue/server/0"],
            "is not requested from the scheduler yet",
        ),
        (&["matcher", "--member", "blue/agent/9"], "/api/fw/v0/explain`"),
        (&["matcher", "--member", "datastore/0"], "one of the names blue"),
        (&["matcher", "--member", "blue/pod/0"], "for example server/0"),
        (&["probe", "--task", &running], "jobs have no checks"),
    ] {
        let error = explanation_error(&site.admin(""), arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_events_are_explained_by_the_filter_that_drops_or_replaces_them() {
    let site = Site::start_with("[plugins.use]\nfilter = [\"events\", \"mark\"]\n").await;
    let mut mark = Plugin::test_guest("faulty-events");
    mark.manifest = "world = \"event-filter\"\n[limits]\nmemory = \"16MiB\"\n[config]\n\
                     token = \"hunter2-token\"\ndrop = [\"deployment_success\"]\n"
        .to_owned();
    mark.install(&site.plugins(), "mark");
    site.rescan().await;
    site.post_app(&sleeper("/web", &json!({}))).await;
    site.wait_until_running("/web", 1).await;

    let query = "event_type=status_update_event&event_type=deployment_success&color=red";
    let explained = eventually("the deployment ends", async || {
        let explained = explanation_json(&site, &["filter", "--query", query]);
        let kinds = explained["kinds"].as_array().cloned().unwrap_or_default();
        if kinds.iter().any(|kind| kind["kind"] == "deployment_success") {
            Ok(explained)
        } else {
            Err(explained.to_string())
        }
    })
    .await;
    let outcome = |kind: &str| {
        let kinds = explained["kinds"].as_array().expect("a list");
        let kind = kinds.iter().find(|it| it["kind"] == kind).expect("a kind");
        kind["outcomes"][0].clone()
    };
    let ended = |kind: &str| (outcome(kind)["outcome"].clone(), outcome(kind)["plugin"].clone());
    assert_eq!(ended("status_update_event"), (json!("replaced"), json!("mark")));
    assert_eq!(ended("deployment_success"), (json!("dropped"), json!("mark")));
    assert_eq!(ended("api_post_event"), (json!("dropped"), json!("events")));
    assert_eq!(explained["ignored_parameters"], json!(["color"]));
    let example = outcome("status_update_event")["examples"][0].clone();
    assert_eq!(example["subject"], "/web");
    assert!(
        example["replacement"]
            .as_str()
            .expect("a text")
            .contains("********"),
        "{example}"
    );
    assert!(!explained.to_string().contains("hunter2"), "{explained}");
    let table = explanation_text(&site, &["filter", "--query", query]);
    for part in [
        "status_update_event replaced by mark: event",
        "  now {",
        "parameters: color",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    // The explanation uses the same query as the stream.
    let stream = site.apps(&format!("/v2/events?{query}"));
    let mut stream = Events::open(&site.http, &stream).await;
    site.scale("/web", 2).await;
    let frame = stream.next().await.expect("the stream remains open");
    assert_eq!(
        (frame.event.as_str(), &frame.data["mark"]),
        ("status_update_event", &json!("hunter2-token"))
    );

    let error = explanation_error(
        &site.admin(""),
        &["filter", "--query", "filter=event.appId%20=%20'a'"],
    );
    assert!(
        error.contains("rejected") && error.contains("events: filter, line 1"),
        "{error}"
    );
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_of_a_probe_is_explained_step_by_step_and_not_counted() {
    let site = Site::start().await;
    // The next attempt of the check is an hour after the first.
    let check = |more: Value| {
        let mut check = json!({"gracePeriodSeconds": 0, "intervalSeconds": 3600, "delaySeconds": 3600, "timeoutSeconds": 5});
        let members = check.as_object_mut().expect("an object");
        members.extend(more.as_object().expect("an object").clone());
        check
    };
    let web = json!({
        "portDefinitions": [{"port": 0, "name": "http"}],
        "healthChecks": [
            check(json!({"protocol": "COMMAND", "command": {"value": "true"}})),
            check(json!({"protocol": "HTTP", "path": "/health"})),
        ],
    });
    site.post_app(&sleeper("/web", &web)).await;
    let tasks = site.wait_until_running("/web", 1).await;
    let task = tasks[0]["id"].as_str().expect("an id").to_owned();
    let failures = async |count: u64| {
        site.tasks_when("/web", &format!("{count} failures"), |tasks| {
            let results = tasks[0]["healthCheckResults"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let failures = results.iter().filter_map(|it| it["consecutiveFailures"].as_u64());
            failures.sum::<u64>() == count
        })
        .await;
    };
    failures(1).await;
    let before = site
        .get(&site.admin("/v1/plugins/check-http"))
        .await
        .expect("a plugin");

    // Nothing listens on the port.
    let explained = explanation_json(&site, &["probe", "--task", &task]);
    assert_eq!(
        (&explained["check"], &explained["purpose"], &explained["kind"]),
        (&json!(1), &json!("health"), &json!("http"))
    );
    assert_eq!(
        (&explained["app"], &explained["verdict"]),
        (&json!("/web"), &json!("unreachable"))
    );
    let step = &explained["transcript"]["steps"][0];
    assert_eq!(
        (&step["step"]["http"]["path"], &step["answer"]["error"]),
        (&json!("/health"), &json!("refused"))
    );
    let table = explanation_text(&site, &["probe", "--task", &task, "--check", "1"]);
    for part in [
        "check 1 (health, http) by check-http",
        "refused",
        "no result (unreachable)",
        "counts neither",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }

    // The attempt is counted neither for the task nor for the plugin.
    let after = site
        .get(&site.admin("/v1/plugins/check-http"))
        .await
        .expect("a plugin");
    assert_eq!(before["calls"], after["calls"]);
    failures(1).await;

    site.post_app(&sleeper("/bare", &json!({}))).await;
    let bare = site.wait_until_running("/bare", 1).await;
    let bare = bare[0]["id"].as_str().expect("an id");
    for (arguments, expected) in [
        (
            &["probe", "--task", &task, "--check", "0"][..],
            "the task's agent makes check 0",
        ),
        (
            &["probe", "--task", &task, "--check", "7"],
            "there is no check 7; the task has 0: health",
        ),
        (&["probe", "--task", bare], "has no check"),
        (&["probe", "--task", "absent"], "no app has a task"),
    ] {
        let error = explanation_error(&site.admin(""), arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }

    // If the component is missing, the failure is reported as the reason.
    fs::remove_file(site.plugins().join("check-http.wasm")).expect("removed");
    site.rescan().await;
    let table = explanation_text(&site, &["probe", "--task", &task]);
    assert!(
        table.contains("no version serves") && table.contains("no result (plugin)"),
        "{table}"
    );
    site.cluster.stop_after(site.daemon);
}

/// Starts a daemon whose configuration ends with `more`; returns it and the URL of its admin port.
fn daemon(dir: &std::path::Path, name: &str, more: &str) -> (Transom, String) {
    let file = format!("{name}.toml");
    let configuration =
        format!("[log]\nformat = \"json\"\n[plugins]\ndir = \"plugins\"\n[admin]\nport = 0\n{more}");
    fs::write(dir.join(&file), configuration).expect("written");
    let mut process = Transom::start(dir, ["serve", "--config", file.as_str()]);
    let admin = format!("http://{}", addresses(&mut process)["admin"]);
    (process, admin)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_names_the_leader_and_daemon_without_the_service_names_the_section() {
    let dir = tempfile::tempdir().expect("a directory");
    copy_components(&dir.path().join("plugins"));
    let cluster = Cluster::start(dir.path());
    let redis = RedisServer::in_memory().started();
    let store = format!(
        "[cluster]\nmaster = \"{}\"\n[store]\nserver = \"{}\"\n",
        cluster.master,
        redis.address()
    );
    let services = format!(
        "{store}[apps]\nport = 0\n[workflow]\nport = 0\ncontainers = false\n[kubernetes]\n{}",
        kubernetes()
    );
    let (first, leading) = daemon(dir.path(), "first", &services);
    let (client, ready) = (http(), format!("{leading}/ready"));
    let leaders = eventually("the leaders", async || {
        let answer = client
            .get(&ready)
            .send()
            .await
            .map_err(|error| error.to_string())?;
        let seen: Value = answer.json().await.map_err(|error| error.to_string())?;
        let leader = |service: &str| {
            let framework = &seen["services"][service]["framework"];
            let leader = framework["leader"].as_str()?;
            (framework["leading"] == true).then(|| (service.to_owned(), leader.to_owned()))
        };
        let leaders = ["apps", "workflow", "kubernetes"].map(leader);
        let leaders: Option<BTreeMap<String, String>> = leaders.into_iter().collect();
        leaders.ok_or_else(|| seen.to_string())
    })
    .await;
    let (second, standby) = daemon(dir.path(), "second", &services);
    let (third, without) = daemon(
        dir.path(),
        "third",
        &format!(
            "[cluster]\nmaster = \"{}\"\n[discovery]\nlistener = \"127.0.0.1\"\nport = 0\n\
             http_listener = \"127.0.0.1\"\nhttp_port = 0\n",
            cluster.master
        ),
    );
    for (service, arguments) in [
        ("apps", &["matcher", "--app", "/web"][..]),
        ("workflow", &["matcher", "--job", "nightly"]),
        ("kubernetes", &["matcher", "--member", "server/0"]),
        ("apps", &["filter", "--query", ""]),
        (
            "apps",
            &[
                "probe",
                "--task",
                "web.instance-0664256e-6771-11e5-94e1-be5b2935a987._app.1",
            ],
        ),
    ] {
        eventually("the standby knows the leader", async || {
            let error = explanation_error(&standby, arguments);
            if error.contains("does not lead") && error.contains(&leaders[service]) {
                Ok(())
            } else {
                Err(error)
            }
        })
        .await;
        let error = explanation_error(&without, arguments);
        assert!(
            error.contains(&format!("the {service} service is disabled")),
            "{arguments:?}: {error}"
        );
    }
    for process in [third, second, first] {
        let (status, output) = process.interrupt();
        assert!(status.success(), "{output}");
    }
    cluster.stop();
}
