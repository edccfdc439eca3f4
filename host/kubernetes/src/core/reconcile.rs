//! Carries out the steps of the plan.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep, sleep_until};
use transom_cluster::TaskId;
use transom_common::trace::TraceContext;
use transom_common::{HostPort, ambient};
use transom_replicas::Condition;
use transom_scheduler::TaskRequest;

use super::job_result::{JobResult, NodeChange};
use super::members::ScriptState;
use super::persist::Wanted;
use super::version::IMPORTED;
use super::{Core, HandOver};
use crate::dependencies::SandboxFile;
use crate::kind::{Kind, PerKind};
use crate::orchestrator::{NodesByTask, OrchestratorError};
use crate::plan::{Drain, Goal, Node, Observed, Plan, Policy, Step, next_steps};
use crate::task::{Endpoints, Launch, MemberStart, Metadata, Script};

/// How often the orchestrator is queried while nothing changes, unless the heartbeat is shorter.
pub(super) const OBSERVE_INTERVAL: Duration = Duration::from_secs(5);
/// The time between two attempts to read the client configuration.
const CLIENT_CONFIG_READ_INTERVAL: Duration = Duration::from_secs(2);
/// The time to the next attempt after a script could not be prepared.
const PREPARE_RETRY_DELAY: Duration = Duration::from_secs(5);
/// The time to the next attempt after a drain or another change of a node failed.
pub(super) const DRAIN_RETRY_DELAY: Duration = Duration::from_secs(1);

impl Core {
    /// Compares the wanted state with the observed one, starts the next steps, and publishes the
    /// result.
    pub(super) async fn reconcile(&mut self) {
        let now = ambient::now();
        self.record_unready_times(now);
        self.record_unhealthy_times(now);
        let versions = self.versions();
        self.plan = self.next_plan(&versions, now);
        if self.autoscale(self.plan.settled, now).await {
            self.plan = self.next_plan(&versions, now);
        }
        let handing_over = self.hand_over.take();
        for step in std::mem::take(&mut self.plan.steps) {
            tracing::debug!(
                framework = self.config.name(),
                ?step,
                "executing the next step of the plan"
            );
            match step {
                Step::Launch { kind, number } => {
                    self.launch(kind, number, versions.of(kind), now, None);
                }
                Step::LaunchMember { number, start } => {
                    self.launch_member(number, start, versions.of(Kind::Datastore), now);
                }
                Step::Dismiss { etcd } => self.dismiss(etcd),
                Step::Remove { kind, number, reason } => {
                    tracing::info!(framework = self.config.name(), %kind, number, why = ?reason, "ending a task");
                    let effects = self.members.remove(kind, number, now);
                    self.apply_effects(effects);
                }
                Step::HandOver { number } => {
                    let since = handing_over.as_ref().map_or(now, |known| known.since);
                    let to = self.members.of(Kind::Server).get(&number);
                    self.hand_over = to.map(|member| HandOver {
                        to: member.task.clone(),
                        since,
                    });
                }
                Step::Drain { number, node } => self.drain(number, node),
                Step::CancelDrain { number, node } => {
                    if let Some(member) = self.members.get_mut(Kind::Agent, number) {
                        member.drain = Drain::NotStarted;
                        member.drain_until = None;
                    }
                    self.cordon(node, self.wanted.cordoned);
                }
                Step::RemoveNode(node) => self.remove_node(node),
                Step::Cordon { node, cordoned } => self.cordon(node, cordoned),
            }
        }
        self.uncordon().await;
        self.record_ready().await;
        self.retry_scripts();
        self.refresh_members();
        self.read_client_config();
        self.observe();
        self.observe_kvstore();
        self.list_pods();
        self.publish_view();
    }

    pub(super) fn next_plan(&self, versions: &PerKind<String>, now: Timestamp) -> Plan {
        let goal = Goal {
            counts: self.planned_counts(),
            cordoned: self.wanted.cordoned,
            paused: self.stops_servers(),
        };
        let policy = Policy {
            node_timeout: self.config.settings.orch_node_timeout.duration(),
            drain_timeout: self.config.settings.drain_timeout.duration(),
            grace: self
                .config
                .settings
                .heartbeat_interval
                .duration()
                .saturating_mul(2),
        };
        next_steps(&goal, &self.observed(versions, now), &policy, now)
    }

