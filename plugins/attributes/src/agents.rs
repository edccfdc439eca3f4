//! The agents: loaded once, in the form that constraints compare.

use std::collections::BTreeMap;
use std::rc::Rc;

use transom_sdk::log;
use transom_sdk::matcher::Agent;

use crate::constraint::{Field, Found};
use crate::expression::Texts;
use crate::pattern::Cache;

/// The properties of an agent that constraints use.
#[derive(Debug)]
pub struct AgentProperties {
    hostname: Found,
    region: Option<Found>,
    zone: Option<Found>,
    attributes: Vec<(String, Found)>,
    /// For expressions.
    pub texts: Texts,
}

impl AgentProperties {
    fn new(agent: Agent) -> Self {
        Self {
            hostname: Found::name(&agent.hostname),
            region: agent.region.as_deref().map(Found::name),
            zone: agent.zone.as_deref().map(Found::name),
            texts: Texts::of(&agent),
            attributes: agent
                .attributes
                .into_iter()
                .map(|attribute| (attribute.name, Found::attribute(&attribute.value)))
                .collect(),
        }
    }

    /// The value of a field; the first one where an attribute stands twice.
    pub fn value(&self, field: &Field) -> Option<&Found> {
        match field {
            Field::Hostname => Some(&self.hostname),
            Field::Region => self.region.as_ref(),
            Field::Zone => self.zone.as_ref(),
            Field::Attribute(name) => self
                .attributes
                .iter()
                .find(|(other, _)| other == name)
                .map(|(_, found)| found),
        }
    }
}

/// The cluster's agents.
#[derive(Debug)]
pub struct Agents {
    home_region: Option<String>,
    patterns: Rc<Cache>,
    known: BTreeMap<u32, AgentProperties>,
}

impl Agents {
    /// None yet.
    pub fn new(home_region: Option<String>, patterns: Rc<Cache>) -> Self {
        Self {
            home_region,
            patterns,
            known: BTreeMap::new(),
        }
    }

    /// An agent, if it was loaded. The host loads every agent that it asks about; one that is not
    /// here is refused.
    pub fn get(&self, handle: u32) -> Option<&AgentProperties> {
        let found = self.known.get(&handle);
        if found.is_none() {
            log::warn!("agent {handle} is not in the agent set");
        }
        found
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &AgentProperties> {
        self.known.values()
    }

    /// The master's own region.
    pub fn home_region(&self) -> Option<&str> {
        self.home_region.as_deref()
    }

    /// Regular expressions that were made ready before.
    pub fn patterns(&self) -> &Cache {
        &self.patterns
    }

    /// Takes `gone` away, and adds agents or replaces those with the same handle.
    pub fn take_up(&mut self, changed: Vec<Agent>, gone: Vec<u32>) {
        for handle in gone {
            self.known.remove(&handle);
        }
        for agent in changed {
            self.known.insert(agent.handle, AgentProperties::new(agent));
        }
    }
}
