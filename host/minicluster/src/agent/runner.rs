//! Runs one task from its launch to its end, like an executor.

use super::{
    check::{self, Finding, Purpose},
    health::{Health, Verdict},
    process::{self, Process},
    sandbox::{self, Trouble},
};
use crate::{
    shared::Shared,
    state::{AgentUpdate, CheckResult, KillOrder, Launch, TaskState, kill_grace},
    wire::json as doc,
};
use nix::sys::signal::Signal;
use std::{
    io,
    process::ExitStatus,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::sleep_until,
};
use tokio_util::sync::CancellationToken;

/// The distance of a deadline that is not set.
const NEVER: Duration = Duration::from_hours(365 * 24);

/// Runs the task and reports its updates to the state. Returns when its process group is gone, or
/// immediately when the cluster stops.
pub(crate) async fn run(shared: &Arc<Shared>, launch: Launch, mut kills: watch::Receiver<Option<KillOrder>>) {
    if launch.info["container"]
        .pointer("/docker/image")
        .or_else(|| launch.info["container"].pointer("/mesos/image"))
        .is_some()
    {
        let why =
            "Failed to launch container: this cluster runs local processes only, it has no container images";
        return tell(
            shared,
            &launch,
            &told_by_agent(TaskState::Failed, "REASON_CONTAINER_LAUNCH_FAILED", why),
        );
    }
    let prepared = tokio::select! {
        prepared = sandbox::prepare(&shared.http, &launch) => prepared,
        () = killed(&mut kills) => {
            let mut update = AgentUpdate::new(TaskState::Killed);
            update.message = Some("Command was killed before it began".to_owned());
            return tell(shared, &launch, &update);
        }
        () = shared.token.cancelled() => return,
    };
    match prepared {
        Ok(()) => {}
        Err(Trouble::Directory(why)) => {
            return tell(
                shared,
                &launch,
                &told_by_agent(TaskState::Dropped, "REASON_EXECUTOR_TERMINATED", &why),
            );
        }
        Err(Trouble::Fetch(why)) => {
            let why = format!("Failed to launch container: {why}");
            return tell(
                shared,
                &launch,
                &told_by_agent(TaskState::Failed, "REASON_CONTAINER_LAUNCH_FAILED", &why),
            );
        }
    }
    let launch = Arc::new(launch);
    match start(&launch) {
        Ok(process) => Running::new(shared, &launch, process).run(kills).await,
        Err(error) => cannot_start(shared, &launch, &error).await,
    }
}

fn tell(shared: &Arc<Shared>, launch: &Launch, update: &AgentUpdate) {
    shared.with(|state| state.agent_update(&launch.key, update, Instant::now()));
}

fn set_pid(shared: &Arc<Shared>, launch: &Launch, pid: u32) {
    shared.with(|state| {
        if let Some(task) = state.task_mut(&launch.key) {
            task.pid = Some(pid);
        }
    });
}

/// Completes when the task is to be killed.
async fn killed(kills: &mut watch::Receiver<Option<KillOrder>>) {
    if kills.wait_for(Option::is_some).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// An update by the agent itself, without a container.
fn told_by_agent(state: TaskState, reason: &'static str, why: &str) -> AgentUpdate {
    let message = Some(why.to_owned());
    AgentUpdate {
        message,
        reason: Some(reason),
        source: "SOURCE_AGENT",
        container: false,
        ..AgentUpdate::new(state)
    }
}

fn start(launch: &Launch) -> io::Result<Process> {
    let mut command = process::command(&launch.info["command"], launch);
    let (stdout, stderr) = sandbox::output(&launch.directory)?;
    command.stdout(stdout).stderr(stderr);
    Process::spawn(command)
}

/// A command that does not exist: a real executor runs, and its child ends with status 1.
async fn cannot_start(shared: &Arc<Shared>, launch: &Launch, error: &io::Error) {
    let value = doc::text(&launch.info, &["command", "value"]).unwrap_or_default();
    let _ = sandbox::note(
        &launch.directory,
        &format!("Failed to execute '{value}': {error}\n"),
    )
    .await;
    // This process acts as the executor; there is no other.
    set_pid(shared, launch, std::process::id());
    for state in [TaskState::Starting, TaskState::Running] {
        tell(shared, launch, &AgentUpdate::new(state));
    }
    let message = Some("Command exited with status 1".to_owned());
    tell(
        shared,
        launch,
        &AgentUpdate {
            message,
            ..AgentUpdate::new(TaskState::Failed)
        },
    );
}

/// A task with a process.
struct Running<'a> {
    shared: &'a Arc<Shared>,
    launch: &'a Arc<Launch>,
    process: Process,
    since: Instant,
    check: Option<CheckResult>,
    health: Option<Health>,
    /// The kill in progress.
    kill: Option<KillOrder>,
    /// Whether it exceeded its maximum run time.
    overdue: bool,
    /// The time of SIGKILL.
    kill_at: Option<Instant>,
}

