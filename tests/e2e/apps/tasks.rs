//! Apps on a cluster: the environment of their tasks, their placement after the loss of an agent,
//! kills by clients, and the log when a master rejects the credentials.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::installed;
use transom_tests::master::{Master, MasterResponse};
use transom_tests::process::Transom;
use transom_tests::site::{Site, copy_components};

fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("no text: {value}"))
        .to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_environment_has_every_variable_of_its_launch() {
    let (site, gate) = Site::start_gated("").await;
    let scratch = tempfile::tempdir().expect("a directory");
    let file = scratch.path().join("environment");
    let path = file.display();
    gate.delay("ACCEPT");
    site.post_app(&json!({
        "id": "/shop/env", "cpus": 0.1, "mem": 16,
        "cmd": format!("env > '{path}.new' && mv '{path}.new' '{path}' && exec sleep 1000"),
        "labels": {"tier-1": "yes"}, "env": {"OWN": "mine"},
        "portDefinitions": [{"port": 0, "name": "http-api"}],
    }))
    .await;
    // The variables are read from the call to the master, so that defaults of the agent do not
    // matter.
    let delayed = gate.wait_for_delayed_call("a launch", |_| true).await;
    let task = &delayed.call["accept"]["operations"][0]["launch"]["task_infos"][0];
    let variables = task["command"]["environment"]["variables"].as_array();
    let carried: BTreeMap<String, String> = variables
        .expect("variables")
        .iter()
        .map(|variable| (text(&variable["name"]), text(&variable["value"])))
        .collect();
    assert_eq!(carried["MESOS_TASK_ID"], text(&task["task_id"]["value"]));
    gate.release();

    let shown = site.wait_until_running("/shop/env", 1).await.remove(0);
    let (host, port) = (text(&shown["host"]), shown["ports"][0].to_string());
    let service_port = shown["servicePorts"][0].to_string();
    let (version, id) = (text(&shown["version"]), text(&shown["id"]));
    let by_service_port = format!("PORT_{service_port}");
    for (name, value) in [
        ("MESOS_TASK_ID", id.as_str()),
        ("HOST", &host),
        ("PORT", &port),
        ("PORTS", &port),
        ("PORT0", &port),
        (&by_service_port, &port),
        ("PORT_HTTP-API", &port),
        ("PORT_HTTP_API", &port),
        ("MARATHON_APP_ID", "/shop/env"),
        ("MARATHON_APP_VERSION", &version),
        ("MARATHON_APP_RESOURCE_CPUS", "0.1"),
        ("MARATHON_APP_RESOURCE_MEM", "16.0"),
        ("MARATHON_APP_RESOURCE_DISK", "0.0"),
        ("MARATHON_APP_RESOURCE_GPUS", "0"),
        ("MARATHON_APP_LABELS", "TIER_1"),
        ("MARATHON_APP_LABEL_TIER_1", "yes"),
        ("OWN", "mine"),
    ] {
        assert_eq!(carried.get(name).map(String::as_str), Some(value), "{name}");
    }
    let found = eventually("the task to write its environment", || async {
        fs::read_to_string(&file).map_err(|error| error.to_string())
    })
    .await;
    let found: BTreeMap<&str, &str> = found.lines().filter_map(|line| line.split_once('=')).collect();
    for (name, value) in &carried {
        // Shells do not pass on variables whose names are no valid shell names.
        if !name.contains('-') {
            assert_eq!(found.get(name.as_str()), Some(&value.as_str()), "{name}");
        }
    }
    site.cluster.stop_after(site.daemon);
}

