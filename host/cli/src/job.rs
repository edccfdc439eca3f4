//! `transom job`: runs one workflow job from a shell, or from an engine without a client.
//!
//! `transom operator` is an alias.

mod client;
mod kill;
mod list;
mod logs;
mod show;

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};
use transom_plugin_host::printable;

use super::http::Failure;
use crate::exit::{Misconfigured, Unavailable};
use crate::output::print_note;
use client::{Api, Daemon};

/// How long to wait for the end of a killed job.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);
/// The least time for the response to a request, however short the remaining time is.
const MIN_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the reason of a pending job is requested.
const REASON_INTERVAL: Duration = Duration::from_secs(5);

/// Run a command as a workflow job from a shell or a script, without a workflow engine; list, show and
/// kill jobs.
#[derive(Debug, Args)]
pub struct JobCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<Run>),
    List(list::List),
    Show(show::Show),
    Logs(logs::Logs),
    Kill(kill::Kill),
}

/// Queue one job, wait until it ends, and print its states and its output.
///
/// Exit code 0 means `TASK_FINISHED`. Ctrl-C, SIGTERM, a timeout and an invalid answer about its
/// status kill the job. If the daemon does not answer for longer than `--startup-timeout`, or
/// answers 502, 503 or 504, the exit code is 3, and the job may still be running.
#[derive(Debug, Args)]
pub(super) struct Run {
    #[command(flatten)]
    daemon: Daemon,
    /// Id of the job. Default: a generated one.
    #[arg(long)]
    id: Option<String>,
    /// Container image. Default: the daemon's `container_image_slave`.
    #[arg(long)]
    image: Option<String>,
    /// CPUs for the job. Default: the daemon's `task_cpu`.
    #[arg(long)]
    cpus: Option<f64>,
    /// Memory: `512m`, `2g` or a number of MB. Default: the daemon's `task_memory`.
    #[arg(long)]
    mem_limit: Option<String>,
    /// Disk in MB. Default: the daemon's `task_disk`.
    #[arg(long)]
    disk: Option<f64>,
    /// Environment variable of the job; repeatable.
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Constraint on agent attributes, for example `gpu:true`; repeatable.
    #[arg(long = "attribute", value_name = "KEY:VALUE")]
    attributes: Vec<String>,
    /// Volume, for example `/data:/mnt/data:ro` or `name:/mnt/data`; repeatable.
    #[arg(long = "volume", value_name = "SOURCE:PATH")]
    volumes: Vec<String>,
    /// Container network: `host`, `bridge`, `none`, or the name of a network.
    #[arg(long)]
    network_mode: Option<String>,
    /// User inside the container.
    #[arg(long)]
    user: Option<String>,
    /// Priority; pending jobs with a higher number are matched first. Default: 0.
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Pull the image even if the agent has it.
    #[arg(long)]
    force_pull: bool,
    /// Seconds between status requests.
    #[arg(long, default_value_t = 2.0)]
    poll_interval: f64,
    /// Maximum seconds pending, and maximum seconds without an answer from the daemon.
    #[arg(long, default_value_t = 300.0)]
    startup_timeout: f64,
    /// Maximum seconds running. Default: no limit.
    #[arg(long)]
    running_timeout: Option<f64>,
    /// Do not print the job's output.
    #[arg(long)]
    no_log: bool,
    /// Run the command as one line in a shell instead of as a program with arguments.
    #[arg(long)]
    shell: bool,
    /// Program and arguments. Default: the image's own command.
    #[arg(last = true)]
    command: Vec<String>,
}

impl JobCommand {
    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Run(command) => command.run().await,
            Command::List(command) => command.run().await,
            Command::Show(command) => command.run().await,
            Command::Logs(command) => command.run().await,
            Command::Kill(command) => command.run().await,
        }
    }
}

/// The progress of one job.
struct JobFollower<'a> {
    run: &'a Run,
    api: Api,
    id: String,
    state: Option<String>,
    /// The numbers of printed bytes of stdout and stderr.
    printed_bytes: [u64; 2],
    startup_timeout: Duration,
    running_timeout: Option<Duration>,
    /// The end of `startup_timeout`, then of `running_timeout`.
    deadline: Option<Instant>,
    /// The time of the last answer, or of the start.
    answered_at: Instant,
    running: bool,
    reason_requested: Instant,
    reason: Option<String>,
}

/// How a run ended.
enum JobEnd {
    Finished,
    Failed(String),
    /// The job has to be killed, for this reason.
    Cancelled(String),
}

