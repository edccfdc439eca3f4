//! The common part of the stories: the daemon under test, clients of its API, and the master's view
//! of its frameworks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;
use transom_testkit::retry_until;

use crate::comparisons::{self, Ids};
use crate::daemon::{Daemon, Setup};
use crate::master::{Master, Task};
use crate::options::Options;
use crate::progress::Progress;
use crate::sandbox;

/// Time for which the master keeps the frameworks of a run that was killed before its clean-up.
pub const FAILOVER_TIMEOUT: Duration = Duration::from_mins(10);

/// Longer than the daemon holds a request, which is at most half a minute.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(40);
/// Interval of requests to the daemon, which runs on this machine.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of requests to the master, which serves other clients, too.
const MASTER_POLL_INTERVAL: Duration = Duration::from_millis(400);

/// The running tasks of an app, as daemon and master show them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Running {
    pub(crate) framework: String,
    pub(crate) ids: Ids,
    /// The times at which they started, by task id.
    starts: BTreeMap<String, String>,
}

impl Running {
    /// Whether these tasks include all of `others`, with the same start times.
    pub(crate) fn includes(&self, others: &Self) -> bool {
        let is_here = |(id, start)| self.starts.get(id) == Some(start);
        self.framework == others.framework && others.starts.iter().all(is_here)
    }
}

/// The daemon under test and its surroundings.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) dir: PathBuf,
    /// The prefix of all framework names of the run.
    pub(crate) run: String,
    pub(crate) options: Options,
    pub(crate) master: Master,
    pub(crate) http: reqwest::Client,
    progress: Progress,
    /// The current story, with which its progress lines begin.
    pub(crate) story: &'static str,
    /// The name of the apps' framework.
    pub(crate) apps_framework: String,
    /// `None` while the daemon is stopped.
    pub(crate) daemon: Option<Daemon>,
    /// The queued jobs, which are killed at the end of a failed story.
    pub(crate) jobs: Vec<String>,
    /// The deadline of the current story.
    pub(crate) deadline: Instant,
}

impl Site {
    pub(crate) fn new(dir: &Path, run: String, options: Options, master: Master) -> anyhow::Result<Self> {
        let http = transom_tests::http_builder().timeout(REQUEST_TIMEOUT).build()?;
        Ok(Self {
            dir: dir.to_owned(),
            story: "",
            apps_framework: format!("{run}-apps"),
            run,
            deadline: Instant::now() + options.limit,
            options,
            master,
            http,
            progress: Progress::new(dir)?,
            daemon: None,
            jobs: Vec::new(),
        })
    }

    /// The name of the workflow's framework.
    pub(crate) fn jobs_framework(&self) -> String {
        format!("{}-jobs", self.run)
    }

    /// The framework of an app or a job.
    fn framework_name(&self, of: &str) -> String {
        if of.starts_with('/') {
            self.apps_framework.clone()
        } else {
            self.jobs_framework()
        }
    }

    /// The options of a daemon of this run.
    pub(crate) fn setup(&self, name: &'static str, apps: &str, jobs: Option<String>, store: &str) -> Setup {
        Setup {
            name,
            master: self.master.address(),
            options: self.options.clone(),
            apps: apps.to_owned(),
            jobs,
            store: store.to_owned(),
        }
    }

    /// Starts the daemon, also after it was stopped or killed, and waits until both frameworks are
    /// registered.
    pub(crate) async fn start_daemon(&mut self) -> anyhow::Result<()> {
        let jobs = Some(self.jobs_framework());
        let setup = self.setup("daemon", &self.apps_framework, jobs, "file:store");
        let mut daemon = Daemon::start(&self.dir, &setup, self.deadline).await?;
        daemon.wait_until_ready(&self.http, true, self.deadline).await?;
        self.daemon = Some(daemon);
        self.line("the daemon is ready");
        for name in [self.apps_framework.clone(), self.jobs_framework()] {
            self.wait_master(&format!("framework {name} to be registered"), || {
                self.framework(&name)
            })
            .await?;
        }
        Ok(())
    }

    /// Starts the daemon if an earlier story left it stopped.
    pub(crate) async fn ensure_daemon(&mut self) -> anyhow::Result<()> {
        if self.daemon.is_some() {
            return Ok(());
        }
        self.start_daemon().await
    }

    /// Stops the daemon with SIGTERM.
    pub(crate) async fn stop_daemon(&mut self) -> anyhow::Result<()> {
        self.daemon
            .take()
            .context("the daemon is not running")?
            .stop()
            .await
    }

    /// Kills the daemon with SIGKILL.
    pub(crate) fn kill_daemon(&mut self) -> anyhow::Result<()> {
        self.daemon.take().context("the daemon is not running")?.kill();
        Ok(())
    }