impl<'a> Running<'a> {
    fn new(shared: &'a Arc<Shared>, launch: &'a Arc<Launch>, process: Process) -> Self {
        let health = launch.info.get("health_check").map(Health::new);
        let check = check::initial(&launch.info);
        Self {
            shared,
            launch,
            process,
            since: Instant::now(),
            check,
            health,
            kill: None,
            overdue: false,
            kill_at: None,
        }
    }

    async fn run(mut self, mut kills: watch::Receiver<Option<KillOrder>>) {
        let (launch, pid) = (self.launch, self.process.pid);
        self.shared
            .journals
            .launched(&launch.agent, &launch.key, &self.process);
        set_pid(self.shared, launch, pid);
        self.shared.sessions.task_began(launch);
        self.tell(TaskState::Starting, None);
        self.tell(TaskState::Running, None);

        let stop_checks = CancellationToken::new();
        let (findings, mut found) = mpsc::channel(8);
        let mut checks = JoinSet::new();
        for purpose in [Purpose::Check, Purpose::Health] {
            checks.spawn(check::run(
                self.shared.http.clone(),
                Arc::clone(launch),
                purpose,
                findings.clone(),
                stop_checks.clone(),
            ));
        }
        drop(findings);
        let ended = self.wait(&mut kills, &mut found, &stop_checks).await;
        stop_checks.cancel();
        drop(found);
        while checks.join_next().await.is_some() {}
        self.shared.sessions.task_ended(&launch.container).await;

        let how = ended.as_ref().map_or_else(
            |error| format!("Failed to wait for the command: {error}"),
            |status| process::describe(*status),
        );
        self.shared
            .journals
            .exited(&launch.agent, &launch.key, &self.process, &how);
        if !self.shared.token.is_cancelled() {
            self.tell_end(ended.ok(), how);
        }
    }

    /// Waits until the process is gone.
    async fn wait(
        &mut self,
        kills: &mut watch::Receiver<Option<KillOrder>>,
        found: &mut mpsc::Receiver<Finding>,
        stop_checks: &CancellationToken,
    ) -> io::Result<ExitStatus> {
        let limit = doc::find(&self.launch.info, &["max_completion_time", "nanoseconds"])
            .and_then(serde_json::Value::as_u64);
        let limit = self.since + limit.map_or(NEVER, Duration::from_nanos).min(NEVER);
        loop {
            let kill_at = self.kill_at.unwrap_or(self.since + NEVER);
            let ending = self.kill.is_some() || self.overdue;
            tokio::select! {
                ended = self.process.wait() => return ended,
                () = self.shared.token.cancelled() => return self.process.destroy().await,
                Ok(()) = kills.changed() => {
                    let order = kills.borrow_and_update().clone();
                    if let Some(order) = order {
                        stop_checks.cancel();
                        self.begin_kill(order);
                    }
                }
                Some(finding) = found.recv(), if !ending => {
                    if self.take(finding) {
                        stop_checks.cancel();
                        self.begin_kill(KillOrder { healthy: Some(false), ..KillOrder::default() });
                    }
                }
                () = sleep_until(kill_at.into()) => {
                    self.kill_at = None;
                    self.signal(Signal::SIGKILL);
                }
                () = sleep_until(limit.into()), if !ending => {
                    stop_checks.cancel();
                    self.overdue = true;
                    self.terminate(self.grace());
                }
            }
        }
    }

