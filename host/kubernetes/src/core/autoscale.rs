//! Applies the rule of [`crate::autoscale`] to the count of agents: lists the pods, stores each
//! decision as it stores a request, and shows why the count stays.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use transom_common::error_chain;
use transom_replicas::Condition;

use super::Core;
use super::job_result::JobResult;
use super::members::Member;
use super::persist::Wanted;
use crate::autoscale::{Agent, Autoscaled, Change, Observed, PendingPod, Timers, decide};
use crate::kind::Kind;
use crate::orchestrator::{Node, NodeLoad, Orchestrator, OrchestratorError, Pods, Resources};
use crate::plan::Drain;
use crate::view::AutoscaleView;

/// How often the pods are listed, unless the heartbeat is shorter.
const LIST_INTERVAL: Duration = Duration::from_secs(10);
/// The time to the next attempt after a decision could not be stored.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The state of the autoscaler in the core.
#[derive(Debug)]
pub(super) struct Autoscaler {
    /// The pods as last listed; `None`: they are not known.
    pods: Option<Pods>,
    /// Why the pods are not known.
    problem: Option<String>,
    timers: Timers,
    /// When the count was changed, or this term began.
    pub(super) changed_at: Timestamp,
    notes: Vec<String>,
    pub(super) recheck_at: Option<Timestamp>,
    retry_at: Option<Instant>,
    listing: bool,
    /// When the pods are listed again; `None`: immediately.
    list_at: Option<Instant>,
}

impl Autoscaler {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            pods: None,
            problem: None,
            timers: Timers::default(),
            changed_at: now,
            notes: Vec::new(),
            recheck_at: None,
            retry_at: None,
            listing: false,
            list_at: None,
        }
    }

    /// Discards the pods and restarts the delays.
    fn forget(&mut self, problem: Option<String>) {
        self.pods = None;
        self.problem = problem;
        self.timers = Timers::default();
    }
}

impl Core {
    /// Changes the count if the rule requires it. Returns whether the count has changed.
    pub(super) async fn autoscale(&mut self, settled: bool, now: Timestamp) -> bool {
        let Some((autoscale, max)) = self.config.settings.autoscale() else {
            return false;
        };
        self.autoscaler.recheck_at = None;
        if self.wanted.counts.server == 0 {
            self.autoscaler.forget(None);
            self.autoscaler.notes.clear();
            return false;
        }
        if self.orchestrator.observation.is_none() {
            self.autoscaler
                .forget(Some("the server's API does not answer".to_owned()));
        }
        let observed = self.observe_agents(settled, now);
        let verdict = decide(autoscale, max, &observed, now);
        self.autoscaler.notes = verdict.notes;
        self.autoscaler.recheck_at = verdict.recheck_at;
        let problem = self.autoscaler.problem.as_ref();
        let unknown = problem.map(|problem| format!("the pods are not known: {problem}"));
        self.autoscaler.notes.extend(unknown);
        let Some(change) = verdict.change else {
            return false;
        };
        let note = format!("the count {} was not stored; retrying", change.count);
        let due = self.autoscaler.retry_at.is_none_or(|at| at <= Instant::now());
        let applied = due && self.apply(change, now).await;
        if !applied {
            self.autoscaler.notes.push(note);
        }
        applied
    }

    /// The input of the rule.
    fn observe_agents(&self, settled: bool, now: Timestamp) -> Observed {
        let timers = &self.autoscaler.timers;
        let (agents, closed) = (self.agents(), self.closed_agents());
        let waiting = self.autoscaler.pods.as_ref().map(|pods| {
            let waiting = pods.waiting.iter().map(|pod| PendingPod {
                name: pod.name.clone(),
                requests: pod.requests,
                unschedulable_since: timers.unschedulable_since(&pod.uid),
            });
            waiting.collect()
        });
        Observed {
            count: self.wanted.counts.agent,
            usable: agents
                .iter()
                .map(|agent| Agent {
                    task: agent.task.clone(),
                    since: agent.since,
                    // An agent that is newer than the list of pods counts as idle from now on.
                    idle_since: agent.idle.then(|| timers.idle_since(&agent.task).unwrap_or(now)),
                })
                .collect(),
            closed,
            waiting,
            empty: agents
                .iter()
                .filter_map(|agent| agent.empty)
                .reduce(Resources::max),
            settled,
            cordoned: self.wanted.cordoned,
            changed_at: self.autoscaler.changed_at,
        }
    }

    /// The agents whose nodes accept pods.
    fn agents(&self) -> Vec<UsableAgent> {
        let nodes = self.orchestrator.observation.iter().flat_map(|it| &it.nodes);
        let usable =
            nodes.filter(|node| node.ready && !node.cordoned && !self.jobs.nodes.contains(&node.name));
        let loads = self.autoscaler.pods.as_ref().map(|pods| &pods.loads);
        let members = self.members.of(Kind::Agent).values();
        let members: HashMap<&str, &Member> = members.map(|member| (member.task.as_str(), member)).collect();
        let agents = usable.filter_map(|node| {
            let member = node.possible_tasks().find_map(|task| members.get(task))?;
            let replica = &member.replica;
            let stays = replica.is_wanted() && member.drain == Drain::NotStarted;
            let load = match loads {
                Some(loads) => loads.get(&node.name).copied().unwrap_or_default(),
                None => NodeLoad {
                    busy: true,
                    ..NodeLoad::default()
                },
            };
            (stays && replica.condition == Condition::Running).then(|| UsableAgent {
                task: member.task.to_string(),
                since: replica.active_since(),
                idle: !load.busy,
                empty: node.allocatable.map(|all| all.minus(load.own)),
            })
        });
        agents.collect()
    }

