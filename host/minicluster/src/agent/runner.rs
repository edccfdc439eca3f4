//! Runs one task from its launch to its end, like an executor: as a process, or in a container.

use super::{
    check::{self, Finding, Place, Purpose},
    container::{Container, Containerizer, End, Limited, Plan, Refused, Started, plan},
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
use serde_json::Value;
use std::{
    io,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    process::Command,
    sync::{mpsc, watch},
    task::JoinSet,
    time::sleep_until,
};
use tokio_util::sync::CancellationToken;

/// How far in the future a deadline lies that is not set.
const NEVER: Duration = Duration::from_hours(365 * 24);

/// Runs the task and reports its updates to the state. Returns when its processes have ended, or
/// immediately when the cluster stops.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    mut launch: Launch,
    mut kills: watch::Receiver<Option<KillOrder>>,
) {
    let plan = plan(shared.config.images, &launch.info);
    let mut notice = None;
    let in_container = match plan {
        Plan::Process => false,
        Plan::Container => true,
        Plan::ProcessInstead { info, notice: text } => {
            tracing::warn!(task = %launch.key.task, "{text}");
            launch.info = info;
            notice = Some(text);
            false
        }
        Plan::Refused(why) => return tell(shared, &launch, &launch_failed(&why)),
    };
    let prepare = async {
        if let Err(trouble) = sandbox::prepare(&shared.http, &launch).await {
            return Err(Unprepared::Sandbox(trouble));
        }
        if !in_container {
            return Ok(None);
        }
        let prepared = shared.launcher.prepare(&launch).await;
        prepared.map(Some).map_err(Unprepared::Container)
    };
    let prepared = tokio::select! {
        prepared = prepare => prepared,
        () = killed(&mut kills) => {
            let mut update = AgentUpdate::new(TaskState::Killed);
            update.message = Some("Command was killed before it began".to_owned());
            return tell(shared, &launch, &update);
        }
        () = shared.token.cancelled() => return,
    };
    let (command, container) = match prepared {
        Ok(None) => (process::command(&launch.info["command"], &launch), None),
        Ok(Some(prepared)) => (prepared.command, Some(Arc::new(prepared.container))),
        Err(why) => return refuse(shared, &launch, why),
    };
    let launch = Arc::new(launch);
    match start(&launch, command) {
        Ok(process) => {
            let mut running = Running::new(shared, &launch, process, container);
            running.notice = notice;
            running.run(kills).await;
        }
        Err(error) => cannot_start(shared, &launch, &error).await,
    }
}

/// Why a task cannot be started.
enum Unprepared {
    Sandbox(Trouble),
    Container(Refused),
}

/// Reports a task that cannot be started.
fn refuse(shared: &Arc<Shared>, launch: &Launch, why: Unprepared) {
    let update = match why {
        Unprepared::Sandbox(Trouble::Directory(why)) => {
            told_by_agent(TaskState::Dropped, "REASON_EXECUTOR_TERMINATED", &why)
        }
        Unprepared::Sandbox(Trouble::Fetch(why)) | Unprepared::Container(Refused::Launch(why)) => {
            launch_failed(&why)
        }
        // Docker's executor finds this error, so the task has already started.
        Unprepared::Container(Refused::Options(why)) => {
            tell(shared, launch, &AgentUpdate::new(TaskState::Starting));
            let message = Some(format!("Failed to create docker run options: {why}"));
            AgentUpdate {
                message,
                ..AgentUpdate::new(TaskState::Failed)
            }
        }
    };
    tell(shared, launch, &update);
}