    fn running_daemon(&self) -> anyhow::Result<&Daemon> {
        self.daemon.as_ref().context("the daemon is not running")
    }

    /// A URL of the apps API.
    pub(crate) fn apps(&self, path: &str) -> anyhow::Result<String> {
        self.running_daemon()?.url("apps", path)
    }

    /// A URL of the workflow API.
    pub(crate) fn workflow(&self, path: &str) -> anyhow::Result<String> {
        self.running_daemon()?.url("workflow", path)
    }

    /// A URL of the discovery API.
    pub(crate) fn discovery(&self, path: &str) -> anyhow::Result<String> {
        self.running_daemon()?.url("discovery", path)
    }

    /// The address on which the daemon answers DNS queries.
    pub(crate) fn dns(&self) -> anyhow::Result<SocketAddr> {
        self.running_daemon()?.address("dns")
    }

    /// Prints a progress line.
    pub(crate) fn line(&self, text: &str) {
        self.progress.line(text);
    }

    /// Prints a progress line of the current story.
    pub(crate) fn progress(&self, text: &str) {
        self.line(&format!("{}: {text}", self.story));
    }

    /// Waits for a state of the daemon, until the story's deadline.
    pub(crate) async fn wait<T>(
        &self,
        what: &str,
        attempt: impl AsyncFnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        retry(self.deadline, POLL_INTERVAL, what, attempt).await
    }

    /// Waits for a state of the master, until the story's deadline.
    pub(crate) async fn wait_master<T>(
        &self,
        what: &str,
        attempt: impl AsyncFnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        retry(self.deadline, MASTER_POLL_INTERVAL, what, attempt).await
    }

    /// Sends a GET request and parses the response as JSON.
    pub(crate) async fn get(&self, url: &str) -> anyhow::Result<Value> {
        let (status, body) = self.send(Method::GET, url, None).await?;
        ensure!(status.is_success(), "GET {url}: {status} {body}");
        serde_json::from_str(&body).with_context(|| format!("GET {url}: expected JSON, got {body}"))
    }

    /// Sends a request that must succeed; returns the body.
    pub(crate) async fn write(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let (status, answer) = self.send(method.clone(), url, body).await?;
        ensure!(status.is_success(), "{method} {url}: {status} {answer}");
        Ok(serde_json::from_str(&answer).unwrap_or(Value::String(answer)))
    }

