//! Python clients of the workflow service: the published operator unchanged, our own distribution,
//! and a complete Airflow that runs the example DAG with our executor.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use transom_testkit::free_port;
use transom_tests::airflow::{
    AIRFLOW_TIMEOUT, Airflow, Program, airflow_2_environment, environment, output, program, root,
};
use transom_tests::site::Site;

/// A program of the environment, isolated from the environment variables of this machine.
fn python(home: &Path, name: &str) -> Command {
    program(&environment(), home, name)
}

const SECTION: &str = "[workflow]\nport = 0\ncontainers = false\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn published_operator_runs_unchanged() {
    let site = Site::start_with(SECTION).await;
    let home = tempfile::tempdir().expect("a directory");
    let url = format!("http://{}", site.addresses["workflow"]);
    let mut command = python(home.path(), "python");
    command
        .arg(root().join("tests/airflow/published_operator.py"))
        .env("AIRFLOW__MESOS__OPERATOR_API_URL", &url);
    let text = tokio::task::spawn_blocking(move || output(&mut command))
        .await
        .expect("it ends");
    let outcomes: BTreeMap<String, String> = lines(&text)
        .into_iter()
        .map(|line| {
            let word = |name: &str| line[name].as_str().expect("a text").to_owned();
            (word("case"), word("outcome"))
        })
        .collect();
    for case in ["text", "list", "number", "again"] {
        assert_eq!(outcomes[case], "TASK_FINISHED", "{case}: {outcomes:#?}");
    }
    let failed = &outcomes["fails"];
    assert!(failed.contains("finished in state TASK_FAILED"), "{failed}");
    let late = &outcomes["waits"];
    assert!(
        late.contains("Timed out waiting for Mesos task airflow.published.waits"),
        "{late}"
    );
    let wrong = &outcomes["wrong"];
    assert!(
        wrong.contains("Unable to queue Mesos task") && wrong.contains("422"),
        "{wrong}"
    );
    // Queueing the same id twice creates two runs.
    let launches = site.cluster.launches();
    let list = launches
        .keys()
        .filter(|task| task.starts_with("airflow.published.list"))
        .count();
    assert_eq!(list, 2, "{launches:?}");
    site.cluster.stop_after(site.daemon);
}

/// The output of a program, which is one JSON object per line.
fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_operator_runs_in_the_oldest_supported_airflow() {
    let site = Site::start_with(SECTION).await;
    let home = tempfile::tempdir().expect("a directory");
    let url = format!("http://{}", site.addresses["workflow"]);
    let text = tokio::task::spawn_blocking(move || {
        let command = |name: &str| {
            let mut command = program(&airflow_2_environment(), home.path(), name);
            command.env("AIRFLOW__CLUSTER__OPERATOR_API_URL", &url);
            command
        };
        output(command("airflow").args(["db", "migrate"]));
        output(command("python").arg(root().join("tests/airflow/operator_2.py")))
    })
    .await
    .expect("it ends");
    let records = lines(&text);
    let about = |key: &str, value: &str| {
        let found = records.iter().find(|line| line[key] == value);
        found
            .cloned()
            .unwrap_or_else(|| panic!("no {key} {value}:\n{text}"))
    };
    let run = about("run", "failed");
    assert!(
        run["version"]
            .as_str()
            .is_some_and(|version| version.starts_with("2.10.")),
        "{run}"
    );
    for (task, state) in [
        ("finishes", "success"),
        ("look", "success"),
        ("deferred", "success"),
        ("fails", "failed"),
        ("deferred_fails", "failed"),
        ("waits", "failed"),
    ] {
        assert_eq!(about("task", task)["state"], state, "{task}:\n{text}");
    }
    about("pulled", "TASK_FINISHED");
    let link = records.iter().find_map(|line| line["link"].as_str());
    assert!(
        link.is_some_and(|link| link.contains("/v0/task/airflow.two.finishes.") && link.ends_with("/log")),
        "{link:?}"
    );
    // The log contains the reasons for the failure and for the wait.
    for expected in [
        "finished in state TASK_FAILED",
        "Command exited with status 4",
        "pending:",
        "`gpu:true`",
    ] {
        assert!(text.contains(expected), "{expected}:\n{text}");
    }
    // One container for each task, except for the one that could not be placed.
    let launches = site.cluster.launches();
    assert_eq!(launches.values().sum::<usize>(), 4, "{launches:?}");
    site.cluster.stop_after(site.daemon);
}

