//! The common part of the stories: the daemon under test, clients of its API, and the master's view
//! of its frameworks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
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

/// The daemon under test and its surroundings.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) dir: PathBuf,
    /// The prefix of all framework names of the run.
    pub(crate) run: String,
    pub(crate) options: Options,
    pub(crate) master: Master,
    pub(crate) http: reqwest::Client,
    pub(crate) progress: Progress,
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

    /// The name of the apps' framework.
    pub(crate) fn apps_framework(&self) -> String {
        format!("{}-apps", self.run)
    }

    /// The name of the workflow's framework.
    pub(crate) fn jobs_framework(&self) -> String {
        format!("{}-jobs", self.run)
    }

    /// The options of a daemon of this run.
    pub(crate) fn setup(&self, name: &str, apps: String, jobs: Option<String>, store: String) -> Setup {
        Setup {
            name: name.to_owned(),
            master: self.master.address(),
            credentials: self.options.credentials.clone(),
            role: self.options.role.clone(),
            task_user: self.options.task_user.clone(),
            apps,
            jobs,
            store,
        }
    }

    /// Starts the daemon, also after it was stopped or killed, and waits until both frameworks are
    /// registered.
    pub(crate) async fn start_daemon(&mut self) -> anyhow::Result<()> {
        let setup = self.setup(
            "daemon",
            self.apps_framework(),
            Some(self.jobs_framework()),
            "file:store".to_owned(),
        );
        let mut daemon = Daemon::start(&self.dir, &setup, self.deadline).await?;
        daemon.wait_until_ready(&self.http, true, self.deadline).await?;
        self.daemon = Some(daemon);
        self.progress.line("the daemon is ready");
        for name in [self.apps_framework(), self.jobs_framework()] {
            self.wait_master(&format!("framework {name} to be registered"), || async {
                self.framework(&name).await.map(|_| ()).map_err(text)
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

    /// Prints a progress line of a story.
    pub(crate) fn progress(&self, story: &str, text: &str) {
        self.progress.line(&format!("{story}: {text}"));
    }

    /// Waits for a state of the daemon, until the story's deadline.
    pub(crate) async fn wait<T>(
        &self,
        what: &str,
        attempt: impl AsyncFnMut() -> Result<T, String>,
    ) -> anyhow::Result<T> {
        retry_until(self.deadline, POLL_INTERVAL, what, attempt)
            .await
            .map_err(anyhow::Error::msg)
    }

    /// Waits for a state of the master, until the story's deadline.
    pub(crate) async fn wait_master<T>(
        &self,
        what: &str,
        attempt: impl AsyncFnMut() -> Result<T, String>,
    ) -> anyhow::Result<T> {
        retry_until(self.deadline, MASTER_POLL_INTERVAL, what, attempt)
            .await
            .map_err(anyhow::Error::msg)
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
        self.wait(&format!("{app} to be gone from the API"), || async {
            match self.send(Method::GET, &url, None).await.map_err(text)? {
                (StatusCode::NOT_FOUND, _) => Ok(()),
                (status, body) => Err(format!("{status} {body}")),
            }
        })
        .await?;
        let framework = self.framework(&self.apps_framework()).await?;
        self.wait_master(&format!("the tasks of {app} to end"), || async {
            let tasks = self.master.tasks(&framework).await.map_err(text)?;
            let active: Vec<&Task> = comparisons::of(app, &tasks)
                .filter(|task| task.is_active())
                .collect();
            if active.is_empty() {
                Ok(())
            } else {
                Err(format!("{active:?}"))
            }
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

    /// Waits until the app has `count` tasks, all of them run, and no deployment is left; returns
    /// the tasks.
    pub(crate) async fn wait_until_running(&self, app: &str, count: usize) -> anyhow::Result<Vec<Value>> {
        let what = format!("{count} running tasks of {app}");
        let outcome = self.wait(&what, || async {
            let tasks = self.tasks(app).await.map_err(text)?;
            let states: Vec<&Value> = tasks.iter().map(|task| &task["state"]).collect();
            if tasks.len() != count || states.iter().any(|state| **state != "TASK_RUNNING") {
                return Err(format!("{} tasks: {}", tasks.len(), json!(states)));
            }
            let url = self.apps("/v2/deployments").map_err(text)?;
            let deployments = self.get(&url).await.map_err(text)?;
            if deployments.as_array().is_some_and(Vec::is_empty) {
                Ok(tasks)
            } else {
                Err(format!("deployments {deployments}"))
            }
        });
        match outcome.await {
            Ok(tasks) => Ok(tasks),
            Err(error) => Err(error.context(self.reasons_for_missing(app).await)),
        }
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
    pub(crate) async fn wait_until_agreed(&self, app: &str, count: usize) -> anyhow::Result<Ids> {
        let framework = self.framework(&self.apps_framework()).await?;
        let prefix = format!("{}.", app.trim_start_matches('/'));
        self.wait_master(&format!("daemon and master to agree on {app}"), || async {
            let daemon = ids(&self.tasks(app).await.map_err(text)?);
            let tasks = self.master.tasks(&framework).await.map_err(text)?;
            let tasks = comparisons::of(app, &tasks).filter(|task| task.is_active());
            let tasks: Ids = tasks.map(|task| task.id.clone()).collect();
            let state = self
                .master
                .active_tasks_by_state(&framework)
                .await
                .map_err(text)?;
            let state: Ids = state.into_iter().filter(|id| id.starts_with(&prefix)).collect();
            comparisons::compare_ids(count, &daemon, &tasks, &state)?;
            Ok(daemon)
        })
        .await
    }

    /// Verifies that daemon and master show the same tasks of an app as before. The error contains
    /// how the missing tasks ended.
    pub(crate) async fn verify_kept(&self, app: &str, before: &Ids) -> anyhow::Result<()> {
        let now = self.wait_until_agreed(app, before.len()).await?;
        if now == *before {
            return Ok(());
        }
        let framework = self.framework(&self.apps_framework()).await?;
        let tasks = self.master.tasks(&framework).await?;
        let gone = tasks
            .iter()
            .filter(|task| before.contains(&task.id) && !now.contains(&task.id));
        let ends: Vec<String> = gone.map(Task::end).collect();
        bail!("tasks of {app} were replaced: {}", ends.join("; "))
    }

    /// Verifies that the master saw exactly `count` launches for an app or job, each of another
    /// task, and that no task failed.
    pub(crate) async fn verify_launched(
        &self,
        framework: &str,
        name: &str,
        count: usize,
    ) -> anyhow::Result<()> {
        let framework = self.framework(framework).await?;
        let tasks = self.master.tasks(&framework).await?;
        let tasks: Vec<Task> = comparisons::of(name, &tasks).cloned().collect();
        comparisons::verify_launched(count, &tasks).map_err(|error| anyhow!("{name}: {error}"))
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
        self.wait(&format!("{id} to show {state}"), || async {
            let seen = self.get(&url).await.map_err(text)?;
            if seen["status"]["state"] == state {
                Ok(seen["status"].clone())
            } else {
                Err(seen.to_string())
            }
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
    pub(crate) async fn output(&self, framework: &str, task: &Task) -> anyhow::Result<String> {
        let agents = self.master.agents(&self.options.role).await?;
        let agent = agents.into_iter().find(|agent| agent.id == task.agent);
        let agent = agent.with_context(|| format!("agent {} of {} is not active", task.agent, task.id))?;
        let read = sandbox::read(&self.master, &agent.endpoint, framework, &task.id, "stdout").await;
        read.with_context(|| format!("the output of {} on agent {}", task.id, agent.hostname))
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
                self.progress.line(&format!("cannot delete {id}: {error:#}"));
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
pub(crate) fn starts(tasks: &[Value]) -> BTreeMap<String, String> {
    let start = |task: &Value| {
        Some((
            task["id"].as_str()?.to_owned(),
            task["startedAt"].as_str()?.to_owned(),
        ))
    };
    tasks.iter().filter_map(start).collect()
}

/// An error as the text that a wait shows.
pub(crate) fn text(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}

/// Sets the members of `more` in `body`.
pub(crate) fn merge(body: &mut Value, more: &Value) {
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
}