/// The number of running tasks of an app on each agent, once there are `count` of them and none on
/// `lost`.
async fn tasks_per_agent(
    site: &Site,
    app: &str,
    count: usize,
    lost: Option<&str>,
) -> BTreeMap<String, usize> {
    let url = site.apps(&format!("/v2/apps{app}/tasks"));
    let what = format!("{count} running tasks of {app}, none of them on {lost:?}");
    eventually(&what, || async {
        let document = site.get(&url).await?;
        let mut agents = BTreeMap::new();
        for task in document["tasks"].as_array().into_iter().flatten() {
            let agent = text(&task["slaveId"]);
            if task["state"] == "TASK_RUNNING" && lost != Some(agent.as_str()) {
                *agents.entry(agent).or_default() += 1;
            }
        }
        if agents.values().sum::<usize>() == count {
            Ok(agents)
        } else {
            Err(format!(
                "{document:#} and {:#}",
                site.get(&site.apps("/v2/queue")).await?
            ))
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_instances_are_placed_on_the_remaining_agents_when_one_is_lost() {
    let site = Site::start_on(&["--agent-timeout", "1"], "").await;
    // App, constraint, instances, and the maximum and minimum of instances on an agent, before and
    // after the loss.
    let apps = [
        ("/racks", json!(["rack", "GROUP_BY"]), 3, (1, 1), (2, 1)),
        ("/hosts", json!(["@hostname", "GROUP_BY"]), 6, (2, 2), (3, 3)),
        (
            "/most-two",
            json!(["@hostname", "MAX_PER", "2"]),
            4,
            (2, 0),
            (2, 2),
        ),
        ("/unique", json!(["@hostname", "UNIQUE"]), 2, (1, 0), (1, 1)),
    ];
    for (app, constraint, instances, _, _) in &apps {
        site.post_app(&json!({
            "id": app, "cmd": "sleep 1000", "cpus": 0.05, "mem": 16, "instances": instances,
            "constraints": [constraint], "portDefinitions": [],
        }))
        .await;
    }
    let mut unlucky = String::new();
    for (app, _, instances, (most, least), _) in &apps {
        let agents = tasks_per_agent(&site, app, *instances, None).await;
        let counts = || agents.values().copied();
        assert_eq!(counts().max(), Some(*most), "{app}: {agents:?}");
        assert!(counts().all(|count| count >= *least), "{app}: {agents:?}");
        // The last app has two instances on three agents; the agent that is lost later has one of
        // them.
        unlucky = agents.keys().next().expect("an agent").clone();
    }

    site.fault(&json!({"fault": "kill-agent", "agent": unlucky}))
        .await;
    for (app, _, instances, _, (most, least)) in &apps {
        let agents = tasks_per_agent(&site, app, *instances, Some(&unlucky)).await;
        let counts = || agents.values().copied();
        assert_eq!(
            (agents.len(), counts().max(), counts().min()),
            (2, Some(*most), Some(*least)),
            "{app}: {agents:?}"
        );
    }
    site.cluster.stop_after(site.daemon);
}

/// Runs a script with Marathon's Python client, which must succeed, and returns its output.
fn python_client(script: &str, site: &Site) -> Vec<u8> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("marathon")
        .join(script);
    let ended = Command::new(installed("python/marathon/bin/python"))
        .arg(script)
        .arg(site.apps(""))
        .env_clear()
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .output()
        .expect("a Python");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{errors}");
    ended.stdout
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_manages_apps_groups_and_deployments() {
    let site = Site::start().await;
    python_client("manage_apps.py", &site);
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_follows_the_events_of_deployments() {
    let site = Site::start_with("[apps.events]\nplan_format = \"upstream\"\n").await;
    python_client("follow_events.py", &site);
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_kills_named_tasks() {
    let site = Site::start().await;
    site.post_app(&json!({
        "id": "/web", "cmd": "sleep 1000", "cpus": 0.1, "mem": 16, "instances": 3, "portDefinitions": [],
    }))
    .await;
    site.wait_until_running("/web", 3).await;
    let answer = python_client("kill_given_tasks.py", &site);
    let tasks: Vec<String> = serde_json::from_slice(&answer).expect("JSON");
    let instance = |task: &str| task.split_once("._app").expect("a task id").0.to_owned();
    let after_upgrade = site
        .tasks_when(
            "/web",
            "two running tasks, one of them a new one",
            |after_upgrade| {
                let running: Vec<String> = after_upgrade
                    .iter()
                    .filter(|task| task["state"] == "TASK_RUNNING")
                    .map(|task| text(&task["id"]))
                    .collect();
                after_upgrade.len() == 2
                    && running.len() == 2
                    && !tasks[..2].iter().any(|task| running.contains(task))
            },
        )
        .await;
    let mut after_upgrade: Vec<String> = after_upgrade
        .iter()
        .map(|task| instance(&text(&task["id"])))
        .collect();
    after_upgrade.sort();
    let mut expected = vec![instance(&tasks[0]), instance(&tasks[2])];
    expected.sort();
    assert_eq!(
        after_upgrade, expected,
        "all instances except the one that was killed with `scale`"
    );
    site.cluster.stop_after(site.daemon);
}

/// The log contains, for each framework, the section and the keys of the credentials that the
/// master rejected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_credentials_are_logged_with_framework_and_keys() {
    let master = Master::start(MasterResponse {
        required_authorization: Some("Basic of another user".to_owned()),
        ..MasterResponse::document("{}")
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    copy_components(&dir.path().join("plugins"));
    let store = dir.path().join("store");
    let configuration = format!(
        "[log]\nformat = \"json\"\n\
         [cluster]\nmaster = \"{}\"\nusername = \"ops\"\npassword = \"s3cret\"\n\
         [store]\nserver = \"file:{}\"\n[plugins]\ndir = \"plugins\"\n[admin]\nport = 0\n\
         [apps]\nport = 0\nframework_name = \"the-apps\"\n\
         [workflow]\nport = 0\nframework_name = \"the-jobs\"\nauthenticate = true\n\
         default_principal = \"jobs\"\ndefault_secret = \"0ther\"\n",
        master.address,
        store.display()
    );
    fs::write(dir.path().join("transom.toml"), configuration).expect("written");
    let mut daemon = Transom::start(dir.path(), ["serve", "--config", "transom.toml"]);
    for (framework, keys) in [
        ("the-apps", "check `username` and `password` in [cluster]"),
        (
            "the-jobs",
            "check `default_principal` and `default_secret` in [workflow]",
        ),
    ] {
        daemon.wait_for_line(&format!("a hint for {framework}"), |line| {
            let entry: Value = serde_json::from_str(line).ok()?;
            let error = entry["error"].as_str()?;
            (entry["framework"] == framework && error.contains("401") && error.contains(keys)).then_some(())
        });
    }
    let (_, output) = daemon.interrupt();
    assert!(
        !output.contains("s3cret") && !output.contains("0ther"),
        "{output}"
    );
}