#[test]
fn airflow_distribution_passes_ruff_mypy_and_pytest() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = root().join("clients/airflow");
    let here = |name: &str| {
        let mut command = python(home.path(), name);
        command.current_dir(&dir);
        command
    };
    let cache = home.path().join("cache");
    output(here("ruff").args(["check", "--no-cache", "."]));
    output(here("ruff").args(["format", "--check", "--no-cache", "."]));
    output(here("mypy").arg("--cache-dir").arg(&cache).env("MYPYPATH", "src"));
    output(here("python").args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]));
}

/// The Airflow of the example's test, and the address of the daemon.
struct Example {
    airflow: Airflow,
    daemon: String,
}

impl Example {
    /// All task instances of the example: id, state and number of tries by `task[map index]`.
    fn instances(&self) -> BTreeMap<String, (String, String, u64)> {
        let script = "import json, sqlite3, sys\n\
            rows = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True, timeout=30).execute('select id, task_id, map_index, state, \
            try_number from task_instance').fetchall()\n\
            print(json.dumps(rows))";
        let mut command = self.airflow.command("python");
        let database = self.airflow.home.path().join("airflow.db");
        let text = output(command.arg("-c").arg(script).arg(database));
        let rows: Vec<(String, String, i64, Option<String>, u64)> =
            serde_json::from_str(text.lines().last().expect("a line")).expect("rows");
        rows.into_iter()
            .map(|(id, task, index, state, tries)| {
                let name = if index < 0 {
                    task
                } else {
                    format!("{task}[{index}]")
                };
                (name, (id, state.unwrap_or_default(), tries))
            })
            .collect()
    }

    /// Waits until `accept` accepts the instances.
    fn wait_until<T>(
        &self,
        what: &str,
        parts: &[&Program],
        accept: impl Fn(&BTreeMap<String, (String, String, u64)>) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + AIRFLOW_TIMEOUT;
        loop {
            let instances = self.instances();
            if let Some(found) = accept(&instances) {
                return found;
            }
            if Instant::now() > deadline {
                let logs: Vec<String> = parts.iter().map(|part| part.log()).collect();
                panic!(
                    "timed out waiting for {what}; last seen: {instances:#?}\n{}",
                    logs.join("\n----\n")
                );
            }
            std::thread::park_timeout(Duration::from_millis(500));
        }
    }
}

