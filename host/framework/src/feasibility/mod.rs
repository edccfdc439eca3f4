//! Finds the constraints of pending tasks that no active agent satisfies, and the amounts that none
//! has: causes that waiting does not end.
//!
//! The scheduler knows agents by their offers, but a full agent has no offers and may be the agent
//! that a task needs. So while tasks are pending, all agents are periodically listed at the master,
//! independently of launches, and the matcher evaluates each set of constraints. Readers get a
//! snapshot of the result. If the master or the matcher fails, nothing is reported
//! about agents without offers.

mod amounts;
mod lasting;
mod sources;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use transom_common::error_chain;
use transom_plugin_host::CallError;
use transom_plugin_host::matcher::{Agent, Constraint, Task, Verdict};
use transom_scheduler::{Amounts, Reason, ReasonKind, SchedulerApi};

pub use self::amounts::{Shortage, shortage};
pub use self::lasting::Unplaceable;
pub use self::sources::{ActiveAgent, AgentList, MatchSession, MatchSessions, active_agents};

/// Maximum age of the list of agents.
const MAX_SNAPSHOT_AGE: Duration = Duration::from_secs(10);
/// Timeout of a request to the master or the matcher.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the pending tasks are read, and how old they are before they need an explanation.
const PENDING_INTERVAL: Duration = Duration::from_secs(2);
const MIN_PENDING: jiff::SignedDuration = jiff::SignedDuration::from_secs(2);
/// Maximum number of constraint sets that are evaluated.
const MAX_CONSTRAINT_SETS: usize = 256;
/// Maximum number of constraints of a set that are evaluated one by one.
const MAX_CONSTRAINTS: usize = 32;

/// Distinct lists of constraints.
pub type ConstraintSets = Arc<[Vec<Constraint>]>;

/// How the active agents satisfy one list of constraints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConstraintFit {
    /// Active agents.
    pub agents: u32,
    /// Agents that satisfy all constraints.
    pub fitting: u32,
    /// The constraints that no agent satisfies, in words.
    pub unsatisfied: Vec<String>,
}

impl ConstraintFit {
    /// The constraints that no active agent satisfies, one sentence each.
    pub fn unsatisfied_everywhere(&self) -> Vec<String> {
        let in_all = counted_agents(self.agents);
        if self.unsatisfied.is_empty() {
            let together =
                format!("no active agent satisfies all constraints together ({in_all} in the cluster)");
            return (self.fitting == 0).then_some(together).into_iter().collect();
        }
        let unsatisfied = self.unsatisfied.iter();
        unsatisfied
            .map(|condition| {
                format!("no active agent satisfies the constraint `{condition}` ({in_all} in the cluster)")
            })
            .collect()
    }
}

/// A number of agents in words.
pub fn counted_agents(count: u32) -> String {
    format!("{count} agent{}", if count == 1 { "" } else { "s" })
}

/// The total amounts of an active agent.
#[derive(Clone, Debug)]
pub struct AgentTotal {
    /// The agent's id.
    pub id: String,
    /// Its host name.
    pub hostname: String,
    /// CPUs, memory and disk in MB, and GPUs.
    pub amounts: Amounts,
    /// Its ports: ranges from first to last inclusive.
    pub ports: Vec<(u64, u64)>,
}

/// The active agents: their amounts, and the constraints that they satisfy.
#[derive(Debug, Default)]
struct Findings {
    /// By constraints.
    fits: HashMap<Vec<Constraint>, ConstraintFit>,
    totals: Arc<[AgentTotal]>,
}

/// The latest results.
#[derive(Debug, Default)]
pub struct Feasibility(ArcSwap<Findings>);

impl Feasibility {
    /// How the active agents satisfy constraints, if that is known.
    pub fn of(&self, conditions: &[Constraint]) -> Option<ConstraintFit> {
        self.0.load().fits.get(conditions).cloned()
    }

    /// The active agents; none if they are not known.
    pub fn totals(&self) -> Arc<[AgentTotal]> {
        Arc::clone(&self.0.load().totals)
    }
}

/// Evaluates until the token is cancelled: when `constraint_sets` change, and when the list of
/// agents is too old.
pub async fn keep_current(
    feasibility: Arc<Feasibility>,
    cluster: Arc<dyn AgentList>,
    matcher: Arc<dyn MatchSessions>,
    mut constraint_sets: watch::Receiver<ConstraintSets>,
    token: CancellationToken,
) {
    let mut snapshot: Option<AgentSnapshot> = None;
    loop {
        let wanted = Arc::clone(&constraint_sets.borrow_and_update());
        if wanted.is_empty() {
            // The snapshot is kept: the queue of a busy service is empty many times a second.
            feasibility.0.store(Arc::default());
        } else {
            let refreshing = refresh(&*cluster, &*matcher, snapshot.take(), &wanted);
            match token.run_until_cancelled(refreshing).await {
                None => return,
                Some(refreshed) => {
                    let findings = refreshed.as_ref().map(|snapshot| Findings {
                        fits: snapshot.results.clone(),
                        totals: Arc::clone(&snapshot.totals),
                    });
                    feasibility.0.store(Arc::new(findings.unwrap_or_default()));
                    snapshot = refreshed;
                }
            }
        }
        let changed = async {
            if wanted.is_empty() {
                constraint_sets.changed().await.is_ok()
            } else {
                timeout(MAX_SNAPSHOT_AGE, constraint_sets.changed())
                    .await
                    .unwrap_or(Ok(()))
                    .is_ok()
            }
        };
        // The core has ended.
        if token.run_until_cancelled(changed).await != Some(true) {
            return;
        }
    }
}