    /// The number of agents that are ready and were cordoned by another party than this service.
    fn closed_agents(&self) -> usize {
        if self.wanted.cordoned || self.wanted.uncordoning {
            return 0;
        }
        let nodes = self.orchestrator.observation.iter().flat_map(|it| &it.nodes);
        let closed = nodes.filter(|node| {
            let ours = node.draining || self.jobs.nodes.contains(&node.name);
            node.ready && node.cordoned && !ours
        });
        let members = self.members.of(Kind::Agent).values();
        let kept = members.filter(|member| member.replica.is_wanted() && member.drain == Drain::NotStarted);
        let kept: HashSet<&str> = kept.map(|member| member.task.as_str()).collect();
        let is_kept = |node: &&Node| node.possible_tasks().any(|task| kept.contains(task));
        closed.filter(is_kept).count()
    }

    /// Stores a decision and applies it. Returns whether it was stored.
    async fn apply(&mut self, change: Change, now: Timestamp) -> bool {
        let before = self.wanted.counts.agent;
        let mut wanted = Wanted {
            autoscaled: Some(Autoscaled {
                at: now,
                from: before,
                to: change.count,
                reason: change.reason.clone(),
                leaving: change.leaving,
            }),
            ..self.wanted.clone()
        };
        wanted.counts.agent = change.count;
        if let Err(error) = self.repository.put_wanted(&wanted).await {
            tracing::warn!(
                framework = self.config.name(),
                error = error_chain(&error),
                "storing a decision of the autoscaler failed; retrying"
            );
            self.autoscaler.retry_at = Some(Instant::now() + STORE_RETRY_DELAY);
            return false;
        }
        self.wanted = wanted;
        self.autoscaler.retry_at = None;
        self.autoscaler.changed_at = now;
        self.service.metrics.record_autoscaling(change.count > before);
        tracing::info!(
            framework = self.config.name(),
            before,
            count = change.count,
            reason = change.reason,
            "autoscaled the agents"
        );
        true
    }

    /// Starts a job that lists the pods, if that is due.
    pub(super) fn list_pods(&mut self) {
        let answers = self.orchestrator.observation.is_some();
        if self.config.settings.autoscale().is_none() || !answers || self.wanted.counts.server == 0 {
            self.autoscaler.list_at = None;
            return;
        }
        let now = Instant::now();
        let Some(client) = self.orchestrator.client.clone() else {
            return;
        };
        if self.autoscaler.listing || self.autoscaler.list_at.is_some_and(|at| at > now) {
            return;
        }
        self.autoscaler.listing = true;
        self.autoscaler.list_at = None;
        self.spawn_job(async move {
            let result = client.pods().await;
            JobResult::Pods { client, result }
        });
    }

    /// When the pods are listed again.
    pub(super) fn next_list(&self) -> Option<Instant> {
        self.autoscaler.list_at
    }

    /// Handles the result of listing the pods.
    pub(super) fn handle_pod_list(
        &mut self,
        client: &Arc<dyn Orchestrator>,
        result: Result<Pods, OrchestratorError>,
        now: Timestamp,
    ) {
        self.autoscaler.listing = false;
        let current = self.orchestrator.client.as_ref();
        if current.is_none_or(|current| !Arc::ptr_eq(current, client)) {
            return;
        }
        let interval = LIST_INTERVAL.min(self.config.settings.heartbeat_interval.duration());
        self.autoscaler.list_at = Some(Instant::now() + interval);
        match result {
            Ok(pods) => {
                self.autoscaler.problem = None;
                self.autoscaler.pods = Some(pods);
                self.update_timers(now);
            }
            Err(error) => {
                let problem = error_chain(&error);
                if self.autoscaler.problem.is_none() {
                    tracing::warn!(
                        framework = self.config.name(),
                        error = problem,
                        "listing the pods failed; the agents are not autoscaled"
                    );
                }
                self.autoscaler.forget(Some(problem));
            }
        }
    }

    fn update_timers(&mut self, now: Timestamp) {
        let agents = self.agents();
        let Some(pods) = &self.autoscaler.pods else {
            return;
        };
        let unschedulable = pods.waiting.iter().filter(|pod| pod.unschedulable);
        self.autoscaler.timers.update(
            unschedulable.map(|pod| pod.uid.as_str()),
            agents
                .iter()
                .filter(|agent| agent.idle)
                .map(|agent| agent.task.as_str()),
            now,
        );
    }

    /// The tasks of the agents that the last decision removes.
    pub(super) fn autoscaled_away(&self) -> &[String] {
        self.wanted.autoscaled.as_ref().map_or(&[], |last| &last.leaving)
    }

    /// The autoscaler as `explain` shows it.
    pub(super) fn show_autoscaler(&self) -> Option<AutoscaleView> {
        let (autoscale, max) = self.config.settings.autoscale()?;
        let (unschedulable_pods, idle_agents) = self.autoscaler.timers.counts();
        Some(AutoscaleView {
            min: autoscale.min,
            max,
            unschedulable_pods,
            idle_agents,
            notes: self.autoscaler.notes.clone(),
            last: self.wanted.autoscaled.clone(),
        })
    }
}

/// An agent whose node accepts pods.
struct UsableAgent {
    task: String,
    since: Timestamp,
    idle: bool,
    /// The resources that it would have for pods if no movable pod ran on it.
    empty: Option<Resources>,
}
