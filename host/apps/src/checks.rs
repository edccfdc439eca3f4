//! Checks that this daemon makes: probes running instances at their intervals with the check-probe
//! components.
//!
//! There is no other implementation: without the component a check has no new result and reports
//! the reason. Results go to the core as a [`Report`]; a failed attempt leaves the last result
//! unchanged.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_cluster::agent::Agents;
use transom_cluster::v1::CommandInfo;
use transom_cluster::{ContainerId, Error as ClusterError};
use transom_common::HostPort;
use transom_plugin_host::Change;
use transom_plugin_host::probe::{
    CommandLine, CommandOutput, Failure, IoError, Kind, Outcome, Port, Reason, Request, Runner,
};
use transom_scheduler::TaskRecord;

use crate::core::command::{Look, Report};
use crate::ids::InstanceId;
use crate::instance::Instance;
use crate::model::{App, Check, CheckCommand, CheckKind};
use crate::seams::Policies;
use crate::task::ports::{endpoint, endpoint_of, of_instance};

/// Added to the timeout of an attempt before it is cancelled from outside.
const MARGIN: Duration = Duration::from_secs(1);

/// Labels of an attempt: the kind of the check and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    kind: &'static str,
    outcome: &'static str,
}

/// Counters of attempts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    looks: Family<Labels, Counter>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "transom_apps_checks",
            "Checks of instances, by kind; outcome error: the check could not be made",
            metrics.looks.clone(),
        );
        metrics
    }
}

/// The running checks. Owned by the core.
#[derive(Debug)]
pub(crate) struct Checker {
    policies: Arc<dyn Policies>,
    /// Runs `exec` checks; `None` in tests.
    agents: Option<Agents>,
    reports: mpsc::Sender<Report>,
    running: HashMap<InstanceId, (u32, CancellationToken)>,
    metrics: Metrics,
    tracker: TaskTracker,
    token: CancellationToken,
}

impl Checker {
    pub(crate) fn new(
        policies: Arc<dyn Policies>,
        agents: Option<Agents>,
        reports: mpsc::Sender<Report>,
        metrics: Metrics,
        tracker: TaskTracker,
        token: CancellationToken,
    ) -> Self {
        Self {
            policies,
            agents,
            reports,
            running: HashMap::new(),
            metrics,
            tracker,
            token,
        }
    }

    /// Starts the check of a running instance, unless it has already started. A changed check starts
    /// again.
    pub(crate) fn begin(&mut self, app: &Arc<App>, instance: &Instance, occasion: Occasion) {
        if occasion == Occasion::CheckChanged {
            self.end(&instance.id);
        }
        let (Some(check), Some(record)) = (&app.check, &instance.record) else {
            return;
        };
        if self
            .running
            .get(&instance.id)
            .is_some_and(|(incarnation, _)| *incarnation == instance.replica.incarnation)
        {
            return;
        }
        self.end(&instance.id);
        let token = self.token.child_token();
        self.running
            .insert(instance.id.clone(), (instance.replica.incarnation, token.clone()));
        let running = record.started_at.map_or(Duration::ZERO, |started_at| {
            Duration::try_from(Timestamp::now().duration_since(started_at)).unwrap_or_default()
        });
        let looks = Looks {
            first: until_first(check, running, occasion),
            app: Arc::clone(app),
            check: check.clone(),
            record: Arc::clone(record),
            instance: instance.id.clone(),
            incarnation: instance.replica.incarnation,
            policies: Arc::clone(&self.policies),
            agents: self.agents.clone(),
            reports: self.reports.clone(),
            metrics: self.metrics.clone(),
        };
        self.tracker.spawn(async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = looks.run() => {}
            }
        });
    }

    /// Stops the check of an instance.
    pub(crate) fn end(&mut self, instance: &InstanceId) {
        if let Some((_, token)) = self.running.remove(instance) {
            token.cancel();
        }
    }
}

/// Why a check starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// Its task runs.
    TaskRuns,
    /// This daemon leads now; the task was started under an earlier leader.
    NewLeader,
    /// The app has another check than before.
    CheckChanged,
}

