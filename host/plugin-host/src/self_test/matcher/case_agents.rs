//! The agents of a case, with their handles. Recorded calls share them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;
use transom_plugin_cases::matcher::GivenAgent;

use crate::{
    documents::matcher::agent,
    worlds::{agent_mirror::AgentMirror, matcher::Agent},
};

/// The agents of a case. Their handles count from 1, in the order of the case.
#[derive(Debug)]
pub(crate) struct CaseAgents {
    pub(super) names: Vec<String>,
    by_name: BTreeMap<String, u32>,
    agents: Vec<Agent>,
    /// The agent set that instances load. It is replaced when a case has another home region.
    mirror: Mutex<Option<Arc<AgentMirror>>>,
}

impl CaseAgents {
    /// Reads an agent set of a recorded call. The error names the mistake in it.
    pub(crate) fn read(agents: &Value) -> Result<CaseAgents, String> {
        let given: Vec<GivenAgent> = serde_path_to_error::deserialize(agents).map_err(|error| {
            let path = error.path().to_string();
            format!("`agents{path}`: {}", error.into_inner())
        })?;
        Ok(CaseAgents::of(given))
    }

    pub(super) fn of(given: Vec<GivenAgent>) -> CaseAgents {
        let names: Vec<String> = given.iter().map(|it| it.name().to_owned()).collect();
        let mut by_name = BTreeMap::new();
        for (name, handle) in names.iter().zip(1..) {
            // If several agents have one name, it denotes the first of them.
            by_name.entry(name.clone()).or_insert(handle);
        }
        let agents = given.into_iter().zip(1..);
        CaseAgents {
            names,
            by_name,
            agents: agents.map(|(given, handle)| agent(given, handle)).collect(),
            mirror: Mutex::default(),
        }
    }

    pub(super) fn handle(&self, name: &str) -> Result<u32, String> {
        let found = self.by_name.get(name).copied();
        found.ok_or_else(|| format!("no agent has the id or hostname {name:?}"))
    }

    pub(super) fn handles(&self, names: &[String]) -> Result<Vec<u32>, String> {
        names.iter().map(|name| self.handle(name)).collect()
    }

    /// Returns the agent set for a home region. Consecutive cases with one home region share it, so
    /// that an instance need not load it again.
    pub(super) fn mirror(&self, home_region: Option<String>) -> Arc<AgentMirror> {
        let mut mirror = self.mirror.lock().unwrap_or_else(PoisonError::into_inner);
        match &*mirror {
            Some(mirror) if mirror.home_region() == home_region.as_deref() => Arc::clone(mirror),
            _ => {
                let new = Arc::new(AgentMirror::new(home_region));
                new.update(self.agents.clone(), Vec::new());
                Arc::clone(mirror.insert(new))
            }
        }
    }
}