    /// The task's own grace period, or else the cluster's.
    fn grace(&self) -> Duration {
        kill_grace(&self.launch.info["kill_policy"]).unwrap_or(self.shared.config.kill_grace)
    }

    /// The first order is reported and terminates the task; later ones can only shorten the grace
    /// period.
    fn begin_kill(&mut self, order: KillOrder) {
        let grace = order.grace.unwrap_or_else(|| self.grace());
        if order.crashed {
            self.kill = Some(order);
            return self.signal(Signal::SIGKILL);
        }
        if self.kill.is_some() {
            let at = Instant::now() + grace;
            self.kill_at = self.kill_at.map(|planned| planned.min(at));
            return;
        }
        self.check = check::initial(&self.launch.info);
        if self.launch.killing_state {
            let mut update = AgentUpdate {
                reason: order.reason,
                ..AgentUpdate::new(TaskState::Killing)
            };
            update.check = self.check;
            tell(self.shared, self.launch, &update);
        }
        self.kill = Some(order);
        self.terminate(grace);
    }

    fn terminate(&mut self, grace: Duration) {
        if grace.is_zero() {
            return self.signal(Signal::SIGKILL);
        }
        self.signal(Signal::SIGTERM);
        self.kill_at = Some(Instant::now() + grace.min(NEVER));
    }

    fn signal(&self, signal: Signal) {
        let Launch { agent, key, .. } = self.launch.as_ref();
        self.shared
            .journals
            .killed(agent, key, &self.process, signal.as_str());
        self.process.signal(signal);
    }

    /// Handles a check result. Returns true if the task must be killed.
    fn take(&mut self, finding: Finding) -> bool {
        match finding {
            Finding::Check(result) => {
                if self.check != Some(result) {
                    self.check = Some(result);
                    self.tell(TaskState::Running, Some("REASON_TASK_CHECK_STATUS_UPDATED"));
                }
                false
            }
            Finding::Health(healthy) => {
                let Some(health) = &mut self.health else {
                    return false;
                };
                let verdict = health.observe(healthy, self.since.elapsed());
                if verdict != Verdict::Nothing {
                    self.tell(
                        TaskState::Running,
                        Some("REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"),
                    );
                }
                verdict == Verdict::Kill
            }
        }
    }

    fn tell(&self, state: TaskState, reason: Option<&'static str>) {
        let healthy = self.health.as_ref().and_then(Health::last);
        tell(
            self.shared,
            self.launch,
            &AgentUpdate {
                reason,
                healthy,
                check: self.check,
                ..AgentUpdate::new(state)
            },
        );
    }

    fn tell_end(&self, status: Option<ExitStatus>, how: String) {
        if self.kill.as_ref().is_some_and(|order| order.crashed) {
            let update = told_by_agent(
                TaskState::Failed,
                "REASON_EXECUTOR_TERMINATED",
                "Executor terminated",
            );
            return tell(self.shared, self.launch, &update);
        }
        let (state, reason) = match &self.kill {
            Some(order) => (TaskState::Killed, order.reason),
            None if self.overdue => (TaskState::Failed, Some("REASON_MAX_COMPLETION_TIME_REACHED")),
            None if status.is_some_and(|status| status.success()) => (TaskState::Finished, None),
            None => (TaskState::Failed, None),
        };
        let healthy = self.kill.as_ref().and_then(|order| order.healthy);
        let check = check::initial(&self.launch.info);
        tell(
            self.shared,
            self.launch,
            &AgentUpdate {
                message: Some(how),
                reason,
                healthy,
                check,
                ..AgentUpdate::new(state)
            },
        );
    }
}