/// The time until the first attempt of a check whose task has been running for `running`. A new
/// leader continues at the check's interval, so that the attempts of all tasks do not coincide.
fn until_first(check: &Check, running: Duration, occasion: Occasion) -> Duration {
    let delay = Duration::from_secs(u64::from(check.delay_seconds));
    let interval = u64::from(check.interval_seconds.max(1)) * 1000;
    match (occasion, running.checked_sub(delay)) {
        (Occasion::CheckChanged, _) => Duration::ZERO,
        (Occasion::NewLeader, Some(over)) => {
            Duration::from_millis(interval - over.as_millis() as u64 % interval)
        }
        _ => delay.saturating_sub(running),
    }
}

/// The check of one task.
struct Looks {
    first: Duration,
    app: Arc<App>,
    check: Check,
    record: Arc<TaskRecord>,
    instance: InstanceId,
    incarnation: u32,
    policies: Arc<dyn Policies>,
    agents: Option<Agents>,
    reports: mpsc::Sender<Report>,
    metrics: Metrics,
}

impl Looks {
    async fn run(self) {
        let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
        tokio::time::sleep(self.first).await;
        let mut previous = None;
        loop {
            // Subscribed before the attempt, so that no replacement of the plugin is missed.
            let changes = self.policies.changes();
            let look = match self.look(previous.clone()).await {
                Ok(outcome) => {
                    previous = Some(outcome.clone());
                    Look::Found(outcome)
                }
                Err(failure) => Look::Failed(failure),
            };
            let plugin_failed = matches!(&look, Look::Failed(failure) if failure.reason == Reason::Plugin);
            if !self.report(look).await {
                return;
            }
            let interval = tokio::time::sleep(seconds(self.check.interval_seconds.max(1)));
            if !plugin_failed {
                drop(changes);
                interval.await;
                continue;
            }
            let plugin = self.policies.prober(&self.kind().0);
            tokio::select! {
                () = interval => {}
                // The new version of the plugin is called immediately.
                () = replaced(changes, &plugin) => {
                    if !self.report(Look::Obsolete).await {
                        return;
                    }
                }
            }
        }
    }

    /// Returns false if the receiver of reports has gone.
    async fn report(&self, look: Look) -> bool {
        let report = Report {
            instance: self.instance.clone(),
            incarnation: self.incarnation,
            look,
        };
        self.reports.send(report).await.is_ok()
    }

    fn kind(&self) -> (Kind, &'static str) {
        match &self.check.kind {
            CheckKind::Http { .. } => (Kind::Http, "http"),
            CheckKind::Tcp { .. } => (Kind::Tcp, "tcp"),
            CheckKind::Exec { .. } => (Kind::Exec, "exec"),
        }
    }

    async fn look(&self, previous: Option<Outcome>) -> Result<Outcome, Failure> {
        let (kind, name) = self.kind();
        // A timeout of 0 would fail every attempt.
        let timeout = Duration::from_secs(u64::from(self.check.timeout_seconds.max(1)));
        let probe = self
            .policies
            .probe(kind, self.request(previous, timeout), self.runner());
        let result = tokio::time::timeout(timeout + MARGIN, probe)
            .await
            .unwrap_or_else(|_| {
                Err(Failure {
                    reason: Reason::TimedOut,
                    message: format!("the probe timed out after {timeout:?}"),
                })
            });
        let outcome = if result.is_ok() { "ok" } else { "error" };
        self.metrics
            .looks
            .get_or_create(&Labels { kind: name, outcome })
            .inc();
        if let Err(failure) = &result {
            tracing::debug!(task = %self.record.id, reason = ?failure.reason, message = failure.message, "check failed without a result");
        }
        result
    }

    fn request(&self, previous: Option<Outcome>, timeout: Duration) -> Request {
        let (app, record) = (&*self.app, &*self.record);
        let mut ports = Vec::new();
        for port in of_instance(app, record.id.as_str(), &record.host_ports) {
            let Some(endpoint) = endpoint_of(app, record, &port) else {
                continue;
            };
            ports.extend(port.protocol.names().iter().map(|protocol| Port {
                name: port.name.map(str::to_owned),
                protocol: (*protocol).to_owned(),
                endpoint: endpoint.clone(),
            }));
        }
        let (path, command) = match &self.check.kind {
            CheckKind::Http { path, .. } => (path.clone().unwrap_or_else(|| "/".to_owned()), None),
            CheckKind::Tcp { .. } => ("/".to_owned(), None),
            CheckKind::Exec { command } => ("/".to_owned(), Some(shell(command))),
        };
        Request {
            run_spec: self.app.id.to_string(),
            task: self.record.id.to_string(),
            agent: record.agent.hostname.clone(),
            labels: self.app.labels.clone().into_iter().collect(),
            ports,
            endpoint: self.check.port().and_then(|port| endpoint(app, record, port)),
            path,
            command,
            settings: "{}".to_owned(),
            previous,
            timeout,
            extensions: Vec::new(),
        }
    }