/// Runs the DAG of `examples/dags`. The scheduler is killed while tasks of its run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn airflow_runs_the_example_and_its_next_scheduler_adopts_the_tasks() {
    let workflow_port = free_port();
    let daemon = format!("http://127.0.0.1:{workflow_port}");
    let airflow = Airflow::new(&root().join("examples/dags"), &daemon);
    let worker = airflow.home.path().join("worker");
    fs::create_dir(&worker).expect("made");
    // The variables that a container's image would set, without the scheduler's secrets.
    let environment = [
        (
            "PATH",
            format!("{}:/usr/bin:/bin", environment().join("bin").display()),
        ),
        ("HOME", worker.display().to_string()),
        ("AIRFLOW_HOME", worker.display().to_string()),
        (
            "AIRFLOW__CORE__DAGS_FOLDER",
            root().join("examples/dags").display().to_string(),
        ),
        ("AIRFLOW__CORE__LOAD_EXAMPLES", "False".to_owned()),
        ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
    ];
    let variables: Vec<String> = environment
        .iter()
        .cloned()
        .chain([("AIRFLOW__CLUSTER__OPERATOR_API_URL", daemon.clone())])
        .map(|(name, value)| format!("{{ name = {}, value = {} }}", json!(name), json!(value)))
        .collect();
    let section = format!(
        "[workflow]\nport = {workflow_port}\ncontainers = false\ncontainer_environment = [{}]\n",
        variables.join(", ")
    );
    let site = Site::start_with(&section).await;
    let example = Example { airflow, daemon };
    let launches = tokio::task::spawn_blocking(move || {
        let ids = run_example(&example);
        (ids, example)
    });
    let (instances, example) = launches.await.expect("it ends");

    // Each task was launched once, and so was the operator's container. Nothing else was launched.
    let mut launches = site.cluster.launches();
    for (name, (id, ..)) in &instances {
        let id = uuid(id);
        assert_eq!(
            launches.remove(&format!("airflow.{id}")),
            Some(1),
            "{name}: {launches:?}"
        );
    }
    let container = format!(
        "airflow.cluster_example.container.{}",
        uuid(&instances["container"].0)
    );
    assert_eq!(launches.remove(&container), Some(1), "{launches:?}");
    assert!(launches.is_empty(), "{launches:?}");
    // The container's output, including quotes.
    let url = format!("{}/v0/task/{container}/log", example.daemon);
    let log = site
        .http
        .get(url)
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("a text");
    assert_eq!(log, "this is run once, and it's \"quoted\"\n");
    site.cluster.stop_after(site.daemon);
}

/// Inserts the hyphens into an id of the database, which stores ids without them.
fn uuid(text: &str) -> String {
    let digits = text.replace('-', "");
    format!(
        "{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    )
}

/// Runs the example to its end. A second scheduler replaces the first one in between.
fn run_example(example: &Example) -> BTreeMap<String, (String, String, u64)> {
    let airflow = &example.airflow;
    output(airflow.command("airflow").args(["db", "migrate"]));
    let api = airflow.start("api", &["api-server", "--workers", "1"]);
    let processor = airflow.start("processor", &["dag-processor"]);
    let mut first = airflow.start("scheduler-1", &["scheduler"]);
    let deadline = Instant::now() + AIRFLOW_TIMEOUT;
    let trigger = [
        "dags",
        "trigger",
        "cluster_example",
        "--run-id",
        "once",
        "--conf",
        "{\"seconds\": 40}",
    ];
    // The DAG processor must have parsed the DAG first.
    while !airflow
        .command("airflow")
        .args(trigger)
        .output()
        .expect("it starts")
        .status
        .success()
    {
        assert!(
            Instant::now() < deadline,
            "no DAG:\n{}\n{}",
            processor.log(),
            api.log()
        );
    }
    let parts = [&api, &processor];
    let before = example.wait_until("the slow task to run", &parts, |instances| {
        let slow = instances.get("slow")?;
        (slow.1 == "running").then(|| slow.clone())
    });
    first.kill();
    let second = airflow.start("scheduler-2", &["scheduler"]);
    let ended = |state: &str| matches!(state, "success" | "failed" | "skipped" | "upstream_failed");
    let instances = example.wait_until("every task to end", &[&api, &processor, &second], |instances| {
        let all = instances.len() >= 7 && instances.values().all(|(_, state, _)| ended(state));
        all.then(|| instances.clone())
    });
    assert_eq!(instances["slow"].0, before.0, "it was not started again");
    for (name, (_, state, tries)) in &instances {
        let expected = if name == "fails" { "failed" } else { "success" };
        assert_eq!((state.as_str(), *tries), (expected, 1), "{name}: {instances:#?}");
    }
    let names: Vec<&str> = instances.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "container",
            "fails",
            "hello",
            "slow",
            "square[0]",
            "square[1]",
            "square[2]"
        ]
    );
    instances
}