    /// When to run the next comparison if no event occurs before.
    pub(super) fn next_comparison(&self) -> Instant {
        let now = Instant::now();
        let mut next = now + self.config.settings.heartbeat_interval.duration();
        let looks = [self.plan.recheck_at, self.autoscaler.recheck_at];
        if let Some(at) = looks.into_iter().flatten().min() {
            let wait = Duration::try_from(at.duration_since(ambient::now())).unwrap_or_default();
            next = next.min(now + wait.max(Duration::from_millis(10)));
        }
        let retries = self
            .members
            .iter()
            .filter_map(|(.., member)| match &member.script {
                ScriptState::Failed(_, at) => Some(*at),
                _ => None,
            });
        let jobs = [
            self.jobs.read_at,
            self.jobs.observe_at,
            self.kvstore.due(),
            self.backup_due(),
            self.next_list(),
        ];
        let due = jobs.into_iter().flatten().chain(retries).min();
        due.map_or(next, |due| next.min(due))
    }

    /// The input of the plan.
    fn observed(&self, versions: &PerKind<String>, now: Timestamp) -> Observed {
        let observation = self.orchestrator.observation.as_ref();
        let nodes = NodesByTask::new(observation.iter().flat_map(|it| &it.nodes));
        let members = PerKind::from_fn(|kind| {
            let mut members = self.members.planned(kind, versions.of(kind));
            let served = self.client_config.as_ref().map(|known| &*known.stored.task);
            for member in &mut members {
                member.serving = kind == Kind::Server && served == Some(&*member.task);
                member.chosen = self.autoscaled_away().contains(&member.task);
                // A former leader has begun to drain this node; the drain has to be repeated.
                let begun = || nodes.of(&member.task).iter().any(|node| node.draining);
                if member.drain == Drain::NotStarted && begun() {
                    member.drain = Drain::Failed;
                }
                let imported = self.members.of(kind).get(&member.number);
                let imported = imported.is_some_and(|it| it.replica.version == IMPORTED);
                member.old &= !(imported && *self.wanted.generations.of(kind) == 0);
            }
            if kind == Kind::Datastore && self.is_clustered() {
                self.plan_members(&mut members);
            }
            members
        });
        let nodes = self.orchestrator.observation.as_ref().map(|observation| {
            let known = Kind::ALL.into_iter().flat_map(|kind| members.of(kind));
            let known: HashSet<&str> = known.map(|member| &*member.task).collect();
            observation
                .nodes
                .iter()
                .map(|node| Node {
                    name: node.name.clone(),
                    // A node without the label of this service has the task's id in its name.
                    task: node.task.clone().or_else(|| {
                        let owner = node.possible_tasks().find(|task| known.contains(task));
                        owner.map(str::to_owned)
                    }),
                    ready: node.ready,
                    cordoned: node.cordoned,
                    leaving: node.deleting || self.jobs.nodes.contains(&node.name),
                })
                .collect()
        });
        Observed {
            members,
            nodes,
            silent_since: self.orchestrator.silent_since,
            backoff: PerKind::from_fn(|kind| self.members.backoff(kind, now)),
            kvstore: self.planned_kvstore(),
            ready_before: self.wanted.ready_before,
            hand_over_since: self.hand_over.as_ref().map(|known| known.since),
        }
    }

    /// The addresses that tasks use to reach each other, unless they use container names.
    pub(super) fn endpoints(&self) -> Endpoints {
        let addresses = &self.kvstore.record.addresses;
        let clustered = self.is_clustered().then(|| addresses.values().cloned().collect());
        if self.config.settings.containers && !self.config.settings.mapped_addresses {
            return Endpoints {
                datastore: clustered.unwrap_or_default(),
                server: None,
            };
        }
        let address = |member: &super::members::Member| {
            let record = member.record.as_ref()?;
            Some(HostPort::new(&record.agent.hostname, *record.host_ports.first()?))
        };
        Endpoints {
            datastore: clustered.unwrap_or_else(|| {
                let members = self.members.of(Kind::Datastore).values();
                members.filter_map(address).collect()
            }),
            server: self.running_server().map(|(_, address)| address),
        }
    }

