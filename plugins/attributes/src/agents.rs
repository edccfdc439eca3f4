//! The agents: loaded once, in the form that constraints compare.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;

use transom_sdk::log;
use transom_sdk::matcher::Agent;

use crate::constraint::{Field, Found};
use crate::expression::Texts;
use crate::hash::QuickHash;
use crate::pattern::Cache;

/// The properties of an agent that constraints use.
#[derive(Debug)]
pub struct AgentProperties {
    hostname: Found,
    region: Option<Found>,
    zone: Option<Found>,
    attributes: Vec<(String, Found)>,
    /// Made for the first expression: few clusters have any.
    texts: OnceCell<Texts>,
}

impl AgentProperties {
    /// From the host's agent.
    pub fn new(agent: Agent) -> Self {
        Self {
            hostname: Found::name(agent.hostname),
            region: agent.region.map(Found::name),
            zone: agent.zone.map(Found::name),
            attributes: agent
                .attributes
                .into_iter()
                .map(|attribute| (attribute.name, Found::attribute(attribute.value)))
                .collect(),
            texts: OnceCell::new(),
        }
    }

    /// The text attributes, for expressions.
    pub fn texts(&self) -> &Texts {
        self.texts.get_or_init(|| {
            let texts = self.attributes.iter().filter(|(_, found)| found.is_text());
            Texts::new(texts.map(|(name, found)| (name.as_str(), found.text.as_str())))
        })
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
    known: HashMap<u32, AgentProperties, QuickHash>,
}

impl Agents {
    /// None yet.
    pub fn new(home_region: Option<String>, patterns: Rc<Cache>) -> Self {
        Self {
            home_region,
            patterns,
            known: HashMap::default(),
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
