//! Runs one task from its launch to its end, like an executor: as a process, or in a container.

use super::{
    check::{self, CheckKind, ProbeResult, RunningTask},
    container::{
        Container, ContainerEnd, ContainerError, Containerizer, LimitExceeded, Plan, StartedContainer, plan,
    },
    health::{Health, HealthAction},
    process::{self, Process},
    sandbox::{self, SandboxError},
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
    mut kill_orders: watch::Receiver<Option<KillOrder>>,
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
        Plan::Rejected(why) => return report(shared, &launch, &launch_failed(&why)),
    };
    let prepare = async {
        if let Err(error) = sandbox::prepare(&shared.http, &launch).await {
            return Err(PrepareError::Sandbox(error));
        }
        if !in_container {
            return Ok(None);
        }
        let prepared = shared.launcher.prepare(&launch).await;
        prepared.map(Some).map_err(PrepareError::Container)
    };
    let prepared = tokio::select! {
        prepared = prepare => prepared,
        () = kill_requested(&mut kill_orders) => {
            let mut update = AgentUpdate::new(TaskState::Killed);
            update.message = Some("Command was killed before it began".to_owned());
            return report(shared, &launch, &update);
        }
        () = shared.token.cancelled() => return,
    };
    let (command, container) = match prepared {
        Ok(None) => (process::command(&launch.info["command"], &launch), None),
        Ok(Some(prepared)) => (prepared.command, Some(Arc::new(prepared.container))),
        Err(why) => return report_prepare_error(shared, &launch, why),
    };
    let launch = Arc::new(launch);
    match start_process(&launch, command) {
        Ok(process) => {
            let mut running = TaskRunner::new(shared, &launch, process, container);
            running.notice = notice;
            running.run(kill_orders).await;
        }
        Err(error) => report_start_failure(shared, &launch, &error).await,
    }
}

/// Why a task cannot be started.
enum PrepareError {
    Sandbox(SandboxError),
    Container(ContainerError),
}

/// Reports a task that cannot be started.
fn report_prepare_error(shared: &Arc<Shared>, launch: &Launch, why: PrepareError) {
    let update = match why {
        PrepareError::Sandbox(SandboxError::Directory(why)) => {
            agent_sourced_update(TaskState::Dropped, "REASON_EXECUTOR_TERMINATED", &why)
        }
        PrepareError::Sandbox(SandboxError::Fetch(why))
        | PrepareError::Container(ContainerError::Launch(why)) => launch_failed(&why),
        // Docker's executor finds this error, so the task has already started.
        PrepareError::Container(ContainerError::Options(why)) => {
            report(shared, launch, &AgentUpdate::new(TaskState::Starting));
            let message = Some(format!("Failed to create docker run options: {why}"));
            AgentUpdate {
                message,
                ..AgentUpdate::new(TaskState::Failed)
            }
        }
    };
    report(shared, launch, &update);
}

fn launch_failed(why: &str) -> AgentUpdate {
    let why = format!("Failed to launch container: {why}");
    agent_sourced_update(TaskState::Failed, "REASON_CONTAINER_LAUNCH_FAILED", &why)
}

fn report(shared: &Arc<Shared>, launch: &Launch, update: &AgentUpdate) {
    shared.with_state(|state| state.agent_update(&launch.key, update, Instant::now()));
}

fn set_pid(shared: &Arc<Shared>, launch: &Launch, pid: u32) {
    shared.with_state(|state| {
        if let Some(task) = state.task_mut(&launch.key) {
            task.pid = Some(pid);
        }
    });
}

/// Completes when the task is to be killed.
async fn kill_requested(kill_orders: &mut watch::Receiver<Option<KillOrder>>) {
    if kill_orders.wait_for(Option::is_some).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// An update whose source is the agent itself, without a container.
fn agent_sourced_update(state: TaskState, reason: &'static str, why: &str) -> AgentUpdate {
    let message = Some(why.to_owned());
    AgentUpdate {
        message,
        reason: Some(reason),
        source: "SOURCE_AGENT",
        has_container: false,
        ..AgentUpdate::new(state)
    }
}

pub(super) fn start_process(launch: &Launch, mut command: Command) -> io::Result<Process> {
    let (stdout, stderr) = sandbox::open_output_files(&launch.directory)?;
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    Process::spawn(command)
}

/// Reports a command that does not exist. A real executor runs, and its child process exits with
/// status 1.
async fn report_start_failure(shared: &Arc<Shared>, launch: &Launch, error: &io::Error) {
    let value = doc::text(&launch.info, &["command", "value"]).unwrap_or_default();
    let _ = sandbox::append_to_stderr(
        &launch.directory,
        &format!("Failed to execute '{value}': {error}\n"),
    )
    .await;
    // This process acts as the executor, because no other process runs.
    set_pid(shared, launch, std::process::id());
    for state in [TaskState::Starting, TaskState::Running] {
        report(shared, launch, &AgentUpdate::new(state));
    }
    let message = Some("Command exited with status 1".to_owned());
    report(
        shared,
        launch,
        &AgentUpdate {
            message,
            ..AgentUpdate::new(TaskState::Failed)
        },
    );
}

/// A task with a process.
struct TaskRunner<'a> {
    shared: &'a Arc<Shared>,
    launch: &'a Arc<Launch>,
    process: Process,
    /// The container of the process, if it is a container runtime's.
    container: Option<Arc<Container>>,
    /// Whether the task was reported as running.
    is_reported_running: bool,
    /// The network of the container, once it is known.
    network_info: Option<Value>,
    /// The message of the first updates.
    notice: Option<String>,
    started_at: Instant,
    check: Option<CheckResult>,
    health: Option<Health>,
    /// The kill in progress.
    kill: Option<KillOrder>,
    /// Whether it exceeded its maximum run time.
    is_overdue: bool,
    /// The time at which SIGKILL is due.
    kill_at: Option<Instant>,
}