/// Sends the constraints of the tasks that are pending for a moment, unless it is on purpose, until the
/// token is cancelled.
pub async fn follow_pending(
    scheduler: Arc<dyn SchedulerApi>,
    constraint_sets: watch::Sender<ConstraintSets>,
    token: CancellationToken,
) {
    loop {
        let now = pending_constraints(&*scheduler);
        constraint_sets.send_if_modified(|sets| {
            let is_same = **sets == *now;
            if !is_same {
                *sets = now.into();
            }
            !is_same
        });
        if token
            .run_until_cancelled(tokio::time::sleep(PENDING_INTERVAL))
            .await
            .is_none()
        {
            return;
        }
    }
}

fn pending_constraints(scheduler: &dyn SchedulerApi) -> Vec<Vec<Constraint>> {
    let pending = scheduler.pending();
    let old = transom_common::ambient::now() - MIN_PENDING;
    let is_delay = |reason: &Reason| reason.words().kind == ReasonKind::Delay;
    let mut sets = Vec::new();
    for spec in pending.specs().filter(|spec| spec.since() <= old) {
        let constraints = &spec.spec().constraints;
        if sets.len() < MAX_CONSTRAINT_SETS
            && !sets.contains(constraints)
            && !spec.reasons().last.keys().all(is_delay)
        {
            sets.push(constraints.clone());
        }
    }
    sets
}

/// A list of agents, and the results for it.
struct AgentSnapshot {
    at: Instant,
    match_session: Box<dyn MatchSession>,
    agents: u32,
    totals: Arc<[AgentTotal]>,
    results: HashMap<Vec<Constraint>, ConstraintFit>,
}

/// Evaluates the sets without a result. `None`: the master or the matcher failed.
async fn refresh(
    cluster: &dyn AgentList,
    matcher: &dyn MatchSessions,
    snapshot: Option<AgentSnapshot>,
    constraint_sets: &ConstraintSets,
) -> Option<AgentSnapshot> {
    let mut snapshot = match snapshot.filter(|snapshot| snapshot.at.elapsed() < MAX_SNAPSHOT_AGE) {
        Some(snapshot) => snapshot,
        None => load_agents(cluster, matcher).await?,
    };
    snapshot
        .results
        .retain(|constraints, _| constraint_sets.contains(constraints));
    let with_conditions = constraint_sets
        .iter()
        .filter(|constraints| !constraints.is_empty());
    for constraints in with_conditions.take(MAX_CONSTRAINT_SETS) {
        if snapshot.results.contains_key(constraints) {
            continue;
        }
        let fit = timeout(
            REQUEST_TIMEOUT,
            evaluate(&mut *snapshot.match_session, snapshot.agents, constraints),
        )
        .await;
        match fit {
            Ok(Ok(fit)) => drop(snapshot.results.insert(constraints.clone(), fit)),
            Ok(Err(error)) => {
                tracing::debug!(error = error_chain(&error), "evaluating constraints failed");
                return None;
            }
            Err(_) => return None,
        }
    }
    Some(snapshot)
}

/// Lists the agents, and returns a snapshot without results.
async fn load_agents(cluster: &dyn AgentList, matcher: &dyn MatchSessions) -> Option<AgentSnapshot> {
    let agents = match timeout(REQUEST_TIMEOUT, cluster.agents()).await {
        Ok(Ok(agents)) => agents,
        Ok(Err(error)) => {
            tracing::debug!(error = error_chain(&error), "listing agents at the master failed");
            return None;
        }
        Err(_) => {
            tracing::debug!("listing agents at the master timed out");
            return None;
        }
    };
    let (agents, totals): (Vec<Agent>, Vec<AgentTotal>) = agents
        .into_iter()
        .map(|ActiveAgent { agent, total, ports }| {
            let total = AgentTotal {
                id: agent.id.clone(),
                hostname: agent.hostname.clone(),
                amounts: total,
                ports,
            };
            (agent, total)
        })
        .unzip();
    Some(AgentSnapshot {
        at: Instant::now(),
        agents: u32::try_from(agents.len()).unwrap_or(u32::MAX),
        totals: totals.into(),
        match_session: matcher.match_session(agents),
        results: HashMap::new(),
    })
}