    /// A running server and the address of its API. The server whose client configuration is served
    /// is preferred, so that the address does not change when another server moves; otherwise it is
    /// the one with the lowest number.
    pub(super) fn running_server(&self) -> Option<(TaskId, HostPort)> {
        let known = self.client_config.as_ref().map(|known| &known.stored);
        let mut running = self.running_servers();
        let served = self
            .running_servers()
            .find(|(task, address)| known.is_some_and(|known| known.is_of(task, address)));
        served.or_else(|| running.next())
    }

    /// The server whose client configuration is to be served.
    pub(super) fn server_for_clients(&self) -> Option<(TaskId, HostPort)> {
        let to = self.hand_over.as_ref().map(|known| &known.to);
        let next = self.running_servers().find(|(task, _)| Some(task) == to);
        next.or_else(|| self.running_server())
    }

    /// The running servers, and the addresses of their APIs.
    fn running_servers(&self) -> impl Iterator<Item = (TaskId, HostPort)> {
        let servers = self.members.of(Kind::Server).values();
        servers.filter_map(|member| {
            let record = member.record.as_ref()?;
            let runs = member.replica.condition == Condition::Running;
            let address = HostPort::new(&record.agent.hostname, *record.host_ports.first()?);
            runs.then(|| (member.task.clone(), address))
        })
    }

    /// Adds a task and returns its id. The task is requested immediately, or when its script is
    /// prepared if it needs one.
    pub(super) fn launch(
        &mut self,
        kind: Kind,
        number: u32,
        version: &str,
        now: Timestamp,
        start: Option<MemberStart>,
    ) -> TaskId {
        let task = TaskId::from(ambient::uuid().to_string());
        let metadata = self
            .members
            .add(kind, number, task.clone(), version.to_owned(), now);
        tracing::info!(framework = self.config.name(), %kind, number, %task, "starting a task");
        self.service.metrics.record_task_start(kind);
        if let Some(member) = self.members.get_mut(kind, number) {
            member.start = start;
        }
        self.prepare(metadata, task.clone());
        task
    }

    /// Starts a job that prepares the script; the task is requested when the job has ended. The
    /// datastore runs no script and is requested immediately.
    pub(super) fn prepare(&mut self, metadata: Metadata, task: TaskId) {
        if metadata.kind == Kind::Datastore {
            return self.submit(metadata, &task, None);
        }
        if let Some(member) = self.members.get_mut(metadata.kind, metadata.number) {
            member.script = ScriptState::Preparing;
        }
        let settings = self.wanted.adjusted.of(metadata.kind);
        let settings = settings.apply_to(self.config.kinds.of(metadata.kind));
        let draft = Launch::draft(
            &self.config,
            &settings,
            metadata,
            &self.endpoints(),
            task.as_str(),
        );
        let bootstrap = Arc::clone(&self.service.bootstrap);
        let component_changes = self.component_changes;
        self.spawn_job(async move {
            let prepared = bootstrap
                .prepare(metadata.kind, metadata.number, task.as_str(), draft)
                .await;
            JobResult::Prepared {
                metadata,
                task,
                component_changes,
                prepared,
            }
        });
    }

