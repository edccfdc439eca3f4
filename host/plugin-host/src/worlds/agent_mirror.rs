//! The host's copy of an agent set, and the changes since the last update of an instance.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use imbl::OrdMap;

use crate::worlds::matcher::Agent;

/// Maximum number of removals that are remembered for updates, or twice the number of agents if that
/// is more. Beyond it all removals are dropped, and outdated instances load the whole set again.
const MIN_REMEMBERED_REMOVALS: usize = 1024;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The update for an instance.
#[derive(Debug, PartialEq)]
pub(crate) enum Changes {
    Since {
        changed: Vec<Arc<Agent>>,
        removed: Vec<u32>,
    },
    Everything(Vec<Arc<Agent>>),
}

/// The agents of a set at one revision. Creating one takes constant time.
#[derive(Clone, Debug)]
pub(crate) struct AgentSnapshot {
    set: u64,
    revision: u64,
    home_region: Option<String>,
    agents: Agents,
}

/// Agents by handle, with the revision of their last change. A persistent map, which snapshots
/// share.
type Agents = OrdMap<u32, (u64, Arc<Agent>)>;

impl AgentSnapshot {
    /// Identifies the content within this process: equal keys have equal agents.
    pub(crate) fn key(&self) -> (u64, u64) {
        (self.set, self.revision)
    }

    pub(crate) fn home_region(&self) -> Option<&str> {
        self.home_region.as_deref()
    }

    pub(crate) fn len(&self) -> usize {
        self.agents.len()
    }

    pub(crate) fn get(&self, handle: u32) -> Option<&Agent> {
        self.agents.get(&handle).map(|(_, agent)| &**agent)
    }

    /// Iterates over the agents in the order of their handles.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Agent> {
        self.agents.values().map(|(_, agent)| &**agent)
    }
}

#[derive(Debug)]
pub(crate) struct AgentMirror {
    /// Identifies this set within this process.
    id: u64,
    home_region: Option<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of changes so far.
    revision: u64,
    agents: Agents,
    removed_at: HashMap<u32, u64>,
    /// Agents and removals by the revision of their last change.
    by_revision: BTreeMap<u64, u32>,
    /// Instances at an older revision have to load the whole set again.
    oldest_known_revision: u64,
}

impl AgentMirror {
    pub(crate) fn new(home_region: Option<String>) -> AgentMirror {
        AgentMirror {
            id: NEXT_ID.fetch_add(1, Relaxed),
            home_region,
            state: Mutex::default(),
        }
    }