    /// Sends a request; returns the status and the body.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, String)> {
        let mut request = self.http.request(method.clone(), url);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.with_context(|| format!("{method} {url}"))?;
        let status = answer.status();
        Ok((
            status,
            answer.text().await.with_context(|| format!("{method} {url}"))?,
        ))
    }

    /// Posts a new app.
    pub(crate) async fn post_app(&self, definition: &Value) -> anyhow::Result<Value> {
        self.write(Method::POST, &self.apps("/v2/apps")?, Some(definition))
            .await
    }

    /// Changes an app.
    pub(crate) async fn change_app(&self, app: &str, change: &Value) -> anyhow::Result<()> {
        let url = self.apps(&format!("/v2/apps{app}"))?;
        self.write(Method::PUT, &url, Some(change)).await?;
        Ok(())
    }

    /// Deletes an app and waits until the daemon no longer shows it and the master shows none of
    /// its tasks as active.
    pub(crate) async fn delete_app(&self, app: &str) -> anyhow::Result<()> {
        let url = self.apps(&format!("/v2/apps{app}"))?;
        self.write(Method::DELETE, &url, None).await?;
        self.wait(&format!("{app} to be gone from the API"), async || {
            let (status, body) = self.send(Method::GET, &url, None).await?;
            ensure!(status == StatusCode::NOT_FOUND, "{status} {body}");
            Ok(())
        })
        .await?;
        self.wait_master(&format!("the tasks of {app} to end"), async || {
            let active = self.active(app).await?;
            ensure!(active.is_empty(), "{active:?}");
            Ok(())
        })
        .await
    }

    /// The tasks of an app, as the daemon shows them.
    pub(crate) async fn tasks(&self, app: &str) -> anyhow::Result<Vec<Value>> {
        let document = self.get(&self.apps("/v2/tasks")?).await?;
        let tasks = document["tasks"].as_array().context("no `tasks` in /v2/tasks")?;
        Ok(tasks
            .iter()
            .filter(|task| task["appId"] == app)
            .cloned()
            .collect())
    }

    /// Waits until the app has `count` tasks, all of them run, no deployment is left, and the
    /// master shows the same tasks.
    pub(crate) async fn wait_until_running(&self, app: &str, count: usize) -> anyhow::Result<Running> {
        let what = format!("{count} running tasks of {app}");
        let outcome = self.wait(&what, async || {
            let tasks = self.tasks(app).await?;
            let starts = starts(&tasks);
            let states: Vec<&Value> = tasks.iter().map(|task| &task["state"]).collect();
            ensure!(
                starts.len() == count
                    && tasks.len() == count
                    && states.iter().all(|state| **state == "TASK_RUNNING"),
                "{} tasks: {}, started: {starts:?}",
                tasks.len(),
                json!(states)
            );
            let deployments = self.get(&self.apps("/v2/deployments")?).await?;
            ensure!(
                deployments.as_array().is_some_and(Vec::is_empty),
                "deployments {deployments}"
            );
            Ok(starts)
        });
        let starts = match outcome.await {
            Ok(starts) => starts,
            Err(error) => return Err(error.context(self.reasons_for_missing(app).await)),
        };
        Ok(Running {
            framework: self.framework(&self.framework_name(app)).await?,
            ids: self.wait_until_agreed(app, count).await?,
            starts,
        })
    }

    /// The daemon's reasons why an app has too few tasks.
    async fn reasons_for_missing(&self, app: &str) -> String {
        let Ok(url) = self.apps("/v2/queue") else {
            return String::new();
        };
        let queue = self.get(&url).await.unwrap_or_default();
        let queued = queue["queue"].as_array().into_iter().flatten();
        let found = queued.into_iter().find(|entry| entry["app"]["id"] == app);
        let failure = match self.apps(&format!("/v2/apps{app}?embed=app.lastTaskFailure")) {
            Ok(url) => self.get(&url).await.unwrap_or_default()["app"]["lastTaskFailure"].clone(),
            Err(_) => Value::Null,
        };
        let summary = found.map(|entry| &entry["processedOffersSummary"]);
        format!(
            "{app} does not run as expected; offers: {}; last failure: {failure}",
            json!(summary)
        )
    }

    /// Waits until daemon, `GET_TASKS` and `/state` show the same `count` tasks of an app. If they
    /// never do, tasks are lost or duplicated.
    async fn wait_until_agreed(&self, app: &str, count: usize) -> anyhow::Result<Ids> {
        let framework = self.framework(&self.framework_name(app)).await?;
        let prefix = format!("{}.", app.trim_start_matches('/'));
        self.wait_master(&format!("daemon and master to agree on {app}"), async || {
            let daemon = ids(&self.tasks(app).await?);
            let tasks = self.active(app).await?.into_iter().map(|task| task.id).collect();
            let mut state = self.master.active_tasks_by_state(&framework).await?;
            state.retain(|id| id.starts_with(&prefix));
            comparisons::compare_ids(count, &daemon, &tasks, &state)?;
            Ok(daemon)
        })
        .await
    }

    /// Verifies that daemon and master show the same tasks of the same framework as before, with
    /// the same start times. The error contains how the missing tasks ended.
    pub(crate) async fn verify_kept(&self, app: &str, before: &Running) -> anyhow::Result<()> {
        let now = self.wait_until_running(app, before.ids.len()).await?;
        if now == *before {
            return Ok(());
        }
        let mut gone = self.launched(app).await?;
        gone.retain(|task| before.ids.contains(&task.id) && !now.ids.contains(&task.id));
        let ends: Vec<String> = gone.iter().map(Task::end).collect();
        bail!(
            "{before:?} of {app} became {now:?}; tasks that were replaced: {}",
            ends.join("; ")
        )
    }

    /// Every task of an app or a job that the master remembers.
    pub(crate) async fn launched(&self, name: &str) -> anyhow::Result<Vec<Task>> {
        let framework = self.framework(&self.framework_name(name)).await?;
        let mut tasks = self.master.tasks(&framework).await?;
        tasks.retain(|task| comparisons::is_of(name, task));
        Ok(tasks)
    }

    /// The tasks of an app or a job that the master shows as active.
    pub(crate) async fn active(&self, name: &str) -> anyhow::Result<Vec<Task>> {
        let mut tasks = self.launched(name).await?;
        tasks.retain(Task::is_active);
        Ok(tasks)
    }

    /// Verifies that the master saw exactly `count` launches for an app or job, each of another
    /// task, and that no task failed.
    pub(crate) async fn verify_launched(&self, name: &str, count: usize) -> anyhow::Result<()> {
        let tasks = self.launched(name).await?;
        comparisons::verify_launched(count, &tasks).with_context(|| name.to_owned())
    }

    /// The id of the one registered framework with this name.
    pub(crate) async fn framework(&self, name: &str) -> anyhow::Result<String> {
        let found = self.master.frameworks(name).await?;
        let mut ids = found.into_iter().filter(|one| one.name == name).map(|one| one.id);
        match (ids.next(), ids.next()) {
            (Some(id), None) => Ok(id),
            (None, _) => bail!("the master has no framework {name}"),
            (Some(one), Some(other)) => bail!("the master has two frameworks {name}: {one} and {other}"),
        }
    }

    /// Queues a job.
    pub(crate) async fn queue(&mut self, id: &str, command: &[&str], more: &Value) -> anyhow::Result<()> {
        let mut body =
            json!({"workflow_task_id": id, "command": command, "cpus": 0.05, "mem_limit": "32m", "disk": 0});
        merge(&mut body, more);
        self.jobs.push(id.to_owned());
        let url = self.workflow("/v0/queue_command")?;
        let answer = self.write(Method::POST, &url, Some(&body)).await?;
        ensure!(answer == "Ok", "POST {url}: expected Ok, got {answer}");
        Ok(())
    }

    /// Waits until a job has this state; returns its status.
    pub(crate) async fn wait_for_job_state(&self, id: &str, state: &str) -> anyhow::Result<Value> {
        let url = self.workflow(&format!("/v0/task/{id}"))?;
        self.wait(&format!("{id} to show {state}"), async || {
            let seen = self.get(&url).await?;
            ensure!(seen["status"]["state"] == state, "{seen}");
            Ok(seen["status"].clone())
        })
        .await
    }

    /// A job's output, from the daemon.
    pub(crate) async fn job_log(&self, id: &str) -> anyhow::Result<String> {
        let url = self.workflow(&format!("/v0/task/{id}/log?stream=stdout"))?;
        let (status, body) = self.send(Method::GET, &url, None).await?;
        ensure!(status.is_success(), "GET {url}: {status} {body}");
        Ok(body)
    }

    /// The standard output of a task, from its agent.
    async fn output(&self, framework: &str, task: &Task) -> anyhow::Result<String> {
        let agents = self.master.agents(&self.options.role).await?;
        let agent = agents.into_iter().find(|agent| agent.id == task.agent);
        let agent = agent.with_context(|| format!("agent {} of {} is not active", task.agent, task.id))?;
        let read = sandbox::read(&self.master, &agent.endpoint, framework, &task.id, "stdout").await;
        read.with_context(|| format!("the output of {} on agent {}", task.id, agent.hostname))
    }

    /// Verifies in the agent's files that a task printed this line exactly once.
    pub(crate) async fn verify_printed_once(
        &self,
        name: &str,
        task: &Task,
        line: &str,
    ) -> anyhow::Result<()> {
        let framework = self.framework(&self.framework_name(name)).await?;
        comparisons::printed_once(&self.output(&framework, task).await?, line)
            .with_context(|| format!("the agent's output of {}", task.id))
    }

    /// Ends the apps and jobs that a story left. Errors are ignored, because the run's clean-up
    /// tears down the frameworks.
    pub(crate) async fn remove_leftovers(&mut self) {
        if self.daemon.is_none() {
            return;
        }
        let apps = match self.apps("/v2/apps") {
            Ok(url) => self.get(&url).await.unwrap_or_default(),
            Err(_) => Value::Null,
        };
        for app in apps["apps"].as_array().into_iter().flatten() {
            if let Some(id) = app["id"].as_str()
                && let Err(error) = self.delete_app(id).await
            {
                self.line(&format!("cannot delete {id}: {error:#}"));
            }
        }
        for id in std::mem::take(&mut self.jobs) {
            if let Ok(url) = self.workflow(&format!("/v0/task/{id}")) {
                // A job that has ended is not changed.
                let _ = self.send(Method::DELETE, &url, None).await;
            }
        }
    }
}

/// The ids of tasks.
pub(crate) fn ids(tasks: &[Value]) -> Ids {
    tasks
        .iter()
        .filter_map(|task| Some(task["id"].as_str()?.to_owned()))
        .collect()
}

/// The start times of tasks by task id.
fn starts(tasks: &[Value]) -> BTreeMap<String, String> {
    let start = |task: &Value| {
        Some((
            task["id"].as_str()?.to_owned(),
            task["startedAt"].as_str()?.to_owned(),
        ))
    };
    tasks.iter().filter_map(start).collect()
}

/// Repeats an attempt until it succeeds or the deadline has passed.
async fn retry<T>(
    deadline: Instant,
    interval: Duration,
    what: &str,
    mut attempt: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let attempt = async || attempt().await.map_err(|error| format!("{error:#}"));
    let outcome = retry_until(deadline, interval, what, attempt).await;
    outcome.map_err(anyhow::Error::msg)
}

/// Sets the members of `more` in `body`.
pub(crate) fn merge(body: &mut Value, more: &Value) {
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
}
