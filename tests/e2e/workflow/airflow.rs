//! Tasks on the cluster as users and administrators of Airflow see them through its REST API:
//! states, logs, events and links. A lost response between Airflow and the daemon starts no task
//! twice.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use reqwest::Method;
use serde_json::{Value, json};
use transom_testkit::free_port;
use transom_tests::airflow::{self, Airflow, Program, eventually, output, program, root};
use transom_tests::lossy_proxy::LossyProxy;
use transom_tests::site::Site;

const RUN: &str = "/dags/on_the_cluster/dagRuns/once";
/// `[scheduler] task_queued_timeout` in seconds, which is also the lifetime of a workload's token.
const TOKEN_LIFE: f64 = 150.0;

/// A site and an Airflow in which the DAG `on_the_cluster` is running.
struct AirflowSite {
    /// Dropped first, and thereby killed: the folder that contains their logs is removed later.
    components: Vec<Program>,
    site: Site,
    airflow: Airflow,
    lossy_proxy: LossyProxy,
    flags: PathBuf,
}

impl AirflowSite {
    async fn start() -> Self {
        // The proxy needs the daemon's address before the daemon starts, and the daemon needs the
        // variables of its containers.
        let port = free_port();
        let lossy_proxy = LossyProxy::before(SocketAddr::from(([127, 0, 0, 1], port))).await;
        let daemon = format!("http://{}", lossy_proxy.address);
        let airflow = Airflow::new(&root().join("tests/airflow/dags"), &daemon)
            // Tasks in containers find the alias of their executor too.
            .with(
                "CORE__EXECUTOR",
                "LocalExecutor,cluster:transom_airflow.executor.ClusterExecutor",
            )
            .with("SCHEDULER__TASK_QUEUED_TIMEOUT", &TOKEN_LIFE.to_string())
            // There is only one scheduler. However slow it is, its tasks must not be adopted as
            // those of a dead one.
            .with("SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD", "600");
        let home = airflow.home.path().to_owned();
        let (worker, flags) = (home.join("worker"), home.join("flags"));
        for dir in [&worker, &flags] {
            fs::create_dir(dir).expect("made");
        }
        let bin = airflow::environment().join("bin");
        let variables = [
            ("PATH", format!("{}:/usr/bin:/bin", bin.display())),
            ("HOME", worker.display().to_string()),
            ("AIRFLOW_HOME", worker.display().to_string()),
            (
                "AIRFLOW__CORE__DAGS_FOLDER",
                root().join("tests/airflow/dags").display().to_string(),
            ),
            ("AIRFLOW__CORE__LOAD_EXAMPLES", "False".to_owned()),
            // All processes share this folder, as containers would share a volume.
            (
                "AIRFLOW__LOGGING__BASE_LOG_FOLDER",
                home.join("logs").display().to_string(),
            ),
            ("AIRFLOW__CLUSTER__OPERATOR_API_URL", daemon),
            ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
        ]
        .map(|(name, value)| format!("{{ name = {}, value = {} }}", json!(name), json!(value)));
        let section = format!(
            "[workflow]\nport = {port}\ncontainers = false\ncontainer_environment = [{}]\n",
            variables.join(", ")
        );
        let site = Site::start_with(&section).await;
        let mut migrate = airflow.command("airflow");
        migrate.args(["db", "migrate"]);
        tokio::task::spawn_blocking(move || output(&mut migrate))
            .await
            .expect("it ends");
        let components = vec![
            airflow.start("api", &["api-server", "--workers", "1"]),
            airflow.start("processor", &["dag-processor"]),
            airflow.start("scheduler", &["scheduler"]),
            airflow.start("triggerer", &["triggerer"]),
        ];
        let airflow_site = Self {
            components,
            site,
            airflow,
            lossy_proxy,
            flags,
        };
        let run = json!({"dag_run_id": "once", "logical_date": null, "conf": {"flags": airflow_site.flags}});
        eventually("the DAG to be run", || async {
            let (status, body) = airflow_site
                .request(Method::POST, "/dags/on_the_cluster/dagRuns", Some(&run))
                .await?;
            if status == 200 || status == 409 {
                Ok(())
            } else {
                Err(format!("{status} {body}"))
            }
        })
        .await;
        airflow_site
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), String> {
        self.airflow.request(&self.site.http, method, path, body).await
    }

    /// Sends a GET request, which must return 200.
    async fn get(&self, path: &str) -> Result<Value, String> {
        match self.request(Method::GET, path, None).await? {
            (200, body) => Ok(body),
            (status, body) => Err(format!("{path}: {status} {body}")),
        }
    }