    /// Requests a task from the scheduler, or replaces its request.
    pub(super) fn submit(&mut self, metadata: Metadata, task: &TaskId, script: Option<Script>) {
        let Metadata { kind, number, .. } = metadata;
        let endpoints = self.endpoints();
        let data_host = self.pinned_host().or_else(|| self.data_host().map(str::to_owned));
        let Some(member) = self.members.get_mut(kind, number) else {
            return;
        };
        member.script = ScriptState::Prepared;
        member.requested = true;
        let version = member.replica.version.clone();
        let start = member.start.clone();
        let mut settings = self.wanted.adjusted.of(kind).apply_to(self.config.kinds.of(kind));
        if kind == Kind::Datastore
            && let Some(host) = data_host
        {
            settings.constraint = Some(host);
        }
        let launch = Launch {
            config: Arc::clone(&self.config),
            settings,
            metadata,
            secrets: Arc::clone(&self.secrets),
            endpoints,
            script,
            member: start,
            preparation: self.preparation(number).filter(|_| kind == Kind::Datastore),
        };
        let spec = launch.run_spec(version, *self.wanted.counts.of(kind));
        self.scheduler.submit(vec![TaskRequest {
            id: task.clone(),
            spec: Arc::new(spec),
            not_before: None,
            priority: 0,
            reservation: None,
            trace: TraceContext::default(),
        }]);
    }

    /// Tries again to prepare scripts that could not be prepared.
    fn retry_scripts(&mut self) {
        let now = Instant::now();
        let due: Vec<(Metadata, TaskId)> = self
            .members
            .iter()
            .filter(|(.., member)| matches!(&member.script, ScriptState::Failed(_, at) if *at <= now))
            .map(|(kind, number, member)| (metadata(kind, number, member), member.task.clone()))
            .collect();
        for (metadata, task) in due {
            self.prepare(metadata, task);
        }
    }

    /// Prepares the scripts of all pending tasks again, with the component that is in service now.
    pub(super) fn handle_component_change(&mut self) {
        // With this, a script that is being prepared is prepared again when its job has ended.
        self.component_changes += 1;
        let pending: Vec<(Metadata, TaskId)> = self
            .members
            .iter()
            .filter(|(kind, _, member)| {
                *kind != Kind::Datastore
                    && member.record.is_none()
                    && !matches!(member.script, ScriptState::Preparing)
            })
            .map(|(kind, number, member)| (metadata(kind, number, member), member.task.clone()))
            .collect();
        for (metadata, task) in pending {
            self.prepare(metadata, task);
        }
    }

    /// When the next attempt to prepare a script is due.
    pub(super) fn prepare_retry() -> Instant {
        Instant::now() + PREPARE_RETRY_DELAY
    }

    fn drain(&mut self, number: u32, node: String) {
        let Some(client) = self.orchestrator.client.clone() else {
            return;
        };
        let Some(member) = self.members.get_mut(Kind::Agent, number) else {
            return;
        };
        if !self.jobs.nodes.insert(node.clone()) {
            return;
        }
        member.drain = Drain::UnderWay;
        let end = Instant::now() + self.config.settings.drain_timeout.duration();
        let deadline = *member.drain_until.get_or_insert(end);
        let task = member.task.clone();
        tracing::info!(framework = self.config.name(), node, "draining a node");
        self.spawn_job(async move {
            let result = client.drain(&node, deadline).await;
            if result.is_err() {
                sleep_until(deadline.min(Instant::now() + DRAIN_RETRY_DELAY)).await;
            }
            JobResult::Drained { node, task, result }
        });
    }

    fn remove_node(&mut self, node: String) {
        let Some(client) = self.orchestrator.client.clone() else {
            return;
        };
        if !self.jobs.nodes.insert(node.clone()) {
            return;
        }
        tracing::info!(framework = self.config.name(), node, "removing a node");
        let removed = node.clone();
        let change = async move { client.remove_node(&removed).await };
        self.spawn_node_change(node, NodeChange::Removed, change);
    }

    fn cordon(&mut self, node: String, cordoned: bool) {
        let Some(client) = self.orchestrator.client.clone() else {
            return;
        };
        if !self.jobs.nodes.insert(node.clone()) {
            return;
        }
        let cordoned_node = node.clone();
        let change = async move { client.cordon(&cordoned_node, cordoned).await };
        self.spawn_node_change(node, NodeChange::Cordoned(cordoned), change);
    }

    /// Changes a node. A change that failed counts as under way until it may be tried again.
    fn spawn_node_change(
        &self,
        node: String,
        change: NodeChange,
        job: impl Future<Output = Result<(), OrchestratorError>> + Send + 'static,
    ) {
        self.spawn_job(async move {
            let result = job.await;
            if result.is_err() {
                sleep(DRAIN_RETRY_DELAY).await;
            }
            JobResult::NodeChanged { change, node, result }
        });
    }