impl Run {
    async fn run(&self) -> anyhow::Result<()> {
        let startup_timeout = seconds("--startup-timeout", self.startup_timeout)?;
        let running_timeout = self.running_timeout;
        let running_timeout = running_timeout.map(|limit| seconds("--running-timeout", limit));
        let id = self.id.clone().unwrap_or_else(generated_id);
        let mut follower = JobFollower {
            run: self,
            api: self.daemon.api()?,
            id,
            state: None,
            printed_bytes: [0; 2],
            startup_timeout,
            running_timeout: running_timeout.transpose()?,
            deadline: Instant::now().checked_add(startup_timeout),
            answered_at: Instant::now(),
            running: false,
            reason_requested: Instant::now(),
            reason: None,
        };
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let end = tokio::select! {
            end = follower.run_until_end() => end?,
            _ = interrupt.recv() => JobEnd::Cancelled("interrupted".to_owned()),
            _ = terminate.recv() => JobEnd::Cancelled("terminated".to_owned()),
        };
        let id = follower.id.clone();
        match end {
            JobEnd::Finished => Ok(()),
            JobEnd::Failed(cause) => bail!("job {id} ended in {cause}"),
            JobEnd::Cancelled(cause) => {
                let kill_result = follower.kill().await;
                bail!("job {id} cancelled: {cause}; {kill_result}")
            }
        }
    }

    /// The request that queues the job. Its retries must send the same body.
    fn request_body(&self, id: &str) -> anyhow::Result<Value> {
        let command = if self.shell {
            json!(["/bin/sh", "-c", self.command.join(" ")])
        } else {
            json!(self.command)
        };
        let mut environment = Map::new();
        for variable in &self.environment {
            let (name, value) = variable
                .split_once('=')
                .with_context(|| format!("--env {variable}: expected NAME=VALUE"))
                .context(Misconfigured)?;
            environment.insert(name.to_owned(), json!(value));
        }
        let mut body = json!({
            "workflow_task_id": id,
            "command": command,
            "environment": environment,
            "attributes": self.attributes,
            "volumes": self.volumes,
            "force_pull": self.force_pull,
        });
        // A retry after a lost response has the same key, so it does not run the job twice.
        body["request_key"] = json!(generated_id());
        // A generated id must be new. A user may reuse an id.
        body["unique"] = json!(self.id.is_none());
        for (name, value) in [
            ("image", json!(self.image)),
            ("cpus", json!(self.cpus)),
            ("mem_limit", json!(self.mem_limit)),
            ("disk", json!(self.disk)),
            ("network_mode", json!(self.network_mode)),
            ("user", json!(self.user)),
            ("priority", json!(self.priority)),
        ] {
            if !value.is_null() {
                body[name] = value;
            }
        }
        Ok(body)
    }
}