    fn runner(&self) -> Option<Arc<dyn Runner>> {
        let CheckKind::Exec { .. } = self.check.kind else {
            return None;
        };
        let agent = self.record.agent.endpoint.clone()?;
        let container = self
            .record
            .status
            .as_ref()?
            .container_status
            .as_ref()?
            .container_id
            .clone()?;
        Some(Arc::new(InTask {
            agents: self.agents.clone()?,
            agent,
            container,
        }))
    }
}

/// Returns when another version of the plugin serves.
async fn replaced(mut changes: broadcast::Receiver<Change>, plugin: &str) {
    loop {
        match changes.recv().await {
            Ok(Change::Admitted { name, .. } | Change::RolledBack { name, .. }) if name == plugin => return,
            // The missed changes may include this plugin.
            Err(RecvError::Lagged(_)) => return,
            Ok(_) => {}
            // The plugin host has stopped: no version changes any more.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// A shell command line; arguments are quoted.
fn shell(command: &CheckCommand) -> String {
    match command {
        CheckCommand::Shell(shell) => shell.clone(),
        CheckCommand::Argv(argv) => {
            let quoted: Vec<String> = argv
                .iter()
                .map(|argument| format!("'{}'", argument.replace('\'', r"'\''")))
                .collect();
            quoted.join(" ")
        }
    }
}

/// Runs commands in a task's container, through its agent.
struct InTask {
    agents: Agents,
    agent: HostPort,
    container: ContainerId,
}

#[async_trait]
impl Runner for InTask {
    async fn run(&self, command: CommandLine, timeout: Duration) -> Result<CommandOutput, IoError> {
        let command = match command {
            CommandLine::Shell(shell) => CommandInfo {
                shell: Some(true),
                value: Some(shell),
                ..CommandInfo::default()
            },
            CommandLine::Argv(argv) => CommandInfo {
                shell: Some(false),
                value: argv.first().cloned(),
                arguments: argv,
                ..CommandInfo::default()
            },
        };
        match self
            .agents
            .run_in_task(&self.agent, &self.container, &command, timeout)
            .await
        {
            Ok(result) => Ok(CommandOutput {
                exit_code: result.exit_code,
                stdout: result.stdout,
                stderr: result.stderr,
            }),
            Err(ClusterError::TimedOut { .. }) => Err(IoError::TimedOut),
            Err(error) => Err(IoError::Unavailable(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CheckPort;

    #[test]
    fn first_attempt_is_due_by_the_start_of_the_task() {
        let check = |delay_seconds| Check {
            kind: CheckKind::Tcp {
                port: CheckPort::Port(80),
            },
            interval_seconds: 60,
            timeout_seconds: 20,
            delay_seconds,
        };
        for (occasion, delay, running, expected) in [
            (Occasion::TaskRuns, 0, 0, 0),
            (Occasion::TaskRuns, 0, 9_000, 0),
            (Occasion::TaskRuns, 15, 500, 14_500),
            (Occasion::TaskRuns, 15, 20_000, 0),
            (Occasion::NewLeader, 15, 500, 14_500),
            (Occasion::NewLeader, 15, 20_000, 55_000),
            (Occasion::NewLeader, 15, 75_000, 60_000),
            (Occasion::NewLeader, 0, 3_601_000, 59_000),
            (Occasion::CheckChanged, 15, 500, 0),
        ] {
            let found = until_first(&check(delay), Duration::from_millis(running), occasion);
            let expected = Duration::from_millis(expected);
            assert_eq!(found, expected, "{occasion:?}, {delay} s, {running} ms");
        }
    }

    #[test]
    fn arguments_are_quoted() {
        let argv = ["/bin/echo", "it's", "$HOME"].map(str::to_owned).to_vec();
        assert_eq!(shell(&CheckCommand::Argv(argv)), r"'/bin/echo' 'it'\''s' '$HOME'");
        assert_eq!(shell(&CheckCommand::Shell("exit $X".to_owned())), "exit $X");
    }
}