    /// Uncordons the agents' nodes after a request, until all of them are schedulable.
    async fn uncordon(&mut self) {
        if !self.wanted.uncordoning {
            return;
        }
        let Some(observation) = self.orchestrator.observation.clone() else {
            return;
        };
        let mut done = true;
        let agents: HashSet<String> = self
            .members
            .of(Kind::Agent)
            .values()
            .filter(|member| member.drain == Drain::NotStarted)
            .map(|member| member.task.to_string())
            .collect();
        for node in &observation.nodes {
            // A cordon that is under way is not visible in the observation yet.
            let is_open = !node.cordoned && !self.jobs.nodes.contains(&node.name);
            if !is_open && node.possible_tasks().any(|task| agents.contains(task)) {
                done = false;
                self.cordon(node.name.clone(), false);
            }
        }
        if !done {
            return;
        }
        let wanted = Wanted {
            uncordoning: false,
            ..self.wanted.clone()
        };
        self.put_wanted(wanted, "that the nodes are uncordoned").await;
    }

    /// Reads the client configuration of the server that clients are to use, if that server has
    /// changed or its API does not answer.
    fn read_client_config(&mut self) {
        let now = Instant::now();
        if self.jobs.reading {
            return;
        }
        self.jobs.read_at = None;
        let Some((task, address)) = self.server_for_clients() else {
            return;
        };
        let known = self.client_config.as_ref().map(|known| &known.stored);
        let current = known.is_some_and(|known| known.task == task.as_str() && known.address == address);
        if current && (self.orchestrator.client.is_some() && self.orchestrator.silent_since.is_none()) {
            return;
        }
        if self.jobs.read_after.is_some_and(|at| at > now) {
            self.jobs.read_at = self.jobs.read_after;
            return;
        }
        let subscription = self.scheduler.subscription();
        let record = self.scheduler.tasks().get(&task).cloned();
        let (Some(framework), Some(record)) = (subscription.framework_id, record) else {
            return;
        };
        self.jobs.reading = true;
        self.jobs.read_after = Some(now + CLIENT_CONFIG_READ_INTERVAL);
        let (cluster, file) = (
            Arc::clone(&self.service.cluster),
            self.config.settings.kubeconfig_file.clone(),
        );
        self.spawn_job(async move {
            let file = SandboxFile {
                agent: &record.agent,
                framework: &framework,
                task: &task,
                path: &file,
            };
            let read = cluster.read_file(file).await;
            JobResult::ClientConfig { task, address, read }
        });
    }

    /// Queries the orchestrator for its nodes.
    fn observe(&mut self) {
        let now = Instant::now();
        let Some(client) = self.orchestrator.client.clone() else {
            self.jobs.observe_at = None;
            return;
        };
        if self.jobs.observing || self.jobs.observe_at.is_some_and(|at| at > now) {
            return;
        }
        self.jobs.observing = true;
        self.jobs.observe_at = None;
        let changes = self.orchestrator.changes;
        self.spawn_job(async move {
            let result = client.observe().await;
            JobResult::Observed {
                client,
                changes,
                result,
            }
        });
    }

    /// Schedules the next query of the orchestrator.
    pub(super) fn schedule_observation(&mut self) {
        let interval = OBSERVE_INTERVAL.min(self.config.settings.heartbeat_interval.duration());
        self.jobs.observe_at = Some(Instant::now() + interval);
    }

    /// Runs a job concurrently with the core. The core receives the job's result.
    pub(super) fn spawn_job(&self, job: impl Future<Output = JobResult> + Send + 'static) {
        let (job_results, token) = (self.job_results.clone(), self.token.clone());
        self.tracker.spawn(async move {
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                job_result = job => {
                    let _ = job_results.send(job_result).await;
                }
            }
        });
    }
}

fn metadata(kind: Kind, number: u32, member: &super::members::Member) -> Metadata {
    Metadata {
        kind,
        number,
        incarnation: member.replica.incarnation,
    }
}