impl JobFollower<'_> {
    async fn run_until_end(&mut self) -> anyhow::Result<JobEnd> {
        let body = self.run.request_body(&self.id)?;
        let interval = seconds("--poll-interval", self.run.poll_interval)?;
        let mut unreachable = false;
        loop {
            match self.within_outage_limit(self.api.queue(&body)).await {
                Ok(()) => break,
                Err(Failure::Unreachable(cause)) => {
                    if self.is_outage_too_long(&mut unreachable, &cause) {
                        let text = format!(
                            "the daemon did not answer within {} s, so it is unknown whether job {} is queued: {cause}",
                            self.run.startup_timeout, self.id
                        );
                        return Err(anyhow::anyhow!(text).context(Unavailable));
                    }
                    sleep(interval).await;
                }
                Err(Failure::Rejected(cause)) => bail!("job {} not queued: {cause}", self.id),
            }
        }
        self.print_message("queued");
        self.answered_at = Instant::now();
        unreachable = false;
        loop {
            match self.poll(interval).await {
                Ok(Some(end)) => return Ok(end),
                Ok(None) => {
                    self.answered_at = Instant::now();
                    unreachable = false;
                }
                Err(Failure::Unreachable(cause)) => {
                    if self.is_outage_too_long(&mut unreachable, &cause) {
                        return Err(self.outage_error(&cause).context(Unavailable));
                    }
                }
                // Nobody would follow the job any more, so it must not go on running.
                Err(Failure::Rejected(cause)) => {
                    return Ok(JobEnd::Cancelled(format!("its status is not available: {cause}")));
                }
            }
            sleep(interval).await;
        }
    }

    /// Ends a request when the outage becomes too long.
    async fn within_outage_limit<T>(
        &self,
        request: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let remaining = self.startup_timeout.saturating_sub(self.answered_at.elapsed());
        let limit = remaining.max(MIN_REQUEST_TIMEOUT);
        let no_answer = |_| Failure::Unreachable(format!("no answer within {} s", limit.as_secs()));
        timeout(limit, request).await.map_err(no_answer).flatten()
    }

    /// Whether the daemon has not answered for longer than `--startup-timeout`. Reports once that it
    /// cannot be reached.
    fn is_outage_too_long(&self, reported: &mut bool, cause: &str) -> bool {
        let is_too_long = self.answered_at.elapsed() >= self.startup_timeout;
        if !std::mem::replace(reported, true) && !is_too_long {
            self.print_message(&format!("daemon unreachable ({cause}); retrying"));
        }
        is_too_long
    }

    /// The error for a queued job whose state is unknown because of an outage.
    fn outage_error(&self, cause: &str) -> anyhow::Error {
        anyhow::anyhow!(
            "the daemon did not answer for {} s, so the state of job {} is unknown: {cause}\nThe job may still be \
             running. When the daemon answers again, `GET {url}` shows its state, and `DELETE {url}` kills it.",
            self.run.startup_timeout,
            self.id,
            url = self.api.task_url(&self.id),
        )
    }

    /// Prints a line about the job on standard error. The job's id and the daemon's messages may
    /// contain control characters, which are escaped.
    fn print_message(&self, message: &str) {
        print_note(format_args!("{}: {}", printable(&self.id), printable(message)));
    }

    fn is_overdue(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn timeout_message(&self) -> String {
        if self.running {
            let limit = self.run.running_timeout.unwrap_or_default();
            return format!("it ran for longer than {limit} s");
        }
        let reason = self.reason.as_ref();
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!(
            "it was pending for longer than {} s{reason}",
            self.run.startup_timeout
        )
    }

    /// Requests the state once, and prints what changed.
    async fn poll(&mut self, interval: Duration) -> Result<Option<JobEnd>, Failure> {
        let status = self.within_outage_limit(self.api.status(&self.id)).await?;
        let state = status["status"]["state"].as_str().map(str::to_owned);
        let message = status["status"]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if state != self.state {
            let name = state.as_deref().unwrap_or("unknown");
            let suffix = if message.is_empty() {
                String::new()
            } else {
                format!(" ({message})")
            };
            self.print_message(&format!("{name}{suffix}"));
            self.state.clone_from(&state);
        }
        let state = state.unwrap_or_default();
        if state == "TASK_RUNNING" && !self.running {
            self.running = true;
            let limit = self.running_timeout;
            self.deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        }
        let is_active = matches!(
            state.as_str(),
            "" | "TASK_STAGING" | "TASK_STARTING" | "TASK_RUNNING"
        );
        if !self.run.no_log && (self.running || !is_active) {
            self.print().await;
        }
        if state == "TASK_FINISHED" {
            return Ok(Some(JobEnd::Finished));
        }
        if !is_active {
            let suffix = if message.is_empty() {
                String::new()
            } else {
                format!(": {message}")
            };
            return Ok(Some(JobEnd::Failed(format!("{state}{suffix}"))));
        }
        if !self.running && self.reason_requested.elapsed() >= REASON_INTERVAL.max(interval) {
            self.print_reason().await;
        }
        if !self.is_overdue() {
            return Ok(None);
        }
        if !self.running {
            self.print_reason().await;
        }
        Ok(Some(JobEnd::Cancelled(self.timeout_message())))
    }

    /// Prints why the job is pending, if the reason changed.
    async fn print_reason(&mut self) {
        self.reason_requested = Instant::now();
        let reason = self.api.reason(&self.id).await;
        if let Some(reason) = reason.filter(|reason| self.reason.as_ref() != Some(reason)) {
            self.print_message(&format!("pending: {reason}"));
            self.reason = Some(reason);
        }
    }

    /// Prints the output since the last request. If the agent is unreachable, the next call tries
    /// again.
    async fn print(&mut self) {
        for (index, stream) in ["stdout", "stderr"].into_iter().enumerate() {
            while let Some((data, next)) = self.api.log(&self.id, stream, self.printed_bytes[index]).await {
                if next <= self.printed_bytes[index] {
                    break;
                }
                self.printed_bytes[index] = next;
                // If the output is a pipe that was closed, the job continues.
                let _ = if index == 0 {
                    std::io::stdout().write_all(&data)
                } else {
                    std::io::stderr().write_all(&data)
                };
            }
        }
        let _ = std::io::stdout().flush();
    }

    /// Kills the job, waits for its end and describes the result.
    async fn kill(&mut self) -> String {
        let interval = Duration::from_millis(200);
        let killed = timeout(KILL_TIMEOUT, async {
            self.api.kill(&self.id).await?;
            loop {
                if let Some(JobEnd::Finished | JobEnd::Failed(_)) = self.poll(interval).await? {
                    return Ok(());
                }
                sleep(interval).await;
            }
        });
        match killed.await {
            Ok(Ok(())) => format!(
                "it ended in {}",
                self.state.as_deref().unwrap_or("an unknown state")
            ),
            Ok(Err(Failure::Unreachable(cause) | Failure::Rejected(cause))) => {
                format!("it could not be killed: {cause}")
            }
            Err(_) => format!("it did not end within {} s of the kill", KILL_TIMEOUT.as_secs()),
        }
    }
}

/// A unique id of a job or a request.
fn generated_id() -> String {
    let now = jiff::Timestamp::now().as_nanosecond();
    format!("job.{now}-{}", std::process::id())
}

fn seconds(option: &str, value: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(value)
        .with_context(|| format!("{option} {value}: expected a number of seconds"))
        .context(Misconfigured)
}