    /// Sends a change. It is repeated after a 500: the database permits one writer, for which Airflow
    /// waits five seconds only, too few on a busy machine.
    async fn change(&self, method: Method, path: &str, change: &Value) {
        eventually(&format!("{method} {path}"), || async {
            match self.request(method.clone(), path, Some(change)).await? {
                (200, _) => Ok(()),
                (500, body) => Err(body.to_string()),
                (status, body) => panic!("{status} {body}"),
            }
        })
        .await;
    }

    /// Gives the instance of a task a state, as a user does.
    async fn mark(&self, task: &str, state: &str) {
        let (path, change) = (format!("{RUN}/taskInstances/{task}"), json!({"new_state": state}));
        self.change(Method::PATCH, &path, &change).await;
    }

    /// Clears a task, so that Airflow runs it again.
    async fn clear(&self, task: &str) {
        let clear = json!({"dry_run": false, "dag_run_id": "once", "task_ids": [task], "only_failed": false});
        let path = "/dags/on_the_cluster/clearTaskInstances";
        self.change(Method::POST, path, &clear).await;
    }

    /// Waits until the instance of a task has this state.
    async fn wait_for_instance(&self, task: &str, state: &str) -> Value {
        eventually(&format!("{task} to be {state}"), || async {
            let instance = self.get(&format!("{RUN}/taskInstances/{task}")).await?;
            if instance["state"] == state {
                Ok(instance)
            } else {
                let logs: Vec<String> = self.components.iter().map(Program::log).collect();
                Err(format!("{instance}\n{}", logs.join("\n----\n")))
            }
        })
        .await
    }

    /// Waits until `accept` accepts the log lines of a task's first try. Panics on an error status.
    async fn log(&self, task: &str, accept: impl Fn(&[String]) -> bool) -> Vec<String> {
        self.log_of_try(task, 1, accept).await
    }

    /// Waits until `accept` accepts the log lines of a try.
    async fn log_of_try(&self, task: &str, number: u32, accept: impl Fn(&[String]) -> bool) -> Vec<String> {
        eventually(&format!("the log of {task}, try {number}"), || async {
            let path = format!("{RUN}/taskInstances/{task}/logs/{number}");
            let (status, body) = self.request(Method::GET, &path, None).await?;
            assert_eq!(status, 200, "{path}: {body}");
            let lines: Vec<String> = body["content"]
                .as_array()
                .ok_or_else(|| body.to_string())?
                .iter()
                .flat_map(texts_of_entry)
                .collect();
            if accept(&lines) {
                Ok(lines)
            } else {
                Err(format!("{lines:#?}"))
            }
        })
        .await
    }

    /// Waits for an event of a task; returns its text.
    async fn wait_for_event(&self, task: &str, event: &str) -> String {
        eventually(&format!("the event `{event}` of {task}"), || async {
            let path = format!(
                "/eventLogs?dag_id=on_the_cluster&task_id={task}&event={}",
                event.replace(' ', "%20")
            );
            let found = self.get(&path).await?;
            found["event_logs"][0]["extra"]
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| found.to_string())
        })
        .await
    }

    /// Waits until the daemon shows this state of a job.
    async fn wait_for_job(&self, id: &str, state: &str) {
        let url = format!("http://{}/v0/task/{id}", self.site.addresses["workflow"]);
        eventually(&format!("{id} to be {state}"), || async {
            let seen = self.site.get(&url).await?;
            if seen["status"]["state"] == state {
                Ok(())
            } else {
                Err(seen.to_string())
            }
        })
        .await;
    }
}

/// The text of a log entry as Airflow shows it, and the texts of its exceptions.
fn texts_of_entry(entry: &Value) -> Vec<String> {
    let errors = entry["error_detail"].as_array().into_iter().flatten();
    let texts = errors.map(|error| &error["exc_value"]);
    [&entry["event"]]
        .into_iter()
        .chain(texts)
        .map(|text| text.as_str().unwrap_or_default().to_owned())
        .collect()
}

fn has(lines: &[String], part: &str) -> bool {
    lines.iter().any(|line| line.contains(part))
}

/// The job id of a try of a task that the executor runs.
fn executors_job(instance: &Value) -> String {
    format!("airflow.{}", instance["id"].as_str().expect("an id"))
}