/// The checks of a task.
struct Checks {
    /// Taken when the checks start.
    result_sender: Option<mpsc::Sender<ProbeResult>>,
    running: JoinSet<()>,
    stop: CancellationToken,
}

impl<'a> TaskRunner<'a> {
    fn new(
        shared: &'a Arc<Shared>,
        launch: &'a Arc<Launch>,
        process: Process,
        container: Option<Arc<Container>>,
    ) -> Self {
        let health = launch.info.get("health_check").map(Health::new);
        let check = check::initial_result(&launch.info);
        Self {
            shared,
            launch,
            process,
            container,
            is_reported_running: false,
            network_info: None,
            notice: None,
            started_at: Instant::now(),
            check,
            health,
            kill: None,
            is_overdue: false,
            kill_at: None,
        }
    }

    async fn run(mut self, mut kill_orders: watch::Receiver<Option<KillOrder>>) {
        let (launch, pid) = (self.launch, self.process.pid);
        self.shared.journals.record_launch(launch, &self.process);
        set_pid(self.shared, launch, pid);
        self.report_initial(TaskState::Starting, None);
        let (result_sender, mut result_receiver) = mpsc::channel(8);
        let mut checks = Checks {
            result_sender: Some(result_sender),
            running: JoinSet::new(),
            stop: CancellationToken::new(),
        };
        if self.container.is_none() {
            self.handle_start(None, &mut checks);
        }
        let ended = self
            .supervise(&mut kill_orders, &mut result_receiver, &mut checks)
            .await;
        checks.stop.cancel();
        drop(result_receiver);
        while checks.running.join_next().await.is_some() {}
        self.shared.nested_containers.task_ended(&launch.container).await;

        let end = match &self.container {
            Some(container) => container.finish(ended.as_ref().ok().copied()).await,
            None => ContainerEnd::default(),
        };
        let end_message = ended.as_ref().map_or_else(
            |error| format!("Failed to wait for the command: {error}"),
            |status| self.describe(*status),
        );
        self.shared
            .journals
            .record_exit(launch, &self.process, &end_message);
        if self.shared.token.is_cancelled() {
            return;
        }
        let started = self
            .container
            .as_ref()
            .and_then(|container| container.start_found_at_end(&end));
        if let Some(started) = started.filter(|_| !self.is_reported_running && self.kill.is_none()) {
            self.report_running(Some(&started));
        }
        let exceeded_limit = self
            .container
            .as_ref()
            .and_then(|container| container.exceeded_limit(&end));
        self.report_end(
            ended.ok(),
            end_message,
            exceeded_limit.filter(|_| self.kill.is_none()),
        );
    }

    fn describe(&self, status: ExitStatus) -> String {
        match &self.container {
            Some(container) => container.describe(status, self.kill.is_some() || self.is_overdue),
            None => process::describe(status),
        }
    }

    /// Handles the start of the task: reports that it is running and starts its checks.
    fn handle_start(&mut self, started: Option<&StartedContainer>, checks: &mut Checks) {
        self.started_at = Instant::now();
        self.network_info = started.and_then(StartedContainer::network_info);
        let task = RunningTask {
            launch: Arc::clone(self.launch),
            container: self.container.clone(),
        };
        self.shared.nested_containers.task_started(task.clone());
        // A container that is being killed is no longer reported as running.
        if self.kill.is_none() {
            self.report_running(started);
        }
        if let Some(result_sender) = checks.result_sender.take() {
            for kind in [CheckKind::Check, CheckKind::Health] {
                checks.running.spawn(check::run(
                    self.shared.http.clone(),
                    task.clone(),
                    kind,
                    result_sender.clone(),
                    checks.stop.clone(),
                ));
            }
        }
    }

    fn report_running(&mut self, started: Option<&StartedContainer>) {
        self.is_reported_running = true;
        self.network_info = started.and_then(StartedContainer::network_info);
        self.report_initial(TaskState::Running, started);
    }