/// Evaluates all constraints together and, if no agent satisfies them, each one. To evaluate one,
/// the list is rotated so that it comes first; the others stay in the list because its meaning may
/// depend on them.
async fn evaluate(
    match_session: &mut dyn MatchSession,
    agents: u32,
    conditions: &[Constraint],
) -> Result<ConstraintFit, CallError> {
    let verdicts = match_session.judge(&probe_task(conditions.iter())).await?;
    let fitting = verdicts
        .iter()
        .filter(|verdict| **verdict == Verdict::Fits)
        .count();
    let mut fit = ConstraintFit {
        agents,
        fitting: u32::try_from(fitting).unwrap_or(u32::MAX),
        unsatisfied: Vec::new(),
    };
    if fitting > 0 {
        return Ok(fit);
    }
    let mut evaluated = HashSet::new();
    for (index, condition) in conditions.iter().enumerate().take(MAX_CONSTRAINTS) {
        if !evaluated.insert(condition) {
            continue;
        }
        let (before, from) = conditions.split_at(index);
        let verdicts = match_session
            .judge(&probe_task(from.iter().chain(before)))
            .await?;
        if verdicts.iter().all(|verdict| *verdict == Verdict::Refused(0)) {
            let words = condition.to_string();
            fit.unsatisfied.push(words.trim_start_matches('@').to_owned());
        }
    }
    Ok(fit)
}

fn probe_task<'a>(conditions: impl Iterator<Item = &'a Constraint>) -> Task {
    Task {
        run_spec: "survey".to_owned(),
        instances: 1,
        constraints: conditions.cloned().collect(),
        placed: Vec::new(),
        extensions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;

    /// The attributes of each agent. An agent satisfies a condition if it has that attribute. It
    /// satisfies `X?:Y` if it has Y and not X, or if X is another condition of the task.
    #[derive(Debug)]
    struct AgentTexts(Vec<Vec<&'static str>>);

    #[async_trait]
    impl MatchSession for AgentTexts {
        async fn judge(&mut self, task: &Task) -> Result<Vec<Verdict>, CallError> {
            let texts: Vec<&str> = task
                .constraints
                .iter()
                .map(|condition| match condition {
                    Constraint::Expression(text) => text.as_str(),
                    Constraint::Field { .. } => unreachable!("jobs have expressions"),
                })
                .collect();
            let met = |has: &[&str], text: &str| match text.split_once("?:") {
                Some((not, text)) => texts.contains(&not) || (!has.contains(&not) && has.contains(&text)),
                None => has.contains(&text),
            };
            let judge = |has: &Vec<&str>| {
                let rejected = (0..).zip(&texts).find(|(_, text)| !met(has, text));
                rejected.map_or(Verdict::Fits, |(index, _)| Verdict::Refused(index))
            };
            Ok(self.0.iter().map(judge).collect())
        }
    }

    #[tokio::test]
    async fn evaluate_finds_constraints_that_no_agent_satisfies() {
        let agents = || vec![vec!["gpu:true", "rack:r1"], vec!["rack:r2"]];
        for (agents, conditions, fitting, unsatisfied) in [
            (agents(), vec!["rack:r1"], 1, vec![]),
            (agents(), vec!["rack:r3"], 0, vec!["rack:r3"]),
            // Finds all of them, not only the first one that rejects an agent.
            (agents(), vec!["a:b", "rack:r1", "c:d"], 0, vec!["a:b", "c:d"]),
            // Some agent satisfies each condition, but no agent satisfies both.
            (agents(), vec!["gpu:true", "rack:r2"], 0, vec![]),
            // The meaning of a condition depends on the others.
            (
                agents(),
                vec!["rack:r3", "gpu:true", "gpu:true?:cpu:true"],
                0,
                vec!["rack:r3"],
            ),
            (
                agents(),
                vec!["gpu:true?:cpu:true"],
                0,
                vec!["gpu:true?:cpu:true"],
            ),
            (agents(), vec!["x:y", "x:y"], 0, vec!["x:y"]),
            // Without agents no condition is satisfied.
            (vec![], vec!["rack:r1"], 0, vec!["rack:r1"]),
        ] {
            let expression = |text: &str| Constraint::Expression(text.to_owned());
            let conditions: Vec<Constraint> = conditions.into_iter().map(expression).collect();
            let count = u32::try_from(agents.len()).unwrap();
            let fit = evaluate(&mut AgentTexts(agents), count, &conditions)
                .await
                .unwrap();
            let expected = ConstraintFit {
                agents: count,
                fitting,
                unsatisfied: unsatisfied.into_iter().map(str::to_owned).collect(),
            };
            assert_eq!(fit, expected, "{conditions:?}");
        }
    }
}