/// The job id of an operator's try.
fn operators_job(instance: &Value) -> String {
    let word = |name: &str| instance[name].as_str().expect("a text");
    format!("airflow.on_the_cluster.{}.{}", word("task_id"), word("id"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn airflow_shows_events_logs_and_states_of_tasks() {
    let airflow_site = AirflowSite::start().await;

    // An unknown key is an error with a suggestion.
    airflow_site.wait_for_instance("typo", "failed").await;
    let event_text = airflow_site.wait_for_event("typo", "not queued").await;
    assert!(
        event_text.contains("no key 'cpu'; did you mean 'cpus'"),
        "{event_text}"
    );
    airflow_site
        .log("typo", |lines| has(lines, "did you mean 'cpus'"))
        .await;

    // While the task waits, the constraint that no agent satisfies is shown in its events and in
    // its log.
    let event_text = airflow_site.wait_for_event("hopeless", "pending").await;
    assert!(
        event_text.contains("no active agent satisfies the constraint `gpu:true`"),
        "{event_text}"
    );
    airflow_site
        .log("hopeless", |lines| has(lines, "the constraint `gpu:true`"))
        .await;

    // So are the amounts that no agent has. A cleared task's job leaves the queue.
    let huge = airflow_site.wait_for_instance("huge", "queued").await;
    let event_text = airflow_site.wait_for_event("huge", "pending").await;
    assert!(
        event_text.contains("the job asks for 4000 CPUs, but the largest agent"),
        "{event_text}"
    );
    airflow_site.clear("huge").await;
    airflow_site
        .wait_for_job(&executors_job(&huge), "TASK_KILLED")
        .await;

    // The log of a running task shows the output of its container.
    let talks = airflow_site.wait_for_instance("talks", "running").await;
    let container = format!("Container of airflow.{}", talks["id"].as_str().expect("an id"));
    airflow_site
        .log("talks", |lines| {
            has(lines, &container) && has(lines, "these are 42 words")
        })
        .await;

    a_deferred_task_takes_its_container_along(&airflow_site).await;
    an_operators_log_has_all_that_is_needed(&airflow_site).await;

    fs::write(airflow_site.flags.join("talked"), "").expect("written");
    airflow_site.wait_for_instance("talks", "success").await;

    // A task without a matching offer goes back to Airflow's queue before its token expires, and is
    // sent again with another token. Airflow does not count it as stuck, and it does not fail.
    let hopeless = airflow_site.wait_for_instance("hopeless", "queued").await;
    let job = executors_job(&hopeless);
    eventually("another token", || async {
        match airflow_site.lossy_proxy.queued().get(&job) {
            Some(3..) => Ok(()),
            sent => Err(format!("{job} was sent {sent:?} times")),
        }
    })
    .await;
    let (stuck, event_logs) = (
        "stuck%20in%20queued%20reschedule",
        "/eventLogs?task_id=hopeless&event=",
    );
    let stuck = airflow_site
        .get(&format!("{event_logs}{stuck}"))
        .await
        .expect("events");
    assert_eq!(stuck["total_entries"], 0, "{stuck}");
    assert_eq!(
        airflow_site.wait_for_instance("hopeless", "queued").await["id"],
        hopeless["id"]
    );
    airflow_site.mark("hopeless", "failed").await;
    airflow_site.wait_for_job(&job, "TASK_KILLED").await;

    // The first response to each job was lost, so each job was sent twice. Each was launched once.
    let launches = airflow_site.site.cluster.launches();
    let mut names: Vec<_> = launches.keys().collect();
    names.sort();
    assert!(launches.values().all(|times| *times == 1), "{launches:?}");
    let queued = airflow_site.lossy_proxy.queued();
    for (job, times) in queued.iter().filter(|(job, _)| launches.contains_key(*job)) {
        assert_eq!(*times, 2, "{job}: {names:?}");
    }
    // The containers of the operators; the task `cleared` has two.
    let containers = launches
        .keys()
        .filter(|id| id.starts_with("airflow.on_the_cluster."));
    assert_eq!(containers.count(), 4, "{names:?}");
    airflow_site.site.cluster.stop_after(airflow_site.site.daemon);
}

/// Marking or clearing a deferred task ends its container. Its output is in the log while it runs.
async fn a_deferred_task_takes_its_container_along(airflow_site: &AirflowSite) {
    let marked = airflow_site.wait_for_instance("marked", "deferred").await;
    let cleared = airflow_site.wait_for_instance("cleared", "deferred").await;
    airflow_site.log("marked", |lines| has(lines, "begun 42")).await;
    // The link exists while the container runs.
    let links = airflow_site
        .get(&format!("{RUN}/taskInstances/marked/links"))
        .await
        .expect("links");
    let link = links["extra_links"]["Container log"].as_str().unwrap_or_default();
    assert!(
        link.ends_with(&format!("/v0/task/{}/log", operators_job(&marked))),
        "{links}"
    );

    airflow_site.mark("marked", "failed").await;
    airflow_site
        .wait_for_job(&operators_job(&marked), "TASK_KILLED")
        .await;

    airflow_site.clear("cleared").await;
    airflow_site
        .wait_for_job(&operators_job(&cleared), "TASK_KILLED")
        .await;
    // The next try starts a new container.
    let again = eventually("the next try", || async {
        let instance = airflow_site.get(&format!("{RUN}/taskInstances/cleared")).await?;
        if instance["state"] == "deferred" && instance["id"] != cleared["id"] {
            Ok(instance)
        } else {
            Err(instance.to_string())
        }
    })
    .await;
    // Airflow does not call `on_kill` of a trigger that its triggerer has not started yet.
    airflow_site
        .log_of_try("cleared", 2, |lines| has(lines, "begun 42"))
        .await;
    airflow_site.mark("cleared", "success").await;
    airflow_site
        .wait_for_job(&operators_job(&again), "TASK_KILLED")
        .await;
}

/// The log has the output of the container, its exit status, and a link to the full log.
async fn an_operators_log_has_all_that_is_needed(airflow_site: &AirflowSite) {
    let failed = airflow_site.wait_for_instance("fails", "failed").await;
    let job = operators_job(&failed);
    let url = format!("http://{}/v0/task/{job}/log", airflow_site.lossy_proxy.address);
    let lines = airflow_site
        .log("fails", |lines| has(lines, "finished in state TASK_FAILED"))
        .await;
    assert!(lines.iter().any(|line| line == "42 lines"), "{lines:#?}");
    let sentence = format!("Mesos task {job} finished in state TASK_FAILED: Command exited with status 7");
    assert!(has(&lines, &sentence), "{lines:#?}");
    assert!(has(&lines, &format!("Its output: {url}")), "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_operator_is_killed_ends_at_its_own_limit() {
    let site = Site::start_with("[workflow]\nport = 0\ncontainers = false\n").await;
    let home = tempfile::tempdir().expect("a directory");
    let mut command = program(&airflow::environment(), home.path(), "python");
    command.arg(root().join("tests/airflow/operator_gone.py")).env(
        "AIRFLOW__CLUSTER__OPERATOR_API_URL",
        format!("http://{}", site.addresses["workflow"]),
    );
    let mut operator = Program::start(command, home.path().join("operator.log"));
    let url = format!("http://{}/v0/task/airflow.gone.long", site.addresses["workflow"]);
    let shows = |state: &'static str| {
        let (site, url) = (&site, &url);
        eventually(state, move || async move {
            let seen = site.get(url).await?;
            if seen["status"]["state"] == state {
                Ok(seen)
            } else {
                Err(seen.to_string())
            }
        })
    };
    shows("TASK_RUNNING").await;
    operator.kill();
    let seen = shows("TASK_FAILED").await;
    assert_eq!(
        seen["status"]["reason"], "REASON_MAX_COMPLETION_TIME_REACHED",
        "{seen}"
    );
    site.cluster.stop_after(site.daemon);
}

/// The operator without an Airflow, in its own process as a worker runs it. The first response to
/// each job is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_whose_answers_are_lost_runs_its_container_once() {
    let site = Site::start_with("[workflow]\nport = 0\ncontainers = false\n").await;
    let lossy_proxy = LossyProxy::before(site.addresses["workflow"]).await;
    let home = tempfile::tempdir().expect("a directory");
    let mut command = program(&airflow::environment(), home.path(), "python");
    command
        .arg(root().join("tests/airflow/operator_once.py"))
        // The daemon's URL may be in the section of the older provider.
        .env(
            "AIRFLOW__MESOS__OPERATOR_API_URL",
            format!("http://{}", lossy_proxy.address),
        );
    let text = tokio::task::spawn_blocking(move || output(&mut command))
        .await
        .expect("it ends");
    let outcomes: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    assert_eq!(
        outcomes,
        [
            // The job has ended when its request is sent again.
            json!({"quick": "TASK_FINISHED"}),
            // The job is still running when its request is sent again. A second run would fail.
            json!({"alone": "TASK_FINISHED"}),
            // Queueing a job id again later creates another run.
            json!({"quick": "TASK_FINISHED"}),
        ],
        "{text}"
    );
    let queued = lossy_proxy.queued();
    assert_eq!(
        (queued["airflow.once.quick"], queued["airflow.once.alone"]),
        (3, 2),
        "{queued:?}"
    );
    let launches = site.cluster.launches();
    let of = |id: &str| launches.keys().filter(|task| task.starts_with(id)).count();
    assert_eq!(
        (of("airflow.once.quick"), of("airflow.once.alone")),
        (2, 1),
        "{launches:?}"
    );
    site.cluster.stop_after(site.daemon);
}