    /// Handles kills, check results and timeouts until the process has ended.
    async fn supervise(
        &mut self,
        kill_orders: &mut watch::Receiver<Option<KillOrder>>,
        result_receiver: &mut mpsc::Receiver<ProbeResult>,
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
        let mut is_start_pending = container.is_some();
        let limit =
            doc::find(&self.launch.info, &["max_completion_time", "nanoseconds"]).and_then(Value::as_u64);
        let limit = self.started_at + limit.map_or(NEVER, Duration::from_nanos).min(NEVER);
        loop {
            let kill_at = self.kill_at.unwrap_or(self.started_at + NEVER);
            let ending = self.kill.is_some() || self.is_overdue;
            tokio::select! {
                ended = self.process.wait() => return ended,
                () = self.shared.token.cancelled() => return self.destroy().await,
                started = &mut started, if is_start_pending => {
                    is_start_pending = false;
                    self.handle_start(Some(&started), checks);
                }
                Ok(()) = kill_orders.changed() => {
                    let order = kill_orders.borrow_and_update().clone();
                    if let Some(order) = order {
                        checks.stop.cancel();
                        self.begin_kill(order);
                    }
                }
                Some(probe_result) = result_receiver.recv(), if !ending => {
                    if self.handle_result(probe_result) {
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
                    self.is_overdue = true;
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
        if order.is_crash {
            self.kill = Some(order);
            return self.signal(Signal::SIGKILL);
        }
        if self.kill.is_some() {
            let at = Instant::now() + grace;
            self.kill_at = self.kill_at.map(|planned| planned.min(at));
            return;
        }
        self.check = check::initial_result(&self.launch.info);
        if self.launch.supports_killing_state {
            let mut update = AgentUpdate {
                reason: order.reason,
                ..AgentUpdate::new(TaskState::Killing)
            };
            update.check = self.check;
            update.network_info = self.final_network();
            report(self.shared, self.launch, &update);
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
            .record_kill(self.launch, &self.process, signal.as_str());
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
    fn handle_result(&mut self, probe_result: ProbeResult) -> bool {
        match probe_result {
            ProbeResult::Check(result) => {
                if self.check != Some(result) {
                    self.check = Some(result);
                    self.report_state(TaskState::Running, Some("REASON_TASK_CHECK_STATUS_UPDATED"));
                }
                false
            }
            ProbeResult::Health(healthy) => {
                let Some(health) = &mut self.health else {
                    return false;
                };
                let action = health.observe(healthy, self.started_at.elapsed());
                if action != HealthAction::Nothing {
                    self.report_state(
                        TaskState::Running,
                        Some("REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"),
                    );
                }
                action == HealthAction::Kill
            }
        }
    }

    fn report_state(&self, state: TaskState, reason: Option<&'static str>) {
        let healthy = self.health.as_ref().and_then(Health::last_reported);
        report(
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
    fn report_initial(&self, state: TaskState, started: Option<&StartedContainer>) {
        let mut update = AgentUpdate {
            check: self.check,
            message: self.notice.clone(),
            network_info: self.network_info.clone(),
            ..AgentUpdate::new(state)
        };
        if let Some(started) = started {
            started.add_docker_fields(&mut update);
        }
        report(self.shared, self.launch, &update);
    }

    /// The network in the last updates. Docker's executor omits it.
    fn final_network(&self) -> Option<Value> {
        let container = self.container.as_ref()?;
        let network = self.network_info.clone();
        network.filter(|_| container.containerizer() == Containerizer::Mesos)
    }

    fn report_end(
        &self,
        status: Option<ExitStatus>,
        end_message: String,
        exceeded_limit: Option<LimitExceeded>,
    ) {
        if let Some(exceeded_limit) = exceeded_limit {
            let update = AgentUpdate {
                limitation: Some(exceeded_limit.limitation),
                ..agent_sourced_update(
                    TaskState::Failed,
                    "REASON_CONTAINER_LIMITATION_MEMORY",
                    &exceeded_limit.message,
                )
            };
            return report(self.shared, self.launch, &update);
        }
        if self.kill.as_ref().is_some_and(|order| order.is_crash) {
            let update = agent_sourced_update(
                TaskState::Failed,
                "REASON_EXECUTOR_TERMINATED",
                "Executor terminated",
            );
            return report(self.shared, self.launch, &update);
        }
        let (state, reason) = match &self.kill {
            Some(order) => (TaskState::Killed, order.reason),
            None if self.is_overdue => (TaskState::Failed, Some("REASON_MAX_COMPLETION_TIME_REACHED")),
            None if status.is_some_and(|status| status.success()) => (TaskState::Finished, None),
            None => (TaskState::Failed, None),
        };
        let healthy = self.kill.as_ref().and_then(|order| order.healthy);
        let check = check::initial_result(&self.launch.info);
        report(
            self.shared,
            self.launch,
            &AgentUpdate {
                message: Some(end_message),
                reason,
                healthy,
                check,
                network_info: self.final_network(),
                ..AgentUpdate::new(state)
            },
        );
    }
}