fn launch_failed(why: &str) -> AgentUpdate {
    let why = format!("Failed to launch container: {why}");
    told_by_agent(TaskState::Failed, "REASON_CONTAINER_LAUNCH_FAILED", &why)
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

/// An update whose source is the agent itself, without a container.
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

pub(super) fn start(launch: &Launch, mut command: Command) -> io::Result<Process> {
    let (stdout, stderr) = sandbox::output(&launch.directory)?;
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    Process::spawn(command)
}

/// Reports a command that does not exist. A real executor runs, and its child process exits with
/// status 1.
async fn cannot_start(shared: &Arc<Shared>, launch: &Launch, error: &io::Error) {
    let value = doc::text(&launch.info, &["command", "value"]).unwrap_or_default();
    let _ = sandbox::note(
        &launch.directory,
        &format!("Failed to execute '{value}': {error}\n"),
    )
    .await;
    // This process acts as the executor, because no other process runs.
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
    /// The container of the process, if it is a container runtime's.
    container: Option<Arc<Container>>,
    /// Whether the task was reported as running.
    reported: bool,
    /// The network of the container, once it is known.
    network_info: Option<Value>,
    /// The message of the first updates.
    notice: Option<String>,
    since: Instant,
    check: Option<CheckResult>,
    health: Option<Health>,
    /// The kill in progress.
    kill: Option<KillOrder>,
    /// Whether it exceeded its maximum run time.
    overdue: bool,
    /// The time at which SIGKILL is due.
    kill_at: Option<Instant>,
}

/// The checks of a task.
struct Checks {
    /// Taken when the checks start.
    findings: Option<mpsc::Sender<Finding>>,
    running: JoinSet<()>,
    stop: CancellationToken,
}

impl<'a> Running<'a> {
    fn new(
        shared: &'a Arc<Shared>,
        launch: &'a Arc<Launch>,
        process: Process,
        container: Option<Arc<Container>>,
    ) -> Self {
        let health = launch.info.get("health_check").map(Health::new);
        let check = check::initial(&launch.info);
        Self {
            shared,
            launch,
            process,
            container,
            reported: false,
            network_info: None,
            notice: None,
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
        self.shared.journals.launched(launch, &self.process);
        set_pid(self.shared, launch, pid);
        self.tell_first(TaskState::Starting, None);
        let (findings, mut found) = mpsc::channel(8);
        let mut checks = Checks {
            findings: Some(findings),
            running: JoinSet::new(),
            stop: CancellationToken::new(),
        };
        if self.container.is_none() {
            self.begin(None, &mut checks);
        }
        let ended = self.wait(&mut kills, &mut found, &mut checks).await;
        checks.stop.cancel();
        drop(found);
        while checks.running.join_next().await.is_some() {}
        self.shared.sessions.task_ended(&launch.container).await;

        let end = match &self.container {
            Some(container) => container.finish(ended.as_ref().ok().copied()).await,
            None => End::default(),
        };
        let how = ended.as_ref().map_or_else(
            |error| format!("Failed to wait for the command: {error}"),
            |status| self.describe(*status),
        );
        self.shared.journals.exited(launch, &self.process, &how);
        if self.shared.token.is_cancelled() {
            return;
        }
        let started = self.container.as_ref().and_then(|it| it.started_at_end(&end));
        if let Some(started) = started.filter(|_| !self.reported && self.kill.is_none()) {
            self.report_running(Some(&started));
        }
        let limited = self.container.as_ref().and_then(|it| it.limited(&end));
        self.tell_end(ended.ok(), how, limited.filter(|_| self.kill.is_none()));
    }

    fn describe(&self, status: ExitStatus) -> String {
        match &self.container {
            Some(container) => container.describe(status, self.kill.is_some() || self.overdue),
            None => process::describe(status),
        }
    }

    /// Handles the start of the task: reports that it is running and starts its checks.
    fn begin(&mut self, started: Option<&Started>, checks: &mut Checks) {
        self.since = Instant::now();
        self.network_info = started.and_then(Started::network_info);
        let place = Place {
            launch: Arc::clone(self.launch),
            container: self.container.clone(),
        };
        self.shared.sessions.task_began(place.clone());
        // A container that is being killed is no longer reported as running.
        if self.kill.is_none() {
            self.report_running(started);
        }
        if let Some(findings) = checks.findings.take() {
            for purpose in [Purpose::Check, Purpose::Health] {
                checks.running.spawn(check::run(
                    self.shared.http.clone(),
                    place.clone(),
                    purpose,
                    findings.clone(),
                    checks.stop.clone(),
                ));
            }
        }
    }

    fn report_running(&mut self, started: Option<&Started>) {
        self.reported = true;
        self.network_info = started.and_then(Started::network_info);
        self.tell_first(TaskState::Running, started);
    }

    /// Handles kills, check results and timeouts until the process has ended.
    async fn wait(
        &mut self,
        kills: &mut watch::Receiver<Option<KillOrder>>,
        found: &mut mpsc::Receiver<Finding>,
        checks: &mut Checks,
    ) -> io::Result<ExitStatus> {
        let container = self.container.clone();
        let started = async {
            match &container {
                Some(container) => container.started().await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(started);
        let mut starts = container.is_some();
        let limit =
            doc::find(&self.launch.info, &["max_completion_time", "nanoseconds"]).and_then(Value::as_u64);
        let limit = self.since + limit.map_or(NEVER, Duration::from_nanos).min(NEVER);
        loop {
            let kill_at = self.kill_at.unwrap_or(self.since + NEVER);
            let ending = self.kill.is_some() || self.overdue;
            tokio::select! {
                ended = self.process.wait() => return ended,
                () = self.shared.token.cancelled() => return self.destroy().await,
                started = &mut started, if starts => {
                    starts = false;
                    self.begin(Some(&started), checks);
                }
                Ok(()) = kills.changed() => {
                    let order = kills.borrow_and_update().clone();
                    if let Some(order) = order {
                        checks.stop.cancel();
                        self.begin_kill(order);
                    }
                }
                Some(finding) = found.recv(), if !ending => {
                    if self.take(finding) {
                        checks.stop.cancel();
                        self.begin_kill(KillOrder { healthy: Some(false), ..KillOrder::default() });
                    }
                }
                () = sleep_until(kill_at.into()) => {
                    self.kill_at = None;
                    self.signal(Signal::SIGKILL);
                }
                () = sleep_until(limit.into()), if !ending => {
                    checks.stop.cancel();
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

    /// The first order is reported and terminates the task. A later order can only shorten the
    /// grace period.
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
            update.network_info = self.last_network();
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
        self.shared
            .journals
            .killed(self.launch, &self.process, signal.as_str());
        match &self.container {
            Some(container) => container.signal(signal),
            None => self.process.signal(signal),
        }
    }

    /// Kills the task because the cluster stops.
    async fn destroy(&mut self) -> io::Result<ExitStatus> {
        if let Some(container) = &self.container {
            container.destroy().await;
        }
        self.process.destroy().await
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
                network_info: self.network_info.clone(),
                ..AgentUpdate::new(state)
            },
        );
    }

    /// Reports `TASK_STARTING` or the first `TASK_RUNNING`.
    fn tell_first(&self, state: TaskState, started: Option<&Started>) {
        let mut update = AgentUpdate {
            check: self.check,
            message: self.notice.clone(),
            network_info: self.network_info.clone(),
            ..AgentUpdate::new(state)
        };
        if let Some(started) = started {
            started.add_to(&mut update);
        }
        tell(self.shared, self.launch, &update);
    }

    /// The network in the last updates. Docker's executor omits it.
    fn last_network(&self) -> Option<Value> {
        let container = self.container.as_ref()?;
        let network = self.network_info.clone();
        network.filter(|_| container.containerizer() == Containerizer::Mesos)
    }

    fn tell_end(&self, status: Option<ExitStatus>, how: String, limited: Option<Limited>) {
        if let Some(limited) = limited {
            let update = AgentUpdate {
                limitation: Some(limited.limitation),
                ..told_by_agent(
                    TaskState::Failed,
                    "REASON_CONTAINER_LIMITATION_MEMORY",
                    &limited.message,
                )
            };
            return tell(self.shared, self.launch, &update);
        }
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
                network_info: self.last_network(),
                ..AgentUpdate::new(state)
            },
        );
    }
}