    /// Creates a separate set with the agents of a snapshot.
    pub(crate) fn from_snapshot(snapshot: &AgentSnapshot) -> AgentMirror {
        let copy = AgentMirror::new(snapshot.home_region.clone());
        {
            let mut state = copy.state();
            state.revision = snapshot.revision;
            state.oldest_known_revision = snapshot.revision;
            state.agents = snapshot.agents.clone();
        }
        copy
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn home_region(&self) -> Option<&str> {
        self.home_region.as_deref()
    }

    pub(crate) fn len(&self) -> usize {
        self.state().agents.len()
    }

    /// The current revision. It increases with every change.
    pub(crate) fn revision(&self) -> u64 {
        self.state().revision
    }

    /// The current agents.
    pub(crate) fn snapshot(&self) -> AgentSnapshot {
        let state = self.state();
        AgentSnapshot {
            set: self.id,
            revision: state.revision,
            home_region: self.home_region.clone(),
            agents: state.agents.clone(),
        }
    }

    pub(crate) fn update(&self, changed: Vec<Agent>, removed: Vec<u32>) {
        let mut state = self.state();
        for agent in changed {
            state.insert(agent);
        }
        for handle in removed {
            state.remove(handle);
        }
        state.prune();
    }

    /// Returns the current revision, and the update for an instance at revision `revision` (`None`: a
    /// new instance).
    pub(crate) fn changes_since(&self, revision: Option<u64>) -> (u64, Changes) {
        let state = self.state();
        let changes = match revision {
            Some(revision) if revision >= state.oldest_known_revision => state.since(revision),
            _ => Changes::Everything(state.all_agents()),
        };
        (state.revision, changes)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn insert(&mut self, agent: Agent) {
        let handle = agent.handle;
        if self
            .agents
            .get(&handle)
            .is_some_and(|(_, current)| **current == agent)
        {
            return;
        }
        self.remove_entry(handle);
        self.revision += 1;
        self.by_revision.insert(self.revision, handle);
        self.agents.insert(handle, (self.revision, Arc::new(agent)));
    }

    fn remove(&mut self, handle: u32) {
        if !self.agents.contains_key(&handle) {
            return;
        }
        self.remove_entry(handle);
        self.revision += 1;
        self.by_revision.insert(self.revision, handle);
        self.removed_at.insert(handle, self.revision);
    }

    fn remove_entry(&mut self, handle: u32) {
        let agent = self.agents.remove(&handle).map(|(revision, _)| revision);
        let removal = self.removed_at.remove(&handle);
        for revision in agent.into_iter().chain(removal) {
            self.by_revision.remove(&revision);
        }
    }

    fn prune(&mut self) {
        if self.removed_at.len() <= MIN_REMEMBERED_REMOVALS.max(self.agents.len() * 2) {
            return;
        }
        for (_, revision) in self.removed_at.drain() {
            self.by_revision.remove(&revision);
        }
        self.oldest_known_revision = self.revision;
    }

    fn since(&self, since_revision: u64) -> Changes {
        let (mut changed, mut removed) = (Vec::new(), Vec::new());
        for (_, handle) in self.by_revision.range(since_revision + 1..) {
            match self.agents.get(handle) {
                Some((_, agent)) => changed.push(Arc::clone(agent)),
                None => removed.push(*handle),
            }
        }
        Changes::Since { changed, removed }
    }

    fn all_agents(&self) -> Vec<Arc<Agent>> {
        self.agents.values().map(|(_, agent)| Arc::clone(agent)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(handle: u32, hostname: &str) -> Agent {
        Agent {
            handle,
            id: format!("agent-{handle}"),
            hostname: hostname.into(),
            region: None,
            zone: None,
            attributes: Vec::new(),
            extensions: Vec::new(),
        }
    }

    fn names(changes: &Changes) -> (bool, Vec<String>, Vec<u32>) {
        match changes {
            Changes::Since { changed, removed } => (
                false,
                changed.iter().map(|it| it.hostname.clone()).collect(),
                removed.clone(),
            ),
            Changes::Everything(agents) => (
                true,
                agents.iter().map(|it| it.hostname.clone()).collect(),
                Vec::new(),
            ),
        }
    }

    #[test]
    fn agent_mirror_returns_only_changes() {
        let agent_set = AgentMirror::new(None);
        agent_set.update(vec![agent(1, "a"), agent(2, "b")], vec![]);
        let (first, all) = agent_set.changes_since(None);
        assert_eq!(names(&all), (true, vec!["a".into(), "b".into()], vec![]));

        agent_set.update(vec![agent(1, "a"), agent(3, "c")], vec![2, 99]);
        let (second, delta) = agent_set.changes_since(Some(first));
        assert_eq!(
            names(&delta),
            (false, vec!["c".into()], vec![2]),
            "updating an agent to an equal value is not a change"
        );

        agent_set.update(vec![agent(2, "b2")], vec![3]);
        assert_eq!(
            names(&agent_set.changes_since(Some(second)).1),
            (false, vec!["b2".into()], vec![3])
        );
        assert_eq!(
            names(&agent_set.changes_since(Some(first)).1),
            (false, vec!["b2".into()], vec![3])
        );
        let (now, nothing) = (
            agent_set.changes_since(None).0,
            agent_set.changes_since(Some(agent_set.changes_since(None).0)).1,
        );
        assert!(now > second);
        assert_eq!(names(&nothing), (false, vec![], vec![]));
    }

    #[test]
    fn agent_mirror_reloads_all_agents_after_evicted_removals() {
        let agent_set = AgentMirror::new(None);
        agent_set.update((0..2000).map(|n| agent(n, "x")).collect(), vec![]);
        let (known, _) = agent_set.changes_since(None);
        agent_set.update(vec![], (0..1999).collect());
        let (_, changes) = agent_set.changes_since(Some(known));
        assert_eq!(names(&changes), (true, vec!["x".into()], vec![]));
        assert_eq!(agent_set.len(), 1);
    }
}
